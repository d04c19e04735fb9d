"""Samples from files that a user names, and what prepares a batch of them for a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from projnorm.core.arrays import read_arrays
from projnorm.core.errors import InputError
from projnorm.core.files import locate
from projnorm.data.image_folders import read_class_folders
from projnorm.data.images import ImageNetInput, unit_images
from projnorm.data.tables import is_table_file, read_table
from projnorm.models.preparation import Prepare
from projnorm.outputs.output_tables import label_column_of, labels_in

_INPUTS = ("images", "inputs")


def read_samples(path: Path, *, label_column: str = "") -> Any:
    """Inputs, with labels if they are there.

    Args:
        path: An ``.npz`` with `images` or `inputs`; an ``.npy``; class folders; or a table, ``.csv``, ``.csv.gz`` or
            ``.parquet``, which a model sees as a DataFrame without the column of the labels.
        label_column: Column of a table that has the labels; by default the first of the usual names.
    """
    path = locate(path)
    if path.is_dir():
        return read_class_folders(path)
    if is_table_file(path):
        table = read_table(path)
        labels, column = labels_in(table, str(path), label_column), label_column_of(table, label_column)
        inputs = table.drop(columns=column) if column else table
        return inputs if labels is None else (inputs, labels)
    arrays = read_arrays(path, name=_INPUTS[-1])
    key = next((key for key in _INPUTS if key in arrays), None)
    if key is None:
        raise InputError(
            f"{path}: a model needs an array `images` or `inputs`; it has {', '.join(sorted(arrays)) or 'none'}."
        )
    inputs = _checked_inputs(arrays[key], path)
    if "labels" not in arrays:
        return inputs
    labels = arrays["labels"]
    if labels.ndim > 1 and labels.shape[1:] != (1,):
        remedy = "; if they are one-hot, save labels.argmax(axis=1)"
        raise InputError(f"{path}: `labels` must hold one per sample; got shape {labels.shape}{remedy}.")
    if labels.size != len(inputs):
        raise InputError(f"{path}: has {len(inputs):,} samples and {labels.size:,} labels.")
    return inputs, labels.reshape(-1)


def preparation(name: str, size: int, built: Prepare | None) -> Prepare:
    """The function of this name that is applied to a batch before the network; `built` is the model's own."""
    known: dict[str, Prepare] = {
        "auto": built or unit_images,
        "unit": unit_images,
        "imagenet": ImageNetInput(size),
        "none": lambda x: x,
    }
    if name not in known:
        raise InputError(f"`preprocess` must be auto, unit, imagenet or none; got {name!r}.")
    return known[name]


def _checked_inputs(inputs: NDArray[Any], path: Path) -> NDArray[Any]:
    if inputs.ndim < 2 or not inputs.size or inputs.dtype.kind not in "fiub":
        raise InputError(
            f"{path}: inputs must be numbers, one sample per row; got {inputs.dtype} of shape {inputs.shape}."
        )
    if inputs.dtype.kind == "f" and np.isinf(inputs).any():
        raise InputError(f"{path}: inputs must not be infinite.")
    return inputs
