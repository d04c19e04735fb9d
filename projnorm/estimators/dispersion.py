"""Dispersion: Xie et al., "On the Importance of Feature Separability in Predicting OOD Error" (NeurIPS 2023)."""

from __future__ import annotations

import math

import numpy as np

from projnorm.estimators.base import Estimator, register
from projnorm.outputs.outputs import Outputs


@register
class Dispersion(Estimator):
    r"""How far apart the features of predicted classes are.

    .. math:: \log \frac{1}{m (K - 1)} \sum_k m_k \|\mu_k - \mu\|^2

    over the :math:`K` classes that are predicted at all.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(Dispersion().fit(source).score(target), 3)
    -0.434
    """

    name = "Dispersion"
    direction = "down"
    needs = frozenset({"features"})

    def _score(self, target: Outputs) -> float:
        """The dispersion; nan where a single class is predicted, or all features are the same."""
        features = np.asarray(target.known_features, dtype=np.float64)
        classes, members = np.unique(target.predicted, return_inverse=True)
        if len(classes) < 2:
            return math.nan
        counts = np.bincount(members)
        sums = np.zeros((len(classes), features.shape[1]))
        np.add.at(sums, members, features)
        apart = ((sums / counts[:, None] - features.mean(axis=0)) ** 2).sum(axis=1)
        between = float(counts @ apart) / (len(classes) - 1) / len(features)
        return math.log(between) if between > 0.0 else math.nan
