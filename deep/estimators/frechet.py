"""Frechet distance: Deng and Zheng, "Are Labels Always Necessary for Classifier Accuracy Evaluation?" (CVPR 2021)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deep.estimators.evidence import Evidence

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Frechet:
    r"""Distance between two normal laws with the means and covariances of the features.

    .. math:: \|\mu_S - \mu_T\|^2 + \operatorname{tr}\left(C_S + C_T - 2 (C_S C_T)^{1/2}\right)

    Attributes:
        mean: Of in-distribution features.
        root: Square root of their covariance.
    """

    mean: Floats
    root: Floats

    name = "Frechet"
    direction = "up"
    is_error = False
    needs = ("features", "validation features")

    @classmethod
    def of(cls, features: NDArray[np.floating]) -> Frechet:
        """Learn mean and covariance; no label is used.

        Raises:
            ValueError: If there are fewer than two samples.
        """
        mean, covariance = _moments(features)
        values, vectors = np.linalg.eigh(covariance)
        return cls(mean, vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T)

    def score(self, evidence: Evidence) -> float:
        """The distance, squared; nan for a single sample, which has no covariance."""
        if len(evidence.outputs.features) < 2:
            return math.nan
        mean, covariance = _moments(evidence.outputs.features)
        # The trace of (C_S C_T)^(1/2) is that of the root of the symmetric C_S^(1/2) C_T C_S^(1/2).
        shared = np.sqrt(np.maximum(np.linalg.eigvalsh(self.root @ covariance @ self.root), 0.0)).sum()
        spread = np.sum(self.root**2) + np.trace(covariance) - 2.0 * shared
        return float(np.sum((mean - self.mean) ** 2) + spread)


def _moments(features: NDArray[np.floating]) -> tuple[Floats, Floats]:
    features = np.asarray(features, dtype=np.float64)
    if len(features) < 2:
        raise ValueError(f"a covariance needs two samples or more; got {len(features)}.")
    return features.mean(axis=0), np.atleast_2d(np.cov(features, rowvar=False))
