"""Methods together: the mean of standardised scores, stacking, and what the methods get wrong together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from deep.comparison.scores import Scores
from projnorm.core.errors import InputError
from projnorm.core.statistics import ENDS, Floats, family_draws, left_out_predictions
from projnorm.estimators.registry import ESTIMATORS

STACKED = "stacked"
_MOST_PAIRED = 8
_PAPERS_OWN = "ProjNorm"
CAPTION = (
    "A + B is the mean of scores that were standardised over the targets, without labels. Stacked is the error "
    "predicted by non-negative weights of all methods, fitted without the family it is used on; its MAE is that of "
    "these predictions as they are."
)


def rising(scores: Scores) -> Floats:
    """The scores, negated where they fall as the error rises."""
    return scores.values * signs(scores.methods)


def signs(methods: Sequence[str]) -> Floats:
    """Sign by which the score of each method rises with the error; 1 for unknown names."""
    falling = {name for name, method in ESTIMATORS.items() if method.direction == "down"}
    return np.array([-1.0 if method in falling else 1.0 for method in methods])


def standardised(scores: Scores) -> Floats:
    """Every column less its mean, over its standard deviation; zero where it is constant. All rise with the error."""
    values = rising(scores)
    centred = values - values.mean(axis=0)
    spread = scores.values.std(axis=0)
    return np.divide(centred, spread, out=np.zeros_like(centred), where=spread > 0.0)


def mean_of(scores: Scores, methods: Sequence[str]) -> Floats:
    """The paper's ensemble: the mean of standardised scores, which all rise with the error. No label is used."""
    missing = [method for method in methods if method not in scores.methods]
    if missing or not methods or len(set(methods)) < len(methods):
        known = ", ".join(scores.methods)
        raise InputError(f"`methods` must be of {known}, each once; got {', '.join(methods) or 'none'}.")
    return standardised(scores)[:, [scores.methods.index(method) for method in methods]].mean(axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """A predictor of the error from several scores, which all rise with it: a weight for each, none negative."""

    centre: Floats
    weights: Floats
    offset: float

    @classmethod
    def fitted(cls, scores: Floats, errors: Floats) -> Stack:
        """The least-squares weights; a score that is constant has none."""
        from scipy.optimize import nnls

        centre, spread = scores.mean(axis=0), np.where(np.ptp(scores, axis=0) > 0.0, scores.std(axis=0), np.inf)
        weights, _ = nnls((scores - centre) / spread, errors - errors.mean())
        return cls(centre, weights / spread, float(errors.mean()))

    def predict(self, scores: Floats) -> Floats:
        """Predicted errors, one for each row of scores."""
        return self.offset + (scores - self.centre) @ self.weights


def stacked(scores: Scores) -> Floats:
    """Predicted errors of each family, by nonnegative weights that are fitted to the other families."""
    if len(set(scores.families.tolist())) < 2:
        raise InputError("stacking leaves a family out and fits the others; there is only one.")
    return left_out_predictions(rising(scores), scores.errors, scores.families, Stack.fitted)


def ensembles(scores: Scores, subsets: Iterable[Sequence[str]] | None = None) -> Scores:
    """The methods and their ensembles, each a column: the subsets named, or every pair and all; and stacking.

    With more than eight methods, only pairs with ProjNorm are taken. One method or one family is not stacked.
    """
    if subsets is None:
        pairs = combinations(scores.methods, 2)
        few = len(scores.methods) <= _MOST_PAIRED
        subsets = [*(pair for pair in pairs if few or _PAPERS_OWN in pair), scores.methods]
    columns = {" + ".join(subset): mean_of(scores, subset) for subset in subsets}
    if len(scores.methods) > 1 and len(set(scores.families.tolist())) > 1:
        columns[STACKED] = stacked(scores)
    return replace(
        scores,
        methods=(*scores.methods, *columns),
        values=np.column_stack([scores.values, *columns.values()]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class ResidualCorrelations:
    """Correlations between the residuals of methods, with the ends of their 95 % bootstrap intervals.

    Each has shape ``(methods, methods)``; nan where a method follows the error exactly, or there are too few families.
    """

    methods: tuple[str, ...]
    correlation: Floats
    low: Floats
    high: Floats


def residual_correlations(scores: Scores, *, seed: int = 0) -> ResidualCorrelations:
    """Correlations between the residuals of the methods, after linear regressions of the error on each score.

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
    return ResidualCorrelations(scores.methods, correlation, low, high)


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
