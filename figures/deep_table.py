"""The main table: how well each method predicts the error of a network, and the scores behind it."""

from __future__ import annotations

from collections.abc import Sequence

from deep.calibration import Interval, Quality, qualities
from deep.ensemble import STACKED
from deep.scores import Scores
from figures.table import Number, Table

CAPTION = (
    "R^2 and Spearman's rho between score and true error over the targets; MAE in percentage points of the error that "
    "a straight line from score to error predicts on a family of shifts left out of its fit. In brackets 95 % "
    "intervals from 2,000 bootstrap draws of whole families. A method called tuned was chosen on the clean set and the "
    "probe families, which are among these targets."
)
# Ensembles of more methods than this are not spelt out.
_NAMED = 3


def build(scores: Scores, *, first: str = "method") -> Table:
    """One row per method, or whatever the `first` column holds."""
    return of_qualities(qualities(scores, predicting=(STACKED,)), first=first)


def of_qualities(by_method: Sequence[Quality], *, first: str = "method") -> Table:
    """One row per method, from qualities that are known already."""
    rows = [(_short(q.method), cell(q.r_squared, 3), cell(q.spearman, 3), cell(q.mae, 1, 100.0)) for q in by_method]
    return Table((first, "R^2", "rho", "MAE (points)"), rows)


def values(by_method: Sequence[Quality], *, first: str = "method") -> list[dict[str, object]]:
    """The same as plain numbers."""
    return [
        {
            first: q.method,
            "targets": q.targets,
            **{
                key: [interval.value, interval.low, interval.high]
                for key, interval in (("r_squared", q.r_squared), ("spearman", q.spearman), ("mae", q.mae))
            },
        }
        for q in by_method
    ]


def targets(scores: Scores) -> Table:
    """One row per target: its true error and every score."""
    rows = [
        (name, origin, Number(100 * error, ".1f"), *(Number(value, ".4g") for value in line))
        for name, origin, error, line in zip(
            scores.targets.tolist(),
            scores.origins.tolist(),
            scores.errors.tolist(),
            scores.values.tolist(),
            strict=True,
        )
    ]
    return Table(("target", "origin", "error (%)", *scores.methods), rows)


def _short(method: str) -> str:
    """The name of a method; of an ensemble of many, how many they are."""
    count = method.count(" + ") + 1
    return method if count <= _NAMED else f"mean of {count} methods"


def cell(interval: Interval, digits: int, scale: float = 1.0) -> Number:
    """A number with its interval in brackets, where it has one."""
    return Number.interval(scale * interval.value, scale * interval.low, scale * interval.high, f".{digits}f")
