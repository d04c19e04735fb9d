"""One process at a time on what is in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from projnorm.runs.notices import notice

LOCK = ".lock"


@contextmanager
def sole_writer(folder: Path, name: str = LOCK) -> Iterator[None]:
    """Nobody else writes here inside; who comes second is told, and waits. The lock of a process that died is free.

    Args:
        folder: What is written to; made if it is not there.
        name: Of the lock, where several things in a folder are written independently.

    Raises:
        OSError: If the folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # The same object for the same file, so that a function that holds the lock may call one that takes it.
    lock = FileLock(folder / name, is_singleton=True)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        notice(f"another process is working on {folder}; waiting until it has finished.")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
