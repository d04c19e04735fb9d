"""Outputs of a model as the columns of a table.

| column | meaning |
| --- | --- |
| `prob_NAME` | probability of the class called NAME; a column for each class, in any order |
| `logit_NAME` | the same as logits |
| `probability` or `logit` | of class 1, for two classes; `prob_NAME` alone is that of the class called NAME |
| `label` | true class by its name; also under the other names of `projnorm.outputs.dataframes.LABEL_NAMES` |
| `prediction` | predicted class by its name, where it is not the most probable one |
| `feature_NAME` | a feature: an input of the model's last layer |

Other columns are not looked at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from projnorm.core.errors import InputError
from projnorm.outputs.dataframes import LABEL_NAMES, as_text, is_missing

# Beginnings of the columns of classes, the column of a binary model, and the array that they become.
_KINDS = (("prob_", "probability", "probabilities"), ("logit_", "logit", "logits"))
_FEATURE, _PREDICTION = "feature_", "prediction"
# Columns of a file of samples to label, whose `probability` is that of drawing a sample.
_LABEL_FILE = {"sample", "stratum", "probability"}


def arrays_of_table(table: Any, name: str, *, label_column: str = "") -> dict[str, NDArray[Any]]:
    """The arrays, as a file of outputs names them, in a DataFrame; `label_column` is as in `labels_in`."""
    columns = [str(column) for column in table.columns]
    if set(columns) >= _LABEL_FILE:
        raise InputError(f"{name}: is a file of samples to label, not of outputs; pass it as `labelled`.")
    kinds = [
        (array, own)
        for prefix, single, array in _KINDS
        if (own := [column for column in columns if column.startswith(prefix)] or [c for c in columns if c == single])
    ]
    if len(kinds) != 1:
        shown = ", ".join(columns[:8]) + (", ..." if len(columns) > 8 else "")
        raise InputError(
            f"{name}: needs a column prob_NAME or logit_NAME for each class, or one column `probability` or `logit` of "
            f"class 1; it has {shown}."
        )
    (array, own), arrays = kinds[0], {}
    prefix = next(prefix for prefix, _, kind in _KINDS if kind == array)
    names = sorted((column.removeprefix(prefix) for column in own), key=_order)
    labels = labels_in(table, name, label_column)
    values = {"labels": labels, "predictions": table[_PREDICTION].to_numpy() if _PREDICTION in columns else None}
    arrays = {key: value for key, value in values.items() if value is not None}
    if own[0].startswith(prefix):
        if len(names) == 1:
            names = [_other_class(arrays, names[0], name), names[0]]
        own = [f"{prefix}{class_name}" for class_name in names if f"{prefix}{class_name}" in columns]
        arrays["classes"] = np.array(names)
    arrays[array] = _matrix(table, own, name)
    if features := [column for column in columns if column.startswith(_FEATURE)]:
        arrays["features"] = _matrix(table, features, name)
    return arrays


def label_column_of(table: Any, label_column: str = "") -> str:
    """The column of the labels: that of the given name, or the first of a usual one; empty where there is none."""
    return next((column for column in ([label_column] if label_column else LABEL_NAMES) if column in table.columns), "")


def labels_in(table: Any, name: str, label_column: str = "") -> NDArray[Any] | None:
    """The labels in a table; None where no sample has one.

    Args:
        table: A DataFrame.
        name: Name of the set in messages.
        label_column: Column of the labels; by default the first of `projnorm.outputs.dataframes.LABEL_NAMES` in the
            table.
    """
    column = label_column_of(table, label_column)
    if not column:
        return None
    labels = table[column].to_numpy()
    missing = np.array([is_missing(label) for label in labels.tolist()])
    if missing.all():
        return None
    if missing.any():
        rows = np.flatnonzero(missing)
        raise InputError(
            f"{name}: `{column}` must have a label in every row, or in none; {len(rows):,} rows have none, the first "
            f"is row {rows[0]:,}."
        )
    return labels


def _matrix(table: Any, columns: list[str], name: str) -> NDArray[Any]:
    values = {column: table[column].to_numpy() for column in columns}
    for column, numbers in values.items():
        if numbers.dtype.kind not in "fiub":
            raise InputError(f"{name}: the column `{column}` must be numbers; got {numbers.dtype}.")
    return np.stack(list(values.values()), axis=1).astype(np.float64)


def _other_class(arrays: dict[str, NDArray[Any]], named: str, name: str) -> str:
    """The class of two that has no column."""
    others = sorted({as_text(value) for values in arrays.values() for value in values.tolist()} - {named})
    if len(others) > 1:
        raise InputError(
            f"{name}: has a column for the class {named!r} alone, and the classes {', '.join(others[:3])} besides; add "
            "a column for each class."
        )
    return others[0] if others else f"not {named}"


def _order(name: str) -> tuple[int, float, str]:
    """Numbers in their order, then names in theirs, so that the order of the columns in a file does not matter."""
    try:
        return (0, float(name), name)
    except ValueError:
        return (1, 0.0, name)
