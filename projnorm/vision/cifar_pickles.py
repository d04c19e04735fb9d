"""The Python version of CIFAR: pickled batches, whose instructions are followed and never run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from projnorm.errors import InputError
from projnorm.vision.images import Images, Labels
from projnorm.vision.pickles import ENCODE, NDARRAY, Made, follow, raw

_DTYPE = "numpy.dtype"
_RECONSTRUCT = ("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct")
_ADMITTED = (ENCODE, "__builtin__.bytes", NDARRAY, _DTYPE, *_RECONSTRUCT)
_LONGEST_REASON = 200


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Images as the files of CIFAR hold them.

    Attributes:
        pixels: The red, green and blue plane of each image, shape ``(n, 3072)``.
        labels: Shape ``(n,)``.
    """

    pixels: Images
    labels: Labels


def read_batch(data: bytes, *, width: int) -> Batch:
    """The images and labels in the bytes of a batch.

    Args:
        data: A pickled dictionary with `data` and `labels` or `fine_labels`.
        width: Bytes of an image.

    Raises:
        InputError: If it is anything else, or asks for what such a file does not need.
    """
    try:
        batch = follow(data, _ADMITTED.__contains__)
        if not isinstance(batch, dict):
            raise InputError("it holds no dictionary")
        found = {_text(key): value for key, value in batch.items()}
        labels = found.get("labels", found.get("fine_labels"))
        if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < 256 for label in labels):
            raise InputError("`labels` or `fine_labels` must be a list of classes")
        return Batch(_pixels(found.get("data"), (len(labels), width)), np.array(labels, dtype=np.int64))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"not a pickled batch of CIFAR ({str(error)[:_LONGEST_REASON]})") from None


def _pixels(array: Any, shape: tuple[int, int]) -> Images:
    if not isinstance(array, Made) or array.name not in _RECONSTRUCT or not isinstance(array.state, tuple):
        raise InputError("`data` must be an array")
    _, found, dtype, by_columns, pixels = array.state
    if not isinstance(dtype, Made) or _text(dtype.arguments[0]) != "u1" or found != shape or not shape[0]:
        raise InputError(f"`data` must be an array of bytes with {shape[1]:,} for each of the {shape[0]:,} labels")
    return np.frombuffer(raw(pixels), dtype=np.uint8).reshape(shape, order="F" if by_columns else "C")


def _text(value: Any) -> str:
    """A name, as Python 2 or 3 wrote it; writing out anything else could take for ever."""
    if not isinstance(value, str | bytes):
        raise InputError("it holds something else where a name should be")
    return value.decode("latin-1") if isinstance(value, bytes) else value
