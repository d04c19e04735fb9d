"""The Python version of CIFAR: pickled batches, decoded without unpickling them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from projnorm.errors import InputError
from projnorm.files import reason
from projnorm.vision.images import Images, Labels
from projnorm.vision.pickles import ENCODE, NDARRAY, Call, decode, raw

_DTYPE = "numpy.dtype"
_RECONSTRUCT = ("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct")
_ADMITTED = (ENCODE, "__builtin__.bytes", NDARRAY, _DTYPE, *_RECONSTRUCT)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Images and classes in the layout of CIFAR's files.

    Attributes:
        pixels: Red, green and blue plane of each image, shape ``(n, 3072)``.
        labels: Class of each image, shape ``(n,)``.
    """

    pixels: Images
    labels: Labels


def read_batch(data: bytes, *, width: int) -> Batch:
    """Decode a pickled dictionary with `data`, `width` bytes for each image, and with `labels` or `fine_labels`."""
    try:
        batch = decode(data, _ADMITTED.__contains__)
        if not isinstance(batch, dict):
            raise InputError("it does not hold a dictionary")
        entries = {_text(key): value for key, value in batch.items()}
        labels = entries.get("labels", entries.get("fine_labels"))
        if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < 256 for label in labels):
            raise InputError("`labels` or `fine_labels` must be a list of classes")
        return Batch(_pixels(entries.get("data"), (len(labels), width)), np.array(labels, dtype=np.int64))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"not a pickled batch of CIFAR ({reason(error)})") from None


def _pixels(array: Any, shape: tuple[int, int]) -> Images:
    if not isinstance(array, Call) or array.name not in _RECONSTRUCT or not isinstance(array.state, tuple):
        raise InputError("`data` must be an array")
    _, stored_shape, dtype, by_columns, pixels = array.state
    if not isinstance(dtype, Call) or _text(dtype.arguments[0]) != "u1" or stored_shape != shape or not shape[0]:
        raise InputError(f"`data` must be an array of bytes with {shape[1]:,} for each of the {shape[0]:,} labels")
    return np.frombuffer(raw(pixels), dtype=np.uint8).reshape(shape, order="F" if by_columns else "C")


def _text(value: Any) -> str:
    """A key written by Python 2 or 3; anything else is refused, since converting it to text could take forever."""
    if not isinstance(value, str | bytes):
        raise InputError("it holds something else where a name should be")
    return value.decode("latin-1") if isinstance(value, bytes) else value
