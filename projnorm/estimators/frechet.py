"""Frechet distance: Deng and Zheng, "Are Labels Always Necessary for Classifier Accuracy Evaluation?" (CVPR 2021)."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from projnorm.core.errors import InputError
from projnorm.core.statistics import Floats
from projnorm.estimators.base import LEARNT, Estimator, register
from projnorm.outputs.outputs import Outputs


@register
class Frechet(Estimator):
    r"""Distance between two normal laws with the means and covariances of the features.

    .. math:: \|\mu_S - \mu_T\|^2 + \operatorname{tr}\left(C_S + C_T - 2 (C_S C_T)^{1/2}\right)

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(Frechet().fit(source).score(target), 3)
    1.248

    Attributes:
        mean: Mean of the features in distribution.
        root: Square root of their covariance.
    """

    mean: Floats = LEARNT
    root: Floats = LEARNT

    name = "Frechet"
    needs = frozenset({"features"})

    def _fit(self, source: Outputs) -> Frechet:
        mean, covariance = _moments(source.known_features)
        values, vectors = np.linalg.eigh(covariance)
        return replace(self, mean=mean, root=vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T)

    def _score(self, target: Outputs) -> float:
        """The distance, squared; nan for a single sample, which has no covariance."""
        if len(target.known_features) < 2:
            return math.nan
        mean, covariance = _moments(target.known_features)
        # The trace of (C_S C_T)^(1/2) is that of the root of the symmetric C_S^(1/2) C_T C_S^(1/2).
        shared = np.sqrt(np.maximum(np.linalg.eigvalsh(self.root @ covariance @ self.root), 0.0)).sum()
        spread = np.sum(self.root**2) + np.trace(covariance) - 2.0 * shared
        return float(np.sum((mean - self.mean) ** 2) + spread)


def _moments(features: NDArray[np.floating]) -> tuple[Floats, Floats]:
    features = np.asarray(features, dtype=np.float64)
    if len(features) < 2:
        raise InputError(f"a covariance needs two samples or more; got {len(features)}.")
    return features.mean(axis=0), np.atleast_2d(np.cov(features, rowvar=False))
