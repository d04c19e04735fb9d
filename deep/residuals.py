"""What the methods get wrong together: correlation of the residuals of error regressed on each score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deep.calibration import ENDS, Floats, family_draws
from deep.scores import Scores


@dataclass(frozen=True, slots=True, eq=False)
class Residuals:
    """Correlations between the residuals of methods.

    Attributes:
        methods: Names of the methods.
        correlation: Shape ``(methods, methods)``; nan where a method follows the error exactly.
        low: Lower ends of the 95 % bootstrap intervals; nan where there are too few families.
        high: Upper ends of these intervals.
    """

    methods: tuple[str, ...]
    correlation: Floats
    low: Floats
    high: Floats


def residual_correlations(scores: Scores, *, seed: int = 0) -> Residuals:
    """Regress the error on each score with a straight line, and correlate what is left of each pair of methods.

    The bootstrap draws whole families and fits the lines anew in every draw.
    """
    data = np.column_stack([scores.values, scores.errors])
    correlation = _from_covariances(_covariances(data, np.ones((1, len(data)), dtype=int)))[0]
    low, high = np.full((2, *correlation.shape), np.nan)
    counts = family_draws(scores.families, np.random.default_rng(seed))
    if counts is not None:
        known = np.isfinite(correlation)
        drawn = _from_covariances(_covariances(data, counts))[:, known]
        low[known], high[known] = np.nanquantile(drawn, ENDS, axis=0)
    return Residuals(scores.methods, correlation, low, high)


def _covariances(data: Floats, counts: NDArray[np.integer]) -> Floats:
    """Covariances of the columns of `data` in every draw, shape ``(draws, columns, columns)``."""
    data = (data - data.mean(axis=0)) / np.where(np.ptp(data, axis=0) > 0.0, data.std(axis=0), 1.0)
    weights = counts / counts.sum(axis=1, keepdims=True)
    mean = weights @ data
    return np.einsum("di,ij,ik->djk", weights, data, data, optimize=True) - mean[:, :, None] * mean[:, None, :]


def _from_covariances(covariances: Floats) -> Floats:
    """The residual of the error `e` on the score `x` is ``e - b x``, so its covariances follow from those of both."""
    among, shared, error = covariances[:, :-1, :-1], covariances[:, :-1, -1], covariances[:, -1, -1]
    variance = np.diagonal(among, axis1=1, axis2=2)
    slope = np.divide(shared, variance, out=np.zeros_like(shared), where=variance > 0.0)
    explained = slope * shared
    left = (
        error[:, None, None]
        - explained[:, :, None]
        - explained[:, None, :]
        + slope[:, :, None] * slope[:, None, :] * among
    )
    spread = np.sqrt(np.maximum(np.diagonal(left, axis1=1, axis2=2), 0.0))
    # A method that follows the error exactly leaves nothing but rounding.
    spread = np.where(spread > 1e-7 * np.sqrt(error)[:, None], spread, np.nan)
    return left / (spread[:, :, None] * spread[:, None, :])
