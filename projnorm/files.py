"""Files from outside: where one is, and how it is read without trust in what it says of itself."""

from __future__ import annotations

import io
import json
import math
import os
import stat
from pathlib import Path
from typing import Any

from projnorm.errors import InputError

DATA_VARIABLE = "PROJNORM_DATA"
CEILING_VARIABLE = "PROJNORM_MAX_READ_GB"
# Where a machine does not tell how much memory it has.
_MEMORY = 8_000_000_000


def locate(name: str | Path) -> Path:
    """The file or folder as given, or else under the folder that the environment variable PROJNORM_DATA names.

    A record then keeps the short name, and means the same file on another machine.
    """
    path = Path(name)
    folder = os.environ.get(DATA_VARIABLE)
    if path.exists() or path.is_absolute() or not folder:
        return path
    under = Path(folder) / path
    return under if under.exists() else path


def memory_ceiling() -> int:
    """Bytes that one file may hold or unpack to: PROJNORM_MAX_READ_GB, or else half of the memory of this machine.

    Raises:
        InputError: If the variable holds no positive number.
    """
    given = os.environ.get(CEILING_VARIABLE)
    if not given:
        return physical_memory() // 2
    try:
        gigabytes = float(given)
    except ValueError:
        gigabytes = math.nan
    if not 0.0 < gigabytes < math.inf:
        raise InputError(f"{CEILING_VARIABLE} must be a number of gigabytes above 0; got {given!r}.")
    return int(gigabytes * 1e9)


def physical_memory() -> int:
    """Bytes of memory that this machine has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return _MEMORY


def open_file(path: Path, *, most: int | None = None) -> io.BufferedReader:
    """Open a regular file to read it; a pipe or a device, which might never end, is refused and never waited for.

    Args:
        path: Path of the file.
        most: Bytes that it may have at most; `memory_ceiling` by default.

    Raises:
        InputError: If it is no regular file, or larger.
        OSError: If it cannot be opened.
    """
    allowed = memory_ceiling() if most is None else most
    if path.is_dir():
        raise InputError(f"{path}: is a folder, not a file.")
    file = os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb")
    try:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{path}: is a pipe or a device, not a regular file; copy what it gives into one.")
        if status.st_size > allowed:
            remedy = f"; set {CEILING_VARIABLE} to read more" if most is None else ""
            raise InputError(f"{path}: has {status.st_size:,} bytes, at most {allowed:,} are read{remedy}.")
    except ValueError:
        file.close()
        raise
    return file


def read_file(path: Path, *, most: int | None = None) -> bytes:
    """What is in a regular file.

    Args:
        path: Path of the file.
        most: Bytes that it may have at most; `memory_ceiling` by default.

    Raises:
        InputError: If it is no regular file, larger, or changes while it is read.
        OSError: If it cannot be read.
    """
    with open_file(path, most=most) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(size)
        if len(data) != size or file.read(1):
            raise InputError(f"{path}: changed while it was read; try again.")
    return data


def parse_json(data: bytes) -> Any:
    """A JSON document.

    Raises:
        InputError: If it is none, is nested too deeply, or has a number of too many digits.
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise InputError("not a whole JSON document") from None
