"""A table over time, cut into batches: by the calendar, or by a number of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from projnorm.core.errors import InputError
from projnorm.core.lazy import load

# Codes that pandas has for the lengths of periods, and the form of their names.
PERIODS = {"hour": "h", "day": "D", "week": "W", "month": "M", "quarter": "Q", "year": "Y"}
TIME_NAMES = ("time", "timestamp", "datetime", "date")
# Digits of a number of rows.
_MOST_DIGITS = 12
_DAY_FORM, _HOUR_FORM = "%Y-%m-%d", "%Y-%m-%d %H:00"


@dataclass(frozen=True, slots=True, eq=False)
class Period:
    """The rows of one batch.

    Attributes:
        name: Name of the batch: when it begins, or its rows.
        time: When it begins, as text that sorts; empty where rows have no time.
        rows: The rows, a DataFrame without the column of times.
        is_over: Whether later rows are there, so that no further ones are expected.
    """

    name: str
    time: str
    rows: Any
    is_over: bool


def periods_of(table: Any, every: str, *, time_column: str = "", name: str = "table") -> Iterator[Period]:
    """The batches of a DataFrame of pandas, in order.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"date": ["2026-03-30", "2026-03-31", "2026-04-01"], "x": [1, 2, 3]})
    >>> [(period.name, len(period.rows), period.is_over) for period in periods_of(table, "month")]
    [('2026-03-01', 2, True), ('2026-04-01', 1, False)]

    Args:
        table: The table.
        every: "hour", "day", "week", "month", "quarter" or "year"; or a number of rows.
        time_column: Column of the times; by default the first of `TIME_NAMES`. A number of rows needs none.
        name: Name of the table in messages.

    Raises:
        InputError: If the column is not there or does not hold times.
    """
    is_count = every.isascii() and every.isdecimal() and len(every) <= _MOST_DIGITS
    count = int(every) if is_count else 0
    if not count and every not in PERIODS:
        raise InputError(f"`every` must be {', '.join(PERIODS)} or a number of rows, 1 or more; got {every!r}.")
    column = time_column or next((usual for usual in TIME_NAMES if usual in table.columns), "")
    if column not in table.columns and (column or not count):
        raise InputError(f"{name}: has no column {column or TIME_NAMES[0]!r}; name that of the times as `time_column`.")
    if not column:
        for start in range(0, len(table), count):
            rows = table.iloc[start : start + count]
            yield Period(f"{name} rows {start}-{start + len(rows) - 1}", "", rows, len(rows) == count)
        return
    times = _times(table[column], column, name)
    order = np.argsort(times.to_numpy(), kind="stable")
    table, times = table.drop(columns=column).iloc[order], times.iloc[order]
    if count:
        for start in range(0, len(table), count):
            rows = table.iloc[start : start + count]
            time = str(times.iloc[start])
            name = f"{time}, rows {start}-{start + len(rows) - 1}"
            yield Period(name, time, rows, len(rows) == count)
        return
    starts = times.dt.to_period(PERIODS[every]).dt.start_time
    numbers = starts.to_numpy()
    cuts = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
    for first, last in zip([0, *cuts], [*cuts, len(table)], strict=True):
        begun = starts.iloc[first].strftime(_HOUR_FORM if every == "hour" else _DAY_FORM)
        yield Period(begun, begun, table.iloc[first:last], bool(last < len(table)))


def _times(column: Any, column_name: str, name: str) -> Any:
    pandas = load("pandas")
    if getattr(column.dtype, "kind", "O") in "iufb":
        raise InputError(f"{name}: the column {column_name!r} must hold dates or times as text; it holds numbers.")
    try:
        times = pandas.to_datetime(column, utc=True).dt.tz_localize(None)
    except (ValueError, TypeError, OverflowError):
        raise InputError(f"{name}: the column {column_name!r} must hold dates or times.") from None
    if times.isna().any():
        raise InputError(f"{name}: {int(times.isna().sum()):,} rows have no time in the column {column_name!r}.")
    return times
