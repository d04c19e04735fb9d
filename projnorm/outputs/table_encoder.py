"""Tables of numbers, times and categories as matrices of numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray

from projnorm.core.errors import InputError
from projnorm.outputs.dataframes import as_text, is_missing, is_table


@dataclass(frozen=True, slots=True, eq=False)
class TableEncoder:
    """Tables as matrices of numbers that mean the same in every set; missing entries are nan.

    Numbers, truth values and times stay what they are, times in seconds. Any other column is categories: each that the
    fitted table has is numbered in alphabetical order, and all others have the number after the last.

    >>> import pandas as pd
    >>> encoder = TableEncoder.fit(pd.DataFrame({"age": [31, 54], "city": ["Oslo", "Bergen"]}))
    >>> encoder.transform(pd.DataFrame({"city": ["Oslo", "Rome"], "age": [20, 40]}))
    array([[20.,  1.], [40.,  2.]])

    Attributes:
        columns: Names of the columns; their numbers for an array.
        categories: For each column the number of each category; None for a column of numbers.
    """

    columns: tuple[Any, ...]
    categories: tuple[dict[str, int] | None, ...]

    @classmethod
    def fit(cls, inputs: Any) -> TableEncoder | None:
        """Learn the categories of a DataFrame or a matrix; None for inputs of another kind."""
        if not is_table(inputs) and not (isinstance(inputs, np.ndarray) and inputs.ndim == 2):
            return None
        columns = tuple(_columns_of(inputs))
        return cls(columns, tuple(_categories(_column(inputs, name)) for name in columns))

    def transform(self, inputs: Any) -> NDArray[np.float64]:
        """A row of numbers for each row of a table with the columns of the fitted one, in any order.

        Raises:
            InputError: If a column is missing, or holds text where the fitted table has numbers.
        """
        has = _columns_of(inputs)
        for name in self.columns:
            if name not in has:
                raise InputError(f"the inputs must have the columns of the source; {name!r} is missing.")
        rows = np.empty((len(inputs), len(self.columns)))
        for number, (name, known) in enumerate(zip(self.columns, self.categories, strict=True)):
            column = _column(inputs, name)
            if known is None:
                values = _numbers(column)
                if values is None:
                    raise InputError(f"the column {name!r} must be numbers, as in the source; got {column.dtype}.")
                rows[:, number] = values
            else:
                rows[:, number] = [
                    math.nan if is_missing(value) else known.get(as_text(value), len(known))
                    for value in column.tolist()
                ]
        return rows


def _columns_of(inputs: Any) -> list[Any]:
    return list(inputs.columns) if is_table(inputs) else list(range(inputs.shape[1]))


def _column(inputs: Any, name: Any) -> NDArray[Any]:
    return inputs[name].to_numpy() if is_table(inputs) else inputs[:, name]


def _categories(column: NDArray[Any]) -> dict[str, int] | None:
    if _numbers(column) is not None:
        return None
    names = sorted({as_text(value) for value in column.tolist() if not is_missing(value)})
    return {name: number for number, name in enumerate(names)}


def _numbers(column: NDArray[Any]) -> NDArray[np.float64] | None:
    """A column of numbers, truth values or times, in seconds; None for any other."""
    if column.dtype.kind in "biuf":
        return column.astype(np.float64)
    if column.dtype.kind in "mM":
        seconds = column.astype(f"{column.dtype.kind}8[ns]").astype(np.int64) / 1e9
        return np.where(np.isnat(column), math.nan, seconds)
    if column.dtype.kind != "O":
        return None
    values = [math.nan if is_missing(value) else _number(value) for value in column.tolist()]
    return None if any(value is None for value in values) else np.array(values, dtype=np.float64)


def _number(value: Any) -> float | None:
    """A number or a time as a number; None for anything else."""
    if isinstance(value, Number) and not isinstance(value, complex):
        return float(value)  # type: ignore[arg-type] # a Decimal or a Fraction too
    for seconds in ("timestamp", "total_seconds"):
        if hasattr(value, seconds):
            return float(getattr(value, seconds)())
    return float(value.toordinal()) * 86_400.0 if hasattr(value, "toordinal") else None
