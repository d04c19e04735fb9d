"""How well a score follows the truth that it is meant to predict."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


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
