"""The main table: how well each method predicts the error of a network, and the scores behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, replace
from operator import attrgetter

from deep.comparison.score_quality import Quality
from deep.comparison.scores import Scores
from figures.table import Column, Number, Table, number

_CAPTION = (
    "R^2 and Spearman's rank correlation r_s between score and true error over the targets; MAE in percentage points "
    "of the error that a straight line from score to error predicts on a family of shifts left out of its fit. In "
    "brackets 95 % intervals from 2,000 bootstrap draws of whole families."
)
_TUNED = " A method called tuned was chosen on the clean set and the probe families, which are among these targets."
# Ensembles of more methods than this are not spelt out.
_NAMED = 3


def of_qualities(by_method: Sequence[Quality], *, first: str = "method") -> Table:
    """One row per method, or whatever the `first` column holds."""
    columns: dict[str, Column] = {
        first: attrgetter("method"),
        "R^2": number("r_squared"),
        "r_s": number("spearman"),
        "MAE (points)": number("mae", ".1f", 100),
    }
    return Table.from_rows([replace(quality, method=_short(quality.method)) for quality in by_method], columns)


def caption(by_method: Sequence[Quality]) -> str:
    """What the numbers of `of_qualities` are."""
    return _CAPTION + (_TUNED if any("(tuned)" in _short(quality.method) for quality in by_method) else "")


def values(by_method: Sequence[Quality], *, first: str = "method") -> list[dict[str, object]]:
    """The same as plain numbers."""
    parts = ("r_squared", "spearman", "mae")
    return [
        {first: quality.method, "targets": quality.targets}
        | {part: list(astuple(getattr(quality, part))) for part in parts}
        for quality in by_method
    ]


def targets(scores: Scores) -> Table:
    """One row per target: its true error and every score."""
    columns = (scores.targets, scores.origins, scores.errors, scores.values)
    rows = [
        (name, origin, Number(100 * error, ".1f"), *(Number(value, ".4g") for value in line))
        for name, origin, error, line in zip(*(column.tolist() for column in columns), strict=True)
    ]
    return Table(("target", "origin", "error (%)", *scores.methods), rows)


def _short(method: str) -> str:
    """The name of a method; of an ensemble of many, how many they are."""
    count = method.count(" + ") + 1
    return method if count <= _NAMED else f"mean of {count} methods"
