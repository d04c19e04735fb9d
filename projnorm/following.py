"""How well a score follows the truth it is meant to predict."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True, slots=True)
class Following:
    """A score against the truth.

    Attributes:
        r_squared: Share of the variance of the truth that a straight line in the score explains; nan for a constant.
        spearman: Rank correlation; nan for a constant.
    """

    r_squared: float
    spearman: float


def following(score: ArrayLike, truth: ArrayLike) -> Following:
    """How well `score` follows `truth`, both of shape ``(points,)``."""
    from scipy import stats

    score, truth = np.asarray(score, float).ravel(), np.asarray(truth, float).ravel()
    if score.size < 2 or np.ptp(score) == 0.0 or np.ptp(truth) == 0.0:
        return Following(math.nan, math.nan)
    correlation = float(np.corrcoef(score, truth)[0, 1])
    return Following(correlation**2, float(stats.spearmanr(score, truth).statistic))
