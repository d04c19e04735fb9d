"""The leaderboard of a benchmark: how far each row is from the truth, in the mean and at worst, and what it says of it.

Every mean is over cases of the mean over a case's targets, so that a case with many targets counts no more than one
with few. A row that was not run on every case is to be compared with the default on the cases it was run on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.shifts.evaluate import OUTPUTS_ONLY
from benchmarks.shifts.suites import OUTPUTS
from projnorm.core.records import Record
from projnorm.core.statistics import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A row of the leaderboard; numbers are nan where there is nothing to compute them from.

    Attributes:
        row: Name of the row.
        cases: Number of cases it was run on.
        targets: Number of targets it was run on.
        mae: Mean over cases of the mean absolute error.
        default_mae: The same of the default with outputs only, on the same targets.
        worst_mae: Largest mean absolute error of a case.
        worst_case: That case.
        worst_miss: Largest absolute error on a target.
        coverage: Mean over cases of the share of targets whose interval holds the true error.
        width: Median width of the intervals.
        misses: Number of targets whose interval does not hold the true error.
        warned_misses: Share of these that carry a warning.
        warned_hits: Share of the other targets that carry a warning.
        seconds: Mean over cases of the seconds per target.
    """

    row: str
    cases: int
    targets: int
    mae: float
    default_mae: float
    worst_mae: float
    worst_case: str
    worst_miss: float
    coverage: float
    width: float
    misses: int
    warned_misses: float
    warned_hits: float
    seconds: float

    @property
    def relative(self) -> float:
        """Its mean absolute error over that of the default with outputs only, on the same targets."""
        return self.mae / self.default_mae if self.default_mae > 0.0 else self.mae


def standings(
    record: Record, *, table: str = OUTPUTS, kind: str = "", suite: str = "", case: str = ""
) -> list[Standing]:
    """The rows of one table of the leaderboard, the smallest error relative to the default's first.

    Args:
        record: Record of a benchmark.
        table: "outputs", "confidences" or "predicted classes": what is known of the models.
        kind: Kind of shift; all by default.
        suite: Name of a suite; all by default.
        case: Name of a case; all by default.
    """
    chosen = record.arrays["tables"] == table
    for key, name in (("kinds", kind), ("suites", suite), ("cases", case)):
        if name:
            chosen = chosen & (record.arrays[key] == name)
    rows = record.arrays["rows"].tolist()
    by_row = (_standing(record, chosen, number, row) for number, row in enumerate(rows))
    known = [standing for standing in by_row if standing is not None]
    return sorted(known, key=lambda standing: (standing.relative, standing.mae))


def by_case(values: Floats, cases: NDArray[Any]) -> dict[str, float]:
    """The mean of each case, over the targets on which the value is known."""
    known = np.isfinite(values)
    return {str(case): float(values[known & (cases == case)].mean()) for case in np.unique(cases[known])}


def _standing(record: Record, chosen: NDArray[np.bool_], number: int, row: str) -> Standing | None:
    arrays = record.arrays
    chosen = chosen & np.isfinite(arrays["estimates"][:, number])
    if not chosen.any():
        return None
    truth, cases = arrays["truth"][chosen], arrays["cases"][chosen]
    missed = np.abs(arrays["estimates"][chosen, number] - truth)
    default = arrays["rows"].tolist().index(OUTPUTS_ONLY)
    maes = by_case(missed, cases)
    worst = max(maes, key=lambda case: maes[case])
    low, high = arrays["low"][chosen, number], arrays["high"][chosen, number]
    has_interval = np.isfinite(low)
    hit = np.where(has_interval, (low <= truth) & (truth <= high), np.nan)
    warned = arrays["warned"][chosen, number]
    times = [record.facts["seconds_per_target"].get(case, {}).get(row, np.nan) for case in maes]
    return Standing(
        row=row,
        cases=len(maes),
        targets=int(chosen.sum()),
        mae=_mean(list(maes.values())),
        default_mae=_mean(list(by_case(np.abs(arrays["estimates"][chosen, default] - truth), cases).values())),
        worst_mae=maes[worst],
        worst_case=worst,
        worst_miss=float(missed.max()),
        coverage=_mean(list(by_case(hit, cases).values())),
        width=float(np.median((high - low)[has_interval])) if has_interval.any() else np.nan,
        misses=int(np.sum(hit == 0.0)),
        warned_misses=_mean(warned[hit == 0.0]),
        warned_hits=_mean(warned[hit == 1.0]),
        seconds=_mean(times),
    )


def _mean(values: Any) -> float:
    """The mean of what is finite; nan where nothing is."""
    values = np.asarray(values, dtype=np.float64)
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else float("nan")
