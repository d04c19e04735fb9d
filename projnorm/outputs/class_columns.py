"""Labels and predicted classes as columns of the logits, from numbers or names."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from projnorm.core.errors import InputError
from projnorm.outputs.dataframes import as_text


def class_columns(
    entries: NDArray[Any], classes: NDArray[Any] | None, shape: tuple[int, ...], what: str, name: str
) -> NDArray[np.int64]:
    """Labels or predictions, whichever `what` says, as columns of the logits, which have this shape."""
    values, count = np.asarray(entries), shape[1]
    if values.ndim == 2 and values.shape[1] > 1:
        hint = f"look one-hot; pass {what}.argmax(axis=1)" if values.shape == shape else "must hold one per sample"
        raise InputError(f"{name}: `{what}` {hint}; got shape {values.shape}.")
    values = values.reshape(-1)
    if len(values) != shape[0]:
        raise InputError(f"{name}: `{what}` must hold one for each of the {shape[0]:,} samples; got {len(values):,}.")
    if classes is not None:
        return _named_columns(values, classes, count, what, name)
    if values.dtype.kind in "fc" and np.isfinite(values).all() and (values == np.round(values.real)).all():
        values = values.real.astype(np.int64)
    if values.dtype.kind not in "iub":
        shown = ", ".join(map(repr, sorted(set(values.tolist()), key=str)[:3]))
        raise InputError(
            f"{name}: `{what}` must be whole numbers from 0 to {count - 1}, the columns of the outputs; got "
            f"{values.dtype} such as {shown}. Add an array `classes` that names the columns in order."
        )
    columns = values.astype(np.int64)
    if columns.min() < 0 or columns.max() >= count:
        wrong = columns[(columns < 0) | (columns >= count)][0]
        raise InputError(
            f"{name}: `{what}` must be column numbers of the outputs, 0 to {count - 1}; got {wrong}. If they are "
            f"numbered otherwise, add an array `classes` with the label of each column."
        )
    return columns


def column_names(classes: NDArray[Any], count: int, name: str) -> tuple[str, ...]:
    """The name of the class of each column."""
    names = tuple(as_text(entry) for entry in np.asarray(classes).reshape(-1).tolist())
    if len(names) != count or len(set(names)) < count:
        raise InputError(f"{name}: `classes` must name each of the {count} columns once; got {len(names)} names.")
    return names


def _named_columns(values: NDArray[Any], classes: NDArray[Any], count: int, what: str, name: str) -> NDArray[np.int64]:
    """Columns of labels or predictions that are names, or numbers of another kind."""
    names = column_names(classes, count, name)
    number = {entry: column for column, entry in enumerate(names)}
    texts = [as_text(value) for value in values.tolist()]
    if unknown := sorted(set(texts) - set(number)):
        shown = ", ".join(names[:5]) + (", ..." if count > 5 else "")
        raise InputError(f"{name}: `{what}` has {unknown[0]!r}, which is not among `classes` ({shown}).")
    return np.array([number[value] for value in texts], dtype=np.int64)


def require_two_classes(labels: NDArray[Any], name: str) -> None:
    """Refuse labels of more than two classes beside a single column, which is that of class 1 of two."""
    classes = np.unique(np.asarray(labels).astype(str))
    if len(classes) > 2 and np.ndim(labels) < 2:
        raise InputError(
            f"{name}: one column of outputs is that of class 1 of two, and `labels` has {len(classes):,} classes; give "
            "a column for each class, shape (samples, classes)."
        )
