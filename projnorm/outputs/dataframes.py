"""DataFrames of pandas or polars, neither of which is imported for the question."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Names under which labels are found in a mapping or a table.
LABEL_NAMES = ("labels", "label", "label_ids", "y", "targets", "target")


def is_table(data: Any) -> bool:
    """Whether this is a DataFrame: of pandas or its like, which have `iloc`, or of polars."""
    if not hasattr(data, "iloc") and not hasattr(data, "with_columns"):
        return False
    return len(getattr(data, "shape", ())) == 2


def take_rows(data: Any, indices: NDArray[np.integer] | slice) -> Any:
    """Rows of an array or a DataFrame by their numbers."""
    return data.iloc[indices] if hasattr(data, "iloc") else data[indices]


def as_text(value: object) -> str:
    """A category or a label as text; 1 and 1.0 are one."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def is_missing(value: Any) -> bool:
    """Whether this stands for an entry that is not there: None, nan, and the like of pandas."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    return type(value).__name__ in ("NAType", "NaTType")
