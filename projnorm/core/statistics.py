"""Statistics that every part shares: intervals, lines from scores to errors, families left out, rank correlation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.integer]
# Quantiles at the ends of a bootstrap interval over families of shifts, its draws, and the fewest families for one.
ENDS, _DRAWS, _FEWEST_FAMILIES = ((1 - 0.95) / 2, (1 + 0.95) / 2), 2000, 3


@dataclass(frozen=True, slots=True)
class Interval:
    """A number with the ends of its interval; nan where there is none.

    Attributes:
        value: The number.
        low: Lower end of the interval.
        high: Upper end of the interval.
    """

    value: float
    low: float = math.nan
    high: float = math.nan

    @classmethod
    def over(cls, draws: Counts | None, value: float, measure: Callable[[Counts], Floats]) -> Interval:
        """A number with the bootstrap interval at 95 % of its measure over draws from `family_draws`."""
        measured = np.array([]) if draws is None else measure(draws)
        if not np.isfinite(measured).any():
            return cls(value)
        return cls(value, *np.nanquantile(measured, ENDS).tolist())

    def at_least(self, reach: float) -> Interval:
        """The interval of a share that reaches at least this far to either side, within 0 to 1."""
        low, high = min(self.low, self.value - reach), max(self.high, self.value + reach)
        return replace(self, low=max(0.0, low), high=min(1.0, high))


def normal_reach(level: float) -> float:
    """Half the length of a normal interval at this level, in standard deviations: 1.64 for 0.9.

    >>> round(normal_reach(0.9), 4)
    1.6449
    """
    return NormalDist().inv_cdf(0.5 + level / 2.0)


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
    """A map from scores to errors, learnt from scores with known errors."""

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


def family_draws(families: ArrayLike, rng: np.random.Generator) -> NDArray[np.int64] | None:
    """How often each target is drawn when whole families are, one row for each draw; None for too few families."""
    names, family_of = np.unique(np.asarray(families), return_inverse=True)
    if len(names) < _FEWEST_FAMILIES:
        return None
    return rng.multinomial(len(names), np.full(len(names), 1.0 / len(names)), size=_DRAWS)[:, family_of]


@dataclass(frozen=True, slots=True)
class FitQuality:
    """Share of the variance of the truth that a line in the score explains, and rank correlation; nan for constants."""

    r_squared: float
    spearman: float


def fit_quality(score: ArrayLike, truth: ArrayLike) -> FitQuality:
    """R^2 and rank correlation of `score` and `truth`, both of shape ``(points,)``."""
    from scipy import stats

    score, truth = np.asarray(score, float).ravel(), np.asarray(truth, float).ravel()
    if score.size < 2 or np.ptp(score) == 0.0 or np.ptp(truth) == 0.0:
        return FitQuality(math.nan, math.nan)
    correlation = float(np.corrcoef(score, truth)[0, 1])
    return FitQuality(correlation**2, float(stats.spearmanr(score, truth).statistic))


def subsample_indices(size: int, count: int, seed: int) -> NDArray[np.intp]:
    """`count` of `size` samples, all if there are no more, ascending; fewer of them are some of these.

    Target sets may be sorted by class, so their first samples would not do.
    """
    return np.sort(np.random.default_rng(seed).permutation(size)[:count])
