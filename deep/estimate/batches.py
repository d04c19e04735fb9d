"""Samples in any form: arrays, tensors, datasets, loaders, mappings of them; torch is imported only if they use it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep.outputs import BATCH
from projnorm.errors import InputError

_LABEL_KEYS = ("labels", "label")


@dataclass(frozen=True, slots=True, eq=False)
class Batches:
    """Samples, batch by batch: the inputs of a model as arrays, tensors, or mappings of them.

    Labels are numbers or names, or None; `array` has all inputs, one sample per row, where they form one array.
    """

    batches: tuple[Any, ...]
    labels: NDArray[Any] | None
    array: NDArray[Any] | None
    name: str


def as_batches(data: Any, name: str) -> Batches:
    """Read samples once.

    Args:
        data: An array or tensor, or a list of rows; a pair of inputs and labels, which is a tuple; a mapping of arrays,
            such as a tokenizer gives, perhaps with `labels`; an `ImageSet`; a torch `Dataset` or `DataLoader` of any of
            these.
        name: Name of the set in messages.
    """
    inputs, labels = [], []
    for batch in _batches(data, name):
        x, y = _parted(batch)
        inputs.append(x)
        labels.append(y)
    if not inputs:
        raise InputError(f"{name}: holds no sample.")
    if any((y is None) != (labels[0] is None) for y in labels):
        raise InputError(f"{name}: some samples have labels and some have none.")
    known = None if labels[0] is None else np.concatenate([np.atleast_1d(as_array(y)) for y in labels])
    return Batches(tuple(inputs), known, _whole(inputs), name)


def _batches(data: Any, name: str) -> Iterator[Any]:
    if type(data).__name__ == "ImageSet":
        data = (data.images, data.labels)
    data = tuple(map(_unwrapped, data)) if isinstance(data, tuple) else _unwrapped(data)
    if any(kind.__name__ == "DataLoader" for kind in type(data).__mro__):
        yield from data
    elif _is_array(data):
        yield from (data[start : start + BATCH] for start in range(0, len(data), BATCH))
    elif isinstance(data, tuple) and len(data) == 2 and all(hasattr(part, "__getitem__") for part in data):
        count = len(data[0])
        if len(data[1]) != count:
            raise InputError(f"{name}: has {count:,} samples and {len(data[1]):,} labels.")
        yield from (tuple(part[start : start + BATCH] for part in data) for start in range(0, count, BATCH))
    elif isinstance(data, Mapping):
        count = len(next(iter(data.values()), ()))
        yield from ({k: v[start : start + BATCH] for k, v in data.items()} for start in range(0, count, BATCH))
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, str | list | tuple):
        from torch.utils.data import DataLoader

        yield from DataLoader(data, batch_size=BATCH)
    else:
        raise InputError(
            f"{name}: must be an array, a pair of inputs and labels, a Dataset or a DataLoader; got "
            f"{type(data).__name__}."
        )


def _is_array(data: Any) -> bool:
    return isinstance(data, np.ndarray) or is_tensor(data)


def is_tensor(data: Any) -> bool:
    """Whether this is a tensor of torch, which is not imported for the question."""
    return hasattr(data, "detach") and hasattr(data, "cpu")


def _parted(batch: Any) -> tuple[Any, Any]:
    """Inputs and labels of a batch."""
    if isinstance(batch, Mapping):
        label = next((key for key in _LABEL_KEYS if key in batch), None)
        return {k: v for k, v in batch.items() if k != label}, None if label is None else batch[label]
    if isinstance(batch, tuple | list):
        if not 1 <= len(batch) <= 2:
            raise InputError(f"a batch must be inputs, or inputs and labels; got {len(batch)} parts.")
        return batch[0], batch[1] if len(batch) == 2 else None
    return batch, None


def _unwrapped(data: Any) -> Any:
    """Tables, sparse matrices and lists of rows as arrays; a list of anything else stays."""
    for way in ("to_numpy", "toarray"):
        if hasattr(data, way):
            return getattr(data, way)()
    if not isinstance(data, list):
        return data
    if all(isinstance(one, str) for one in data):
        return np.array(data, dtype=object)  # else each would take the room of the longest
    try:
        array = np.array(data)
    except (TypeError, ValueError):  # rows of several lengths
        return data
    return array if array.dtype.kind in "biuf" else data


def _whole(inputs: list[Any]) -> NDArray[Any] | None:
    """One array of all inputs, if they are arrays of one shape."""
    if not all(_is_array(x) and x.ndim for x in inputs):
        return None
    if len({tuple(x.shape[1:]) for x in inputs}) > 1:
        return None
    return np.concatenate([as_array(x) for x in inputs])


def as_array(values: Any) -> NDArray[Any]:
    """An array or tensor as an array."""
    if is_tensor(values):
        values = values.detach().cpu()
        return (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy()
    return np.asarray(values)
