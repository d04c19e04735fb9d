"""Named arrays as the bytes of an NPZ file: equal arrays give equal bytes, and nothing in a file is ever executed.

Files are not trusted: the sizes they declare are checked against one another before memory is allocated for an array.
"""

from __future__ import annotations

import io
import math
import tokenize
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from projnorm.core.errors import InputError
from projnorm.core.files import decoding, memory_ceiling, open_file, read_file

Arrays = Mapping[str, NDArray[Any]]

# What Python's parser raises on a header that is not a literal.
_NO_HEADER = (SyntaxError, MemoryError, tokenize.TokenError)
_NO_DATE = (1980, 1, 1, 0, 0, 0)
_ENDING = ".npy"
_ENCRYPTED = 0x1
# How files begin whose endings are often mistaken for one another.
_BEGINNINGS = {b"PK\x03\x04": ".npz", b"\x93NUMPY": ".npy", b"PAR1": ".parquet", b"\x1f\x8b": ".csv.gz"}
_SNIFFED, _FIRST_PRINTABLE = 1_000, 0x20


def to_npz(arrays: Arrays, *, compress: bool = True) -> bytes:
    """The bytes of an NPZ file with these arrays; it carries no date."""
    buffer, method = io.BytesIO(), zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", _NO_DATE), member.getvalue(), method)
    return buffer.getvalue()


def from_npz(data: bytes) -> dict[str, NDArray[Any]]:
    """The arrays in the bytes of an NPZ file."""
    whole = decoding("not a whole NPZ file of plain arrays", OSError, end="")
    with whole, zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: _unpacked(archive, member, name) for name, member in _members(archive).items()}


def from_npy(data: bytes) -> NDArray[Any]:
    """The array in the bytes of an NPY file."""
    with decoding("not a whole NPY file of a plain array", OSError, end=""):
        return _array(io.BytesIO(data), len(data))


def read_arrays(path: Path, *, name: str = "") -> dict[str, NDArray[Any]]:
    """The arrays of an NPZ file, or the array of an NPY file under the name `name`."""
    data = read_file(path)
    expected, own = ".npy" if path.suffix == ".npy" else ".npz", _own_ending(data)
    if own not in ("", expected):
        raise InputError(f"{path}: must be an {expected} file, but has the content of a {own} file; rename it.")
    try:
        return {name: from_npy(data)} if path.suffix == ".npy" else from_npz(data)
    except InputError as error:
        raise InputError(f"{path}: {error}.") from None


def map_npy(path: Path) -> NDArray[Any]:
    """The array of an NPY file as a memory map, which may be larger than `memory_ceiling`."""
    whole = decoding(f"{path}: not a whole NPY file of a plain array", OSError)
    with open_file(path, most=np.iinfo(np.int64).max) as file, whole:
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        header = _header(file, size)
        if not math.prod(header.shape):
            return np.empty(header.shape, header.dtype)
        return np.memmap(file, header.dtype, "r", file.tell(), header.shape, header.order)


def form(array: NDArray[Any]) -> str:
    """Type and shape of an array, for error messages."""
    return f"{array.dtype} of shape {array.shape}"


def _own_ending(data: bytes) -> str:
    """The ending that a file with this content should have; empty where it is not known."""
    for magic, ending in _BEGINNINGS.items():
        if data.startswith(magic):
            return ending
    first = data[:_SNIFFED]
    is_text = first.isascii() and all(byte >= _FIRST_PRINTABLE or byte in b"\t\r\n" for byte in first)
    return ".csv" if is_text and b"," in first.partition(b"\n")[0] else ""


@dataclass(frozen=True, slots=True)
class _Header:
    """Shape, memory order and type that an NPY file declares for its array."""

    shape: tuple[int, ...]
    order: Literal["F", "C"]
    dtype: np.dtype[Any]


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The members by the name of their array, once the sizes and types that the archive declares are acceptable."""
    members: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        name = member.filename.removesuffix(_ENDING)
        if name == member.filename or not name.isprintable():
            raise ValueError("a member is not an array")
        if name in members:
            raise ValueError(f"it has two arrays called {name!r}")
        if member.flag_bits & _ENCRYPTED:
            raise ValueError("it is encrypted")
        # Other decompressors unpack a whole block at once, however large.
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"it uses compression method {member.compress_type}, which numpy never writes")
        members[name] = member
    total, most = sum(member.file_size for member in members.values()), memory_ceiling()
    if total > most:
        raise ValueError(f"it unpacks to {total:,} bytes, at most {most:,} are read")
    return members


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> NDArray[Any]:
    with archive.open(member) as stream:  # yields at most the declared size
        array = _array(stream, member.file_size, f"`{name}`")
        if stream.read(1):
            raise ValueError("a member is larger than declared")
    return array


def _array(stream: Any, size: int, name: str = "it") -> NDArray[Any]:
    """Read an array from a stream of `size` bytes that begins with its header; `name` is its name in messages."""
    header = _header(stream, size, name)
    count = math.prod(header.shape)
    flat = np.empty(count, header.dtype)
    buffer = flat.view(np.uint8).data if count else memoryview(b"")
    filled = 0
    while filled < len(buffer):
        count_read = stream.readinto(buffer[filled : filled + (1 << 20)])
        if not count_read:
            raise ValueError("it ends too early")
        filled += count_read
    return flat.reshape(header.shape, order=header.order)


def _header(stream: BinaryIO, size: int, name: str = "it") -> _Header:
    """Read the header; the array must be plain and fill exactly the rest of the `size` bytes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about headers written by Python 2
            version = np.lib.format.read_magic(stream)
            readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            if version not in readers:
                raise ValueError(f"it has format version {version[0]}.{version[1]}")
            shape, by_columns, dtype = readers[version](stream)
    except _NO_HEADER:
        raise ValueError("it has no header") from None
    if dtype.hasobject:
        remedy = "save it as numbers, or as text with astype(str)"
        raise ValueError(f"{name} holds Python objects, which are never read: {remedy}")
    if dtype.subdtype is not None or not dtype.itemsize:
        raise ValueError(f"it has entries of type {dtype}")
    if any(side < 0 for side in shape):
        raise ValueError(f"it has shape {shape}")
    needed, available = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if needed != available:
        raise ValueError(f"{dtype} of shape {shape} are {needed:,} bytes, and it holds {available:,}")
    if not needed and math.prod(max(side, 1) for side in shape) > memory_ceiling():
        raise ValueError(f"it has shape {shape}")
    return _Header(tuple(int(side) for side in shape), "F" if by_columns else "C", dtype)
