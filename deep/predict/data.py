"""Samples in whatever form they come: arrays, tensors, datasets, loaders, mappings of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader

from deep.outputs import BATCH
from projnorm.vision import ImageSet

_LABEL_KEYS = ("labels", "label")


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """Samples as they were given.

    Attributes:
        batches: What a model takes, batch by batch: tensors, or mappings of them.
        labels: In whatever names they have; None without.
        array: All inputs as one array, one sample per row; None where they are none.
    """

    batches: tuple[Any, ...]
    labels: NDArray[Any] | None
    array: NDArray[Any] | None


def given(data: Any, name: str) -> Given:
    """Read samples once.

    Args:
        data: An array or tensor; a pair of inputs and labels; a mapping of arrays, such as a tokenizer gives, perhaps
            with `labels`; an `ImageSet`; a torch `Dataset` or `DataLoader` of any of these.
        name: For what is said if they are none.

    Raises:
        ValueError: If there is no sample, or they are in no such form.
    """
    inputs, labels = [], []
    for batch in _batches(data, name):
        x, y = _parted(batch)
        inputs.append(x)
        labels.append(y)
    if not inputs:
        raise ValueError(f"{name}: holds no sample.")
    if any((y is None) != (labels[0] is None) for y in labels):
        raise ValueError(f"{name}: some samples have labels and some have none.")
    known = None if labels[0] is None else np.concatenate([np.atleast_1d(_array(y)) for y in labels])
    return Given(tuple(inputs), known, _whole(inputs))


def _batches(data: Any, name: str) -> Iterator[Any]:
    if isinstance(data, ImageSet):
        data = (data.images, data.labels)
    data = tuple(map(_unwrapped, data)) if isinstance(data, tuple | list) else _unwrapped(data)
    if isinstance(data, DataLoader):
        yield from data
    elif isinstance(data, np.ndarray | Tensor):
        yield from (data[start : start + BATCH] for start in range(0, len(data), BATCH))
    elif _is_pair(data):
        count = len(data[0])
        if len(data[1]) != count:
            raise ValueError(f"{name}: has {count:,} samples and {len(data[1]):,} labels.")
        yield from (tuple(part[start : start + BATCH] for part in data) for start in range(0, count, BATCH))
    elif isinstance(data, Mapping):
        count = len(next(iter(data.values()), ()))
        yield from ({k: v[start : start + BATCH] for k, v in data.items()} for start in range(0, count, BATCH))
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, str | list | tuple):
        yield from DataLoader(data, batch_size=BATCH)
    else:
        raise ValueError(
            f"{name}: must be an array, a pair of inputs and labels, a Dataset or a DataLoader; got "
            f"{type(data).__name__}."
        )


def _is_pair(data: Any) -> bool:
    return isinstance(data, tuple | list) and len(data) == 2 and all(hasattr(part, "__getitem__") for part in data)


def _parted(batch: Any) -> tuple[Any, Any]:
    """Inputs and labels of a batch."""
    if isinstance(batch, Mapping):
        label = next((key for key in _LABEL_KEYS if key in batch), None)
        return {k: v for k, v in batch.items() if k != label}, None if label is None else batch[label]
    if isinstance(batch, tuple | list):
        if not 1 <= len(batch) <= 2:
            raise ValueError(f"a batch must be inputs, or inputs and labels; got {len(batch)} parts.")
        return batch[0], batch[1] if len(batch) == 2 else None
    return batch, None


def _unwrapped(data: Any) -> Any:
    """Tables and sparse matrices as arrays."""
    for way in ("to_numpy", "toarray"):
        if hasattr(data, way):
            return getattr(data, way)()
    return data


def _whole(inputs: list[Any]) -> NDArray[Any] | None:
    """One array of all inputs, if they are arrays of one shape."""
    if not all(isinstance(x, np.ndarray | Tensor) and x.ndim for x in inputs):
        return None
    if len({tuple(x.shape[1:]) for x in inputs}) > 1:
        return None
    return np.concatenate([_array(x) for x in inputs])


def _array(values: Any) -> NDArray[Any]:
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        return (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    return np.asarray(values)


def as_tensors(batch: Any, device: torch.device) -> Any:
    """A batch on a device: tensors, or a mapping of them."""
    if isinstance(batch, Mapping):
        return {key: as_tensors(value, device) for key, value in batch.items()}
    return (batch if isinstance(batch, Tensor) else torch.from_numpy(np.asarray(batch))).to(device)
