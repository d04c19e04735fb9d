"""How well scores predict errors: a straight line from score to error, evaluated on families it was not fitted on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deep.comparison.scores import Scores
from projnorm.core.statistics import Counts, Floats, Interval, family_draws, fit_quality, left_out_predictions


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
    """Every method, each on the same bootstrap draws; of those `predicting` the scores are predicted errors.

    Examples:
        >>> from deep.comparison.scores import TargetScores
        >>> errors = {"fog": (0.2, 0.4), "snow": (0.3, 0.6), "frost": (0.1, 0.5)}
        >>> parts = [
        ...     TargetScores(f"{family}-{severity}", family, severity, "generated", 100, error, {"A": 2 * error})
        ...     for family, by_severity in errors.items()
        ...     for severity, error in enumerate(by_severity, start=1)
        ... ]
        >>> (best,) = qualities(Scores.from_targets(parts))
        >>> best.method, round(best.r_squared.value, 3), round(best.spearman.value, 3), best.targets
        ('A', 1.0, 1.0, 6)
    """
    return [
        quality(scores, method, rng=np.random.default_rng(seed), predicts=method in predicting)
        for method in scores.methods
    ]


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
