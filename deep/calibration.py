"""How well scores predict errors: a straight line from score to error, judged on families it was not fitted on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deep.ledger import Scores
from projnorm.following import following

Floats = NDArray[np.float64]
_DRAWS = 2000
_LEVEL = 0.95
_FEWEST_FAMILIES = 3


@dataclass(frozen=True, slots=True)
class Interval:
    """A number with a bootstrap interval at 95 %; nan where there are too few families."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Quality:
    """One method over all targets.

    Attributes:
        method: Its name.
        r_squared: Of a straight line from score to error.
        spearman: Rank correlation.
        mae: Mean absolute error of the line when the family it is used on was left out of the fit.
        targets: Number of targets.
    """

    method: str
    r_squared: Interval
    spearman: Interval
    mae: Interval
    targets: int


def left_out_predictions(scores: ArrayLike, errors: ArrayLike, families: ArrayLike) -> Floats:
    """Predicted errors, each by a line fitted to the targets of all other families; nan where no line can be."""
    scores, errors = np.asarray(scores, float), np.asarray(errors, float)
    families = np.asarray(families)
    out = np.full(len(scores), np.nan)
    for family in np.unique(families):
        inside = families == family
        x, y = scores[~inside], errors[~inside]
        if len(x) >= 2 and np.ptp(x) > 0.0:
            slope, offset = np.polyfit(x - x.mean(), y, 1)
            out[inside] = offset + slope * (scores[inside] - x.mean())
    return out


def quality(scores: Scores, method: str, *, rng: np.random.Generator) -> Quality:
    """How well one method predicts.

    Targets of one family are alike, so the bootstrap draws whole families; for the left-out error it draws the errors
    made on them.

    Args:
        scores: Of every method on every target.
        method: Which.
        rng: Of the bootstrap; the same for two methods draws the same families.
    """
    values, errors = scores.values[:, scores.methods.index(method)], scores.errors
    misses = np.abs(left_out_predictions(values, errors, scores.families) - errors)
    found = following(values, errors)
    members = [np.flatnonzero(scores.families == family) for family in dict.fromkeys(scores.families.tolist())]
    draws = []
    if len(members) >= _FEWEST_FAMILIES:
        for _ in range(_DRAWS):
            chosen = np.concatenate([members[i] for i in rng.integers(len(members), size=len(members))])
            drawn = following(values[chosen], errors[chosen])
            draws.append((drawn.r_squared, drawn.spearman, misses[chosen].mean()))
    ends = np.nanquantile(draws, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2], axis=0) if draws else np.full((2, 3), np.nan)
    centres = (found.r_squared, found.spearman, float(misses.mean()) if len(misses) else float("nan"))
    r_squared, spearman, mae = map(Interval, centres, ends[0].tolist(), ends[1].tolist())
    return Quality(method, r_squared, spearman, mae, len(errors))


def qualities(scores: Scores, *, seed: int = 0) -> list[Quality]:
    """Every method, each on the same bootstrap draws."""
    return [quality(scores, method, rng=np.random.default_rng(seed)) for method in scores.methods]
