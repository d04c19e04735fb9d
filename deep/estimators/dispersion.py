"""Dispersion: Xie et al., "On the Importance of Feature Separability in Predicting OOD Error" (NeurIPS 2023)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from deep.estimators.evidence import Evidence


@dataclass(frozen=True, slots=True)
class Dispersion:
    r"""How far apart the features of predicted classes are.

    .. math:: \log \frac{1}{m (K - 1)} \sum_k m_k \|\mu_k - \mu\|^2

    over the :math:`K` classes that are predicted at all.
    """

    name = "Dispersion"
    direction = "down"
    is_error = False
    needs = ("features",)

    def score(self, evidence: Evidence) -> float:
        """Nan where a single class is predicted, or all features are the same."""
        features = np.asarray(evidence.outputs.features, dtype=np.float64)
        classes, members = np.unique(evidence.outputs.predicted, return_inverse=True)
        if len(classes) < 2:
            return math.nan
        counts = np.bincount(members)
        sums = np.zeros((len(classes), features.shape[1]))
        np.add.at(sums, members, features)
        apart = ((sums / counts[:, None] - features.mean(axis=0)) ** 2).sum(axis=1)
        between = float(counts @ apart) / (len(classes) - 1) / len(features)
        return math.log(between) if between > 0.0 else math.nan
