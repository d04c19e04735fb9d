"""The main table: how well each method predicts the error of a network, and the scores behind it."""

from __future__ import annotations

import numpy as np

from deep.calibration import Interval, Quality, qualities
from deep.ensemble import STACKED
from deep.ledger import Scores
from figures.table import Table

CAPTION = (
    "R^2 and Spearman's rho between score and true error over the targets; MAE in percentage points of the error that "
    "a straight line from score to error predicts on a family of shifts left out of its fit. In brackets 95 % "
    "intervals from 2,000 bootstrap draws of whole families. A method called tuned was chosen on the clean set and the "
    "probe families, which are among these targets."
)


def build(scores: Scores, *, first: str = "method") -> Table:
    """One row per method, or whatever the `first` column holds."""
    found = qualities(scores, predicting=(STACKED,))
    rows = [(q.method, cell(q.r_squared, 3), cell(q.spearman, 3), cell(q.mae, 1, 100.0)) for q in found]
    return Table((first, "R^2", "rho", "MAE"), rows)


def values(found: list[Quality], *, first: str = "method") -> list[dict[str, object]]:
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
        for q in found
    ]


def targets(scores: Scores) -> Table:
    """One row per target: its true error and every score."""
    rows = [
        (name, origin, f"{100 * error:.1f} %", *(f"{value:.4g}" for value in line))
        for name, origin, error, line in zip(scores.targets, scores.origins, scores.errors, scores.values, strict=True)
    ]
    return Table(("target", "origin", "error", *scores.methods), rows)


def not_rising(scores: Scores) -> dict[str, list[float]]:
    """Families whose true error falls somewhere as the severity grows, with their errors by severity."""
    found = {}
    for family in dict.fromkeys(scores.families.tolist()):
        members = np.flatnonzero(scores.families == family)
        errors = scores.errors[members[np.argsort(scores.severities[members])]]
        if len(set(scores.severities[members].tolist())) > 1 and np.any(np.diff(errors) < 0):
            found[family] = errors.tolist()
    return found


def cell(interval: Interval, digits: int, scale: float = 1.0) -> str:
    """A number with its interval in brackets, where it has one."""
    value, low, high = (f"{scale * number:.{digits}f}" for number in (interval.value, interval.low, interval.high))
    return value if np.isnan(interval.low) else f"{value} [{low}, {high}]"
