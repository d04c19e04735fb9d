"""Atomic writes: files are written under a temporary name and then renamed, so they are complete or absent.

A process that is killed leaves its temporary file behind. The name of that file holds the machine and the process ID,
and the next process that writes into the folder removes it.
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
    """Write `data` to `path`; if that fails, an earlier file stays as it was."""
    with unfinished(path) as part:
        part.write_bytes(data)


@contextmanager
def unfinished(path: Path) -> Iterator[Path]:
    """A temporary file that is renamed to `path` at the end; after an exception, `path` stays as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(path.parent, os.getpid())
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{_machine()}-{os.getpid()}-", suffix=_PART)
    part = Path(name)
    try:
        os.close(handle)
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        # mkstemp makes the file private; give it the mode of any other new file.
        umask = os.umask(0)
        os.umask(umask)
        part.chmod(0o666 & ~umask)
        part.replace(path)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # the error for a full disk does not name the file
        raise
    _flush_folder(path.parent)


def _flush_folder(folder: Path) -> None:
    """Write the directory entries to disk, on systems that can."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with suppress(OSError):  # not supported by every file system; the file itself is safe
                os.fsync(handle)
        finally:
            os.close(handle)


@lru_cache(maxsize=4096)
def _remove_abandoned(folder: Path, _process: int) -> None:
    """Remove temporary files of dead processes of this machine, once for each folder and process."""
    for part in folder.glob(f".{_machine()}-*{_PART}"):
        process = part.name.split("-")[1]
        if process.isdigit() and not _alive(int(process)):
            part.unlink(missing_ok=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it exists, but belongs to another user
        return True
    return True


@lru_cache(maxsize=1)
def _machine() -> str:
    """A short identifier of this machine and its namespace of process IDs, distinct from others on a shared disk."""
    namespace = Path("/proc/self/ns/pid")
    inode = namespace.stat().st_ino if namespace.exists() else 0
    return f"{zlib.crc32(f'{platform.node()} {inode}'.encode()):08x}"
