"""Named arrays as the bytes of an NPZ file: equal arrays give equal bytes, and nothing in one is ever executed."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]

# What numpy, zipfile and zlib raise on bytes that are no NPZ file.
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    ValueError,
    EOFError,
    OSError,
    LookupError,
    AttributeError,
    TypeError,
    RuntimeError,
    NotImplementedError,
    OverflowError,
    SyntaxError,
)
_NO_DATE = (1980, 1, 1, 0, 0, 0)


def to_npz(arrays: Arrays) -> bytes:
    """The arrays as an NPZ file, with no date in it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", _NO_DATE), member.getvalue(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def from_npz(data: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of an NPZ file.

    Raises:
        ValueError: If the bytes are not a whole NPZ file of plain arrays.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        if not all(isinstance(array, np.ndarray) for array in arrays.values()):
            raise ValueError("a member is no array")
    except _UNREADABLE as error:
        raise ValueError(f"not a whole NPZ file of plain arrays ({error})") from error
    return arrays


def from_npy(data: bytes) -> NDArray[Any]:
    """The array of an NPY file.

    Raises:
        ValueError: If the bytes are not a whole NPY file of a plain array.
    """
    try:
        return np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    except _UNREADABLE as error:
        raise ValueError(f"not a whole NPY file of a plain array ({error})") from error
