"""Samples in any form: arrays, DataFrames, tensors, datasets, mappings; torch is imported only if they use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from projnorm.core.errors import InputError
from projnorm.data.samples import SampleSet
from projnorm.outputs.dataframes import LABEL_NAMES, is_table, take_rows
from projnorm.outputs.outputs import BATCH

# A function from a list of samples to a batch, such as `transformers.DataCollatorWithPadding`.
Collate = Callable[[list[Any]], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Batches:
    """Samples, batch by batch.

    Attributes:
        batches: Inputs of a model: arrays, tensors, DataFrames, or mappings of arrays or tensors.
        labels: Labels, numbers or names; None where there are none.
        whole: All inputs, one sample per row, where they form one array or came as a DataFrame; else None.
        name: Name of the set in messages.
    """

    batches: tuple[Any, ...]
    labels: NDArray[Any] | None
    whole: Any
    name: str


def as_batches(data: Any, name: str, *, collate: Collate | None = None) -> Batches:
    """Read samples once.

    Args:
        data: An array or tensor, or a list of rows; a DataFrame, which a model sees as it is; a mapping of arrays, such
            as a tokenizer gives; a pair of one of these and labels, which is a tuple; a `SampleSet`; a list of
            mappings; a torch `Dataset` or `DataLoader` of any of these. Mappings may have labels themselves, under one
            of the `projnorm.outputs.dataframes.LABEL_NAMES`.
        name: Name of the set in messages.
        collate: Function from a list of samples to a batch, for a `Dataset`, or a list of mappings, whose samples have
            several lengths.
    """
    inputs, labels = [], []
    for batch in _batches(data, name, collate):
        x, y = _parted(batch)
        inputs.append(x)
        labels.append(y)
    if not inputs:
        raise InputError(f"{name}: holds no sample.")
    if any((y is None) != (labels[0] is None) for y in labels):
        raise InputError(f"{name}: some samples have labels and some have none.")
    known = None if labels[0] is None else np.concatenate([np.atleast_1d(as_array(y)) for y in labels])
    table = data[0] if isinstance(data, tuple) else data
    return Batches(tuple(inputs), known, table if is_table(table) else _whole(inputs), name)


def _batches(data: Any, name: str, collate: Collate | None) -> Iterator[Any]:
    if isinstance(data, SampleSet):
        data = data.inputs if data.known_labels is None else (data.inputs, data.known_labels)
    if isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], Mapping):
        data = {**data[0], LABEL_NAMES[0]: data[1]}
    if isinstance(data, Mapping):
        data = _plain(data)
    data = tuple(map(_unwrapped, data)) if isinstance(data, tuple) else _unwrapped(data)
    if any(kind.__name__ == "DataLoader" for kind in type(data).__mro__):
        yield from data
    elif _is_sliced(data):
        yield from (take_rows(data, part) for part in _parts(len(data)))
    elif isinstance(data, tuple) and len(data) == 2 and all(hasattr(part, "__len__") for part in data):
        count = len(data[0])
        if len(getattr(data[1], "shape", ())) > 1 and data[1].shape[1:] == getattr(data[0], "shape", ())[1:] != (1,):
            raise InputError(f"{name}: a tuple is a pair of inputs and labels; several sets are a list or a mapping.")
        if len(data[1]) != count:
            raise InputError(f"{name}: has {count:,} samples and {len(data[1]):,} labels.")
        yield from (tuple(take_rows(rows, part) for rows in data) for part in _parts(count))
    elif isinstance(data, Mapping):
        yield from _of_mapping(data, name)
    elif isinstance(data, list) and data and all(isinstance(sample, Mapping) for sample in data):
        yield from ((collate or _stacked)(data[part]) for part in _parts(len(data)))
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, str | list | tuple):
        from torch.utils.data import DataLoader

        yield from _collated(DataLoader(data, batch_size=BATCH, collate_fn=collate), name)
    else:
        raise InputError(
            f"{name}: must be an array, a DataFrame, a pair of inputs and labels, a mapping of arrays, a Dataset or a "
            f"DataLoader; got {type(data).__name__}."
        )


def _plain(data: Mapping[str, Any]) -> Any:
    """Inputs, or a pair of inputs and labels, where a mapping has them as a file of arrays does; else the mapping."""
    x, y = _parted(data)
    if len(x) != 1 or next(iter(x)) not in ("inputs", "images"):
        return data
    inputs = next(iter(x.values()))
    return inputs if y is None else (inputs, y)


def _parts(count: int) -> Iterator[slice]:
    return (slice(start, start + BATCH) for start in range(0, count, BATCH))


def _of_mapping(data: Mapping[str, Any], name: str) -> Iterator[Any]:
    """Batches of a mapping of arrays or lists, one entry per sample in each."""
    counts = {key: len(value) for key, value in data.items() if hasattr(value, "__len__")}
    for key, value in data.items():
        if not hasattr(value, "__getitem__") or counts[key] != next(iter(counts.values())):
            shown = f"{counts[key]:,}" if key in counts else type(value).__name__
            first, count = next(iter(counts.items()), ("inputs", 0))
            raise InputError(f"{name}: `{key}` must have {count:,} entries like `{first}`; got {shown}.")
    arrays = {key: _unwrapped(value) for key, value in data.items()}
    for key, value in arrays.items():
        if isinstance(value, list) and any(isinstance(entry, list | np.ndarray) for entry in value):
            raise InputError(
                f"{name}: `{key}` has samples of several lengths; tokenize with padding=True, or pass a list with a "
                "mapping for each sample, and `collate`."
            )
    for part in _parts(next(iter(counts.values()), 0)):
        yield {key: value[part] for key, value in arrays.items()}


def _stacked(samples: list[Mapping[str, Any]]) -> dict[str, Any]:
    """A batch from mappings of one sample each, where no collator is given."""
    stacked = {}
    for key in samples[0]:
        try:
            stacked[key] = np.stack([as_array(sample[key]) for sample in samples])
        except (KeyError, TypeError, ValueError):
            raise InputError(
                f"`{key}` must have one length in all samples; pass `collate`, such as DataCollatorWithPadding."
            ) from None
    return stacked


def _collated(loader: Any, name: str) -> Iterator[Any]:
    try:
        yield from loader
    except (TypeError, ValueError, RuntimeError, KeyError) as error:
        message = " ".join(str(error).split())[:200].rstrip(".")
        raise InputError(
            f"{name}: the samples cannot be put into batches: {message}; pass `collate`, or a DataLoader."
        ) from error


def _is_sliced(data: Any) -> bool:
    """Whether rows are taken from this by slices."""
    return _is_array(data) or is_table(data)


def _is_array(data: Any) -> bool:
    return isinstance(data, np.ndarray) or is_tensor(data)


def is_tensor(data: Any) -> bool:
    """Whether this is a tensor of torch, which is not imported for the question."""
    return hasattr(data, "detach") and hasattr(data, "cpu")


def _parted(batch: Any) -> tuple[Any, Any]:
    """Inputs and labels of a batch."""
    if isinstance(batch, Mapping):
        label = next((key for key in LABEL_NAMES if key in batch), None)
        return {k: v for k, v in batch.items() if k != label}, None if label is None else batch[label]
    if isinstance(batch, tuple | list):
        if not 1 <= len(batch) <= 2:
            raise InputError(f"a batch must be inputs, or inputs and labels; got {len(batch)} parts.")
        return batch[0], batch[1] if len(batch) == 2 else None
    return batch, None


def _unwrapped(data: Any) -> Any:
    """Series, sparse matrices and lists of rows as arrays; DataFrames, and a list of anything else, stay."""
    if is_table(data):
        return data
    for way in ("to_numpy", "toarray"):
        if hasattr(data, way):
            return getattr(data, way)()
    if not isinstance(data, list):
        return data
    if all(isinstance(entry, str) for entry in data):
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
    """An array, a tensor or a DataFrame as an array."""
    if is_tensor(values):
        values = values.detach().cpu()
        return (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy()
    return np.asarray(values)
