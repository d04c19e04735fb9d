r"""Class-conditional feature shift: how far the features of each predicted class have moved.

As `projnorm.estimators.feature_shift`, but between samples of the same predicted class, so that other class shares
alone move nothing where the classes are well separated.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from projnorm.core.statistics import Floats
from projnorm.estimators.base import LEARNT, Estimator, register
from projnorm.outputs.outputs import Outputs


@register
class ClassFeatureShift(Estimator):
    r"""The distance of the means of each predicted class, less what the noise of few samples adds.

    .. math:: s \sqrt{|v|}, \qquad v = \sum_k \frac{m_k}{m} \Bigl(\frac1d \sum_i
              \Bigl(\frac{\tilde\mu_{ki} - \mu_{ki}}{\sigma_i}\Bigr)^2 - \frac1{m_k} - \frac1{n_k}\Bigr)

    with the sign s of v, which is zero on average without a shift: cut off at zero, half of such sets would be tied.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(ClassFeatureShift().fit(source).score(target), 3)
    0.583

    Attributes:
        means: Mean features of each predicted class in distribution, shape ``(classes, width)``.
        counts: Number of labelled samples of each predicted class; others than these are left out.
        spread: Standard deviation of each feature within classes; features that are constant there are left out.
    """

    means: Floats = LEARNT
    counts: NDArray[np.int64] = LEARNT
    spread: Floats = LEARNT

    name = "ClassFeatureShift"
    needs = frozenset({"features"})

    def _fit(self, source: Outputs) -> ClassFeatureShift:
        features = np.asarray(source.known_features, dtype=np.float64)
        means, counts = _class_means(features, source.predicted, source.classes)
        freedom = max(1, len(features) - int(np.sum(counts > 0)))
        spread = np.sqrt(np.sum((features - means[source.predicted]) ** 2, axis=0) / freedom)
        return replace(self, means=means, counts=counts, spread=spread)

    def _score(self, target: Outputs) -> float:
        """The distance; 0 where every feature was constant, nan where no class of the target is known."""
        features = np.asarray(target.known_features, dtype=np.float64)
        means, counts = _class_means(features, target.predicted, target.classes)
        shared = (counts > 0) & (self.counts > 0)
        if not shared.any():
            return math.nan
        moves = self.spread > 1e-9 * max(1e-300, float(self.spread.max(initial=0.0)))
        if not moves.any():
            return 0.0
        moved = (means - self.means)[np.ix_(shared, moves)] / self.spread[moves]
        noise = 1.0 / counts[shared] + 1.0 / self.counts[shared]
        value = float(np.average(np.mean(moved**2, axis=1) - noise, weights=counts[shared]))
        return math.copysign(math.sqrt(abs(value)), value)


def _class_means(features: Floats, predicted: NDArray[np.int64], classes: int) -> tuple[Floats, NDArray[np.int64]]:
    """Mean features of each class, zero where it has no sample, and number of its samples."""
    counts = np.bincount(predicted, minlength=classes)
    sums = np.eye(classes)[predicted].T @ features
    return sums / np.maximum(counts, 1)[:, None], counts
