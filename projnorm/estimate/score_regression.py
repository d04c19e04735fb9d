r"""From scores to the error: a Gaussian process over labelled shifted sets, with an effect of the family of shifts.

The error of a set is taken to be a straight line in its scores, plus a smooth function, plus an amount that sets of one
family of shifts share, plus noise; all four are Gaussian (Rasmussen and Williams, "Gaussian Processes for Machine
Learning", 2006), with the covariance

.. math:: v \bigl(a\, e^{-\|x - x'\|^2 / (2 d \ell^2)} + b\,(x^\top x' / d + 1) + f\,[\text{same family}]
          + s\,[\text{same set}]\bigr)

for d standardised scores. The variances and the length are those of largest posterior density. A target is of a family
that was not seen, so the family's variance is part of its interval, which also grows with the distance to known sets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from projnorm.core.statistics import Floats

# Logarithms of a, the length, b, f and s: centre and width of the prior, and bounds.
_CENTRE = np.log([0.5, 0.8, 0.5, 0.05, 0.05])
_WIDTH = 2.0
_BOUNDS = ((-7.0, 3.0), (-1.6, 2.5), (-6.0, 4.0), (-8.0, 1.0), (-7.0, 1.0))
_JITTER = 1e-10
_MOST_STEPS = 40


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """Predicted values with their standard deviations."""

    mean: Floats
    deviation: Floats


@dataclass(frozen=True, slots=True, eq=False)
class ScoreRegression:
    """What was learnt from the scores of sets whose errors are known.

    Attributes:
        scores: Standardised scores, shape ``(sets, scores)``.
        centre: Mean of each score.
        units: Standard deviation of each score.
        values: Errors of the sets.
        families: Family of shifts of each set.
        parameters: Logarithms of the variances and the length, in the order of the formula.
        inverse: Inverse of the covariance of the errors.
    """

    scores: Floats
    centre: Floats
    units: Floats
    values: Floats
    families: NDArray[np.str_]
    parameters: Floats
    inverse: Floats

    @classmethod
    def fit(cls, scores: ArrayLike, values: ArrayLike, families: ArrayLike) -> ScoreRegression:
        """Learn from scores, one row for each set, from errors, and from the family of each set."""
        raw, values, families = np.asarray(scores, float), np.asarray(values, float), np.asarray(families)
        centre, units = raw.mean(axis=0), raw.std(axis=0)
        units = np.where(units > 1e-12, units, 1.0)
        X = (raw - centre) / units
        parts = _Parts.from_scores(X, families, values)
        parameters = minimize(
            parts.loss, _CENTRE, jac=True, method="L-BFGS-B", bounds=_BOUNDS, options={"maxiter": _MOST_STEPS}
        ).x
        covariance, _ = parts.covariance(parameters)
        inverse = cho_solve(cho_factor(covariance, lower=True), np.eye(len(values)))
        return cls(X, centre, units, values, families, parameters, inverse)

    def predict(self, scores: ArrayLike) -> Prediction:
        """Errors of sets of families that were not seen, one for each row of scores."""
        x = (np.atleast_2d(np.asarray(scores, float)) - self.centre) / self.units
        smooth, length, linear, family, noise = np.exp(self.parameters)
        scale, d = _scale(self.values), self.scores.shape[1]
        distances = np.sum((x[:, None] - self.scores) ** 2, axis=2) / d
        cross = scale * (smooth * np.exp(-distances / (2.0 * length**2)) + linear * (x @ self.scores.T / d + 1.0))
        own = scale * (smooth + linear * (np.sum(x**2, axis=1) / d + 1.0) + family + noise)
        mean = self.values.mean() + cross @ (self.inverse @ (self.values - self.values.mean()))
        return Prediction(mean, np.sqrt(np.maximum(own - np.sum((cross @ self.inverse) * cross, axis=1), 1e-12)))

    def left_out(self) -> Prediction:
        """Errors of the known sets, each as predicted from the sets of all other families."""
        mean, deviation = np.empty_like(self.values), np.empty_like(self.values)
        weights = self.inverse @ (self.values - self.values.mean())
        for family in np.unique(self.families):
            inside = np.flatnonzero(self.families == family)
            block = np.linalg.inv(self.inverse[np.ix_(inside, inside)])
            mean[inside] = self.values[inside] - block @ weights[inside]
            deviation[inside] = np.sqrt(np.diag(block))
        return Prediction(mean, deviation)


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """Covariances whose weighted sum is that of the errors."""

    distances: Floats
    products: Floats
    same_family: Floats
    residuals: Floats
    scale: float

    @classmethod
    def from_scores(cls, X: Floats, families: NDArray[np.str_], values: Floats) -> _Parts:
        d = X.shape[1]
        distances = np.sum((X[:, None] - X[None]) ** 2, axis=2) / d
        same = (families[:, None] == families[None]).astype(float)
        return cls(distances, X @ X.T / d + 1.0, same, values - values.mean(), _scale(values))

    def covariance(self, parameters: Floats) -> tuple[Floats, Floats]:
        """The covariance, and the smooth part of it without its variance."""
        smooth, length, linear, family, noise = np.exp(parameters)
        near = np.exp(-self.distances / (2.0 * length**2))
        total = smooth * near + linear * self.products + family * self.same_family
        total[np.diag_indices_from(total)] += noise + _JITTER
        return self.scale * total, near

    def loss(self, parameters: Floats) -> tuple[float, Floats]:
        """Negative logarithm of the posterior density, and its gradient."""
        smooth, length, linear, family, noise = np.exp(parameters)
        covariance, near = self.covariance(parameters)
        factor = cho_factor(covariance, lower=True)
        weights = cho_solve(factor, self.residuals)
        inner = cho_solve(factor, np.eye(len(weights))) - np.outer(weights, weights)
        gradient = np.array(
            [
                smooth * np.sum(inner * near),
                smooth * np.sum(inner * near * self.distances) / length**2,
                linear * np.sum(inner * self.products),
                family * np.sum(inner * self.same_family),
                noise * np.trace(inner),
            ]
        )
        off = (parameters - _CENTRE) / _WIDTH
        value = 0.5 * self.residuals @ weights + np.log(np.diag(factor[0])).sum() + 0.5 * off @ off
        return float(value), 0.5 * self.scale * gradient + off / _WIDTH


def _scale(values: Floats) -> float:
    """Variance that all parts are in units of."""
    return max(float(np.var(values)), 1e-6)
