"""How well scores predict errors: a straight line from score to error, judged on families it was not fitted on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deep.scores import Scores
from projnorm.fit_quality import fit_quality

Floats = NDArray[np.float64]
Counts = NDArray[np.integer]
# Quantiles at the ends of a bootstrap interval over families of shifts, its draws, and the fewest families for one.
ENDS, _DRAWS, _FEWEST_FAMILIES = ((1 - 0.95) / 2, (1 + 0.95) / 2), 2000, 3


@dataclass(frozen=True, slots=True)
class Interval:
    """A number with a bootstrap interval at 95 %; nan where there are too few families."""

    value: float
    low: float = math.nan
    high: float = math.nan

    @classmethod
    def over(cls, draws: Counts | None, value: float, measure: Callable[[Counts], Floats]) -> Interval:
        """A number with the interval of its measure over draws from `family_draws`."""
        measured = np.array([]) if draws is None else measure(draws)
        if not np.isfinite(measured).any():
            return cls(value)
        return cls(value, *np.nanquantile(measured, ENDS).tolist())


@dataclass(frozen=True, slots=True)
class Quality:
    """How well one method predicts the error, over all targets.

    Attributes:
        method: Name of the method.
        r_squared: Share of the variance of the error that a straight line in the score explains.
        spearman: Rank correlation of score and error.
        mae: Mean absolute error of the line when the family it is used on was left out of the fit.
        targets: Number of targets.
    """

    method: str
    r_squared: Interval
    spearman: Interval
    mae: Interval
    targets: int


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line from one score to an error."""

    slope: float
    offset: float

    @classmethod
    def fitted(cls, scores: Floats, errors: Floats) -> Line:
        """The least-squares line; nan where there is none."""
        if len(scores) < 2 or not np.ptp(scores) > 0.0:
            return cls(np.nan, np.nan)
        centre = scores.mean()
        slope, offset = np.polyfit(scores - centre, errors, 1)
        return cls(float(slope), float(offset - slope * centre))

    def predict(self, scores: Floats) -> Floats:
        """Predicted errors of scores of any shape."""
        return self.offset + self.slope * scores


class Fitted(Protocol):
    """What was learnt from scores with known errors."""

    def predict(self, scores: Floats) -> Floats:
        """Predicted errors, one for each row of scores."""
        ...


# A function from scores, one row for each set, and errors to what was learnt from them.
Fit = Callable[[Floats, Floats], Fitted]


def left_out_predictions(scores: ArrayLike, errors: ArrayLike, families: ArrayLike, fit: Fit = Line.fitted) -> Floats:
    """Predicted errors, each by what was fitted to the targets of all other families; nan where nothing can be."""
    scores, errors = np.asarray(scores, float), np.asarray(errors, float)
    families = np.asarray(families)
    out = np.full(len(scores), np.nan)
    for family in np.unique(families):
        inside = families == family
        if not inside.all():
            out[inside] = fit(scores[~inside], errors[~inside]).predict(scores[inside])
    return out


def quality(scores: Scores, method: str, *, rng: np.random.Generator, predicts: bool = False) -> Quality:
    """How well one method predicts.

    Targets of one family are alike, so the bootstrap draws whole families, the same for two methods from equal
    generators; for the left-out error it draws the errors made on them. With `predicts`, the scores are predicted
    errors already, each without its own family, and no line is fitted.
    """
    values, errors = scores.values[:, scores.methods.index(method)], scores.errors
    predicted = values if predicts else left_out_predictions(values, errors, scores.families)
    misses = np.abs(predicted - errors)
    mae = float(misses.mean()) if len(misses) else math.nan
    fit, draws = fit_quality(values, errors), family_draws(scores.families, rng)

    def rank_correlations(counts: Counts) -> Floats:
        return correlations(drawn_ranks(values, counts), drawn_ranks(errors, counts), counts)

    return Quality(
        method,
        Interval.over(draws, fit.r_squared, lambda counts: correlations(values, errors, counts) ** 2),
        Interval.over(draws, fit.spearman, rank_correlations),
        Interval.over(draws, mae, lambda counts: (counts @ misses) / counts.sum(axis=1)),
        len(errors),
    )


def qualities(scores: Scores, *, seed: int = 0, predicting: Sequence[str] = ()) -> list[Quality]:
    """Every method, each on the same bootstrap draws; of those `predicting` the scores are predicted errors."""
    return [
        quality(scores, method, rng=np.random.default_rng(seed), predicts=method in predicting)
        for method in scores.methods
    ]


def family_draws(families: ArrayLike, rng: np.random.Generator) -> NDArray[np.int64] | None:
    """How often each target is drawn when whole families are, one row for each draw; None for too few families."""
    names, family_of = np.unique(np.asarray(families), return_inverse=True)
    if len(names) < _FEWEST_FAMILIES:
        return None
    return rng.multinomial(len(names), np.full(len(names), 1.0 / len(names)), size=_DRAWS)[:, family_of]


def correlations(x: Floats, y: Floats, counts: Counts) -> Floats:
    """Pearson's correlation in every draw; a row of `counts` says how often each point was drawn; nan if constant."""
    total = counts.sum(axis=1, keepdims=True)
    dx, dy = (z - (counts * z).sum(axis=1, keepdims=True) / total for z in (x, y))
    scale = np.sqrt((counts * dx**2).sum(axis=1) * (counts * dy**2).sum(axis=1))
    return np.divide((counts * dx * dy).sum(axis=1), scale, out=np.full(len(counts), np.nan), where=scale > 0.0)


def drawn_ranks(x: Floats, counts: Counts) -> Floats:
    """Rank of every point among those drawn, ties and repeats at their mean; shape that of `counts`."""
    values, index = np.unique(x, return_inverse=True)
    pooled = np.zeros((len(counts), len(values)))
    np.add.at(pooled.T, index, counts.T)
    return (np.cumsum(pooled, axis=1) - (pooled - 1.0) / 2.0)[:, index]
