"""Files from outside: finding them, and reading them without trusting the sizes they declare."""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import pickle
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from projnorm.core.errors import InputError

DATA_VARIABLE = "PROJNORM_DATA"
CEILING_VARIABLE = "PROJNORM_MAX_READ_GB"
# What readers of numpy, zipfile, zlib, Pillow and torch raise on bytes that are not in their format.
UNREADABLE = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    EOFError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
    pickle.UnpicklingError,
)
# Assumed on systems that do not report how much memory they have.
_DEFAULT_MEMORY = 8_000_000_000
_LONGEST_REASON = 300


def locate(name: str | Path) -> Path:
    """The path itself if it exists, else the path below the folder named by the environment variable PROJNORM_DATA.

    Records then hold the short name, which refers to the same file on another machine.
    """
    path = Path(name)
    folder = os.environ.get(DATA_VARIABLE)
    if path.exists() or path.is_absolute() or not folder:
        return path
    inside = Path(folder) / path
    return inside if inside.exists() else path


def memory_ceiling() -> int:
    """Largest number of bytes that a file may hold or unpack to.

    The environment variable PROJNORM_MAX_READ_GB sets it; the default is half of the memory of this machine.
    """
    value = os.environ.get(CEILING_VARIABLE)
    if not value:
        return physical_memory() // 2
    try:
        gigabytes = float(value)
    except ValueError:
        gigabytes = math.nan
    if not 0.0 < gigabytes < math.inf:
        raise InputError(f"{CEILING_VARIABLE} must be a number of gigabytes above 0; got {value!r}.")
    return int(gigabytes * 1e9)


@cache
def physical_memory() -> int:
    """Memory of this machine in bytes."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return _DEFAULT_MEMORY


def open_file(path: Path, *, most: int | None = None) -> io.BufferedReader:
    """Open a regular file of at most `most` bytes, by default `memory_ceiling`, for reading.

    A pipe or a device, which might never end, is refused without waiting for it.
    """
    allowed = memory_ceiling() if most is None else most
    if path.is_dir():
        raise InputError(f"{path}: is a folder, not a file.")
    file = os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb")
    try:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{path}: is a pipe or a device, not a regular file; copy its content into one.")
        if status.st_size > allowed:
            remedy = f"; set {CEILING_VARIABLE} to read more" if most is None else ""
            raise InputError(f"{path}: has {status.st_size:,} bytes, at most {allowed:,} are read{remedy}.")
    except ValueError:
        file.close()
        raise
    return file


def read_file(path: Path, *, most: int | None = None) -> bytes:
    """The content of a regular file of at most `most` bytes, by default `memory_ceiling`."""
    with open_file(path, most=most) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(size)
        if len(data) != size or file.read(1):
            raise InputError(f"{path}: changed while it was read; try again.")
    return data


def gunzipped(data: bytes) -> bytes:
    """Decompressed gzip data; a `ValueError` or `OSError` if it is damaged, or more than `memory_ceiling`."""
    most = memory_ceiling()
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        unpacked = file.read(most + 1)
    if len(unpacked) > most:
        raise ValueError(f"it unpacks to more than {most:,} bytes")
    return unpacked


@contextmanager
def decoding(what: str, *also: type[Exception], end: str = ".") -> Iterator[None]:
    """Turn what a reader raises on bytes that are not in its format into an `InputError` that says `what` and why.

    `also` are errors that this reader raises besides `UNREADABLE`.
    """
    kinds: tuple[type[Exception], ...] = (*UNREADABLE, *also)
    try:
        yield
    except kinds as error:
        raise InputError(f"{what} ({reason(error)}){end}") from None


def parse_json(data: bytes) -> Any:
    """Parse a JSON document."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise InputError("not a whole JSON document") from None


def reason(error: Exception) -> str:
    """The message of an error on one line, shortened and without its full stop, to be quoted in another message."""
    return " ".join(str(error).split())[:_LONGEST_REASON].rstrip(".") or type(error).__name__
