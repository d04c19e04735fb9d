r"""Feature shift: how far the mean of the features has moved.

The first moment of what Deng and Zheng, "Are Labels Always Necessary for Classifier Accuracy Evaluation?" (CVPR 2021),
regress the error on, each feature in units of its own spread. Of few samples a mean is known far better than a
covariance, so it serves where the Frechet distance is mostly noise.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from projnorm.core.statistics import Floats
from projnorm.estimators.base import LEARNT, Estimator, register
from projnorm.outputs.outputs import Outputs


@register
class FeatureShift(Estimator):
    r"""The distance of the means of the features, each standardised, over the square root of their number.

    .. math:: \sqrt{\frac1d \sum_i \Bigl(\frac{\tilde\mu_i - \mu_i}{\sigma_i}\Bigr)^2}

    Without any shift its square is about :math:`1/m`, so it is compared at equal m.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(FeatureShift().fit(source).score(target), 3)
    0.328

    Attributes:
        mean: Means of the features in distribution.
        spread: Their standard deviations; features that are constant there are left out.
    """

    mean: Floats = LEARNT
    spread: Floats = LEARNT

    name = "FeatureShift"
    needs = frozenset({"features"})

    def _fit(self, source: Outputs) -> FeatureShift:
        features = np.asarray(source.known_features, dtype=np.float64)
        return replace(self, mean=features.mean(axis=0), spread=features.std(axis=0))

    def _score(self, target: Outputs) -> float:
        """The distance; 0 where every feature was constant."""
        moved = np.asarray(target.known_features, dtype=np.float64).mean(axis=0) - self.mean
        moves = self.spread > 1e-9 * max(1e-300, float(self.spread.max(initial=0.0)))
        return float(np.sqrt(np.mean((moved[moves] / self.spread[moves]) ** 2))) if moves.any() else 0.0
