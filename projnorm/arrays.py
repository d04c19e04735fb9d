"""Named arrays as the bytes of an NPZ file: equal arrays give equal bytes, and nothing in one is ever executed.

What a file says of itself is not trusted: sizes are looked at, and must agree, before memory is reserved for an array.
"""

from __future__ import annotations

import io
import math
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from projnorm.errors import InputError
from projnorm.files import memory_ceiling, open_file

Arrays = Mapping[str, NDArray[Any]]

# What numpy, zipfile and zlib raise on bytes that are no NPZ file.
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    ValueError,
    EOFError,
    OSError,
    LookupError,
    AttributeError,
    TypeError,
    RuntimeError,
    OverflowError,
)
# What Python's parser raises besides, on the few characters that describe an array.
_NO_HEADER = (SyntaxError, MemoryError, tokenize.TokenError)
_NO_DATE = (1980, 1, 1, 0, 0, 0)
_ENDING = ".npy"
_ENCRYPTED = 0x1
_LONGEST_REASON = 200


def to_npz(arrays: Arrays, *, compress: bool = True) -> bytes:
    """The arrays as an NPZ file, with no date in it."""
    buffer, method = io.BytesIO(), zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", _NO_DATE), member.getvalue(), method)
    return buffer.getvalue()


def from_npz(data: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of an NPZ file.

    Raises:
        ValueError: If the bytes are not a whole NPZ file of plain arrays, or would unpack to more than the ceiling.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = _members(archive)
            return {name: _unpacked(archive, member) for name, member in members.items()}
    except _UNREADABLE as error:
        raise InputError(f"not a whole NPZ file of plain arrays ({_reason(error)})") from error


def from_npy(data: bytes) -> NDArray[Any]:
    """The array of an NPY file.

    Raises:
        ValueError: If the bytes are not a whole NPY file of a plain array.
    """
    try:
        return _array(io.BytesIO(data), len(data))
    except _UNREADABLE as error:
        raise InputError(f"not a whole NPY file of a plain array ({_reason(error)})") from error


def map_npy(path: Path) -> NDArray[Any]:
    """The array of an NPY file, which stays on disk; it may be larger than what is read into memory.

    Raises:
        ValueError: If it is not a whole NPY file of a plain array.
        OSError: If it cannot be read.
    """
    with open_file(path, most=np.iinfo(np.int64).max) as file:
        try:
            size = file.seek(0, io.SEEK_END)
            file.seek(0)
            header = _header(file, size)
            if not math.prod(header.shape):
                return np.empty(header.shape, header.dtype)
            return np.memmap(file, header.dtype, "r", file.tell(), header.shape, header.order)
        except _UNREADABLE as error:
            raise InputError(f"{path}: not a whole NPY file of a plain array ({_reason(error)}).") from None


@dataclass(frozen=True, slots=True)
class _Header:
    """What an NPY file says of its array."""

    shape: tuple[int, ...]
    order: Literal["F", "C"]
    dtype: np.dtype[Any]


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The arrays by name, if what the archive says of them can be."""
    found: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        name = member.filename.removesuffix(_ENDING)
        if name == member.filename or not name.isprintable():
            raise ValueError("a member is no array")
        if name in found:
            raise ValueError(f"it has two arrays called {name!r}")
        if member.flag_bits & _ENCRYPTED:
            raise ValueError("it is encrypted")
        # Others unpack as much at once as a file makes them.
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"it is compressed in way {member.compress_type}, which is not numpy's")
        found[name] = member
    total, most = sum(member.file_size for member in found.values()), memory_ceiling()
    if total > most:
        raise ValueError(f"it unpacks to {total:,} bytes, at most {most:,} are read")
    return found


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(member) as stream:  # never gives more than the member says it holds
        array = _array(stream, member.file_size)
        if stream.read(1):
            raise ValueError("a member is larger than it says")
    return array


def _array(stream: Any, size: int) -> NDArray[Any]:
    """The array of a stream of `size` bytes that begins with its header."""
    header = _header(stream, size)
    count = math.prod(header.shape)
    flat = np.empty(count, header.dtype)
    into = flat.view(np.uint8).data if count else memoryview(b"")
    filled = 0
    while filled < len(into):
        got = stream.readinto(into[filled : filled + (1 << 20)])
        if not got:
            raise ValueError("it ends too early")
        filled += got
    return flat.reshape(header.shape, order=header.order)


def _header(stream: BinaryIO, size: int) -> _Header:
    """The header, if the array it describes is plain and fills the rest of the `size` bytes; leaves off behind it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of headers that Python 2 wrote
            version = np.lib.format.read_magic(stream)
            readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            if version not in readers:
                raise ValueError(f"it is of version {version[0]}.{version[1]}")
            shape, by_columns, dtype = readers[version](stream)
    except _NO_HEADER:
        raise ValueError("it has no header") from None
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are never read")
    if dtype.subdtype is not None or not dtype.itemsize:
        raise ValueError(f"it has entries of type {dtype}")
    if any(side < 0 for side in shape):
        raise ValueError(f"it has shape {shape}")
    held, rest = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if held != rest:
        raise ValueError(f"{dtype} of shape {shape} are {held:,} bytes, and it holds {rest:,}")
    if not held and math.prod(max(side, 1) for side in shape) > memory_ceiling():
        raise ValueError(f"it has shape {shape}")
    return _Header(tuple(int(side) for side in shape), "F" if by_columns else "C", dtype)


def _reason(error: Exception) -> str:
    reason = str(error).strip().split("\n")[0].rstrip(".")
    return reason[:_LONGEST_REASON] or type(error).__name__
