"""Files that are either wholly there or not there: written under a temporary name, then renamed.

A process that is killed on the way leaves its temporary file behind. It carries the machine and the number of the
process in its name, and is removed by the next process that writes into the folder.
"""

from __future__ import annotations

import os
import platform
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

_PART = ".part"


def write_atomically(path: Path, data: bytes) -> None:
    """Put `data` at `path`; a failure on the way leaves what was there before untouched.

    Raises:
        OSError: If the folder cannot be written to.
    """
    with unfinished(path) as part:
        part.write_bytes(data)


@contextmanager
def unfinished(path: Path) -> Iterator[Path]:
    """An empty file to write to, which becomes `path` at the end; after an exception `path` is as it was.

    Raises:
        OSError: If the folder cannot be written to.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(path.parent, os.getpid())
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{_machine()}-{os.getpid()}-", suffix=_PART)
    part = Path(name)
    try:
        os.close(handle)
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        # mkstemp makes the file private; give it the mode any other new file would have.
        umask = os.umask(0)
        os.umask(umask)
        part.chmod(0o666 & ~umask)
        part.replace(path)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # of a full disk, the system does not say which file
        raise
    _flush_folder(path.parent)


def _flush_folder(folder: Path) -> None:
    """Have the names in a folder on the disk too, where the system can."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with suppress(OSError):  # some file systems cannot; the file itself is there
                os.fsync(handle)
        finally:
            os.close(handle)


@lru_cache(maxsize=4096)
def _remove_abandoned(folder: Path, _process: int) -> None:
    """Once a process and folder: unfinished files of processes of this machine that are no more."""
    for part in folder.glob(f".{_machine()}-*{_PART}"):
        process = part.name.split("-")[1]
        if process.isdigit() and not _alive(int(process)):
            part.unlink(missing_ok=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it is there, and somebody else's
        return True
    return True


@lru_cache(maxsize=1)
def _machine() -> str:
    """A short name of this machine, which tells it from others on a shared disk, and of what process numbers mean."""
    numbers = Path("/proc/self/ns/pid")
    space = numbers.stat().st_ino if numbers.exists() else 0
    return f"{zlib.crc32(f'{platform.node()} {space}'.encode()):08x}"
