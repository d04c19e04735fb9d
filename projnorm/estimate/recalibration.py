r"""Labels of earlier batches, or of other domains, correct the estimate without labels for the next one.

On batch i the labelled estimate is :math:`d_i` above the one without labels. It is taken to be

.. math:: d_i = \mu + u_i + \varepsilon_i, \qquad u_i \sim N(0, \tau^2), \quad \varepsilon_i \sim N(0, v_i),

with the part :math:`\mu` that all batches share, the part :math:`u_i` of one batch, and the draw of its labels, whose
variance :math:`v_i` is that of mistakes as frequent as on all batches together. Before any labels :math:`\mu` is normal
around 0 with the variance that the interval of the estimates claims, and :math:`\tau^2` is a part of it, worth some
batches; then :math:`\tau^2` is estimated by moments (DerSimonian and Laird, "Meta-Analysis in Clinical Trials", 1986)
and :math:`\mu` by its posterior mean. The cause of a difference changes with time, so a batch counts less with each
that follows it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from projnorm.core.errors import InputError
from projnorm.core.statistics import Floats, Interval, normal_reach
from projnorm.estimate.result import ErrorEstimate

# Variance between batches before any labels, as a part of that of an estimate, and the batches that this is worth.
_PRIOR_PART, _PRIOR_BATCHES = 0.6, 4.0
# The mean error of labelled batches is taken to be at least this.
_LEAST = 0.005
# Weight of a batch relative to the one after it.
_MEMORY = 0.8


@dataclass(frozen=True, slots=True)
class Recalibration:
    """How far estimates without labels are from the error, learnt from labelled batches.

    Attributes:
        shift: What is added to an estimate.
        deviation: Standard deviation of what is then still missed, besides the sampling noise of the batch.
        batches: Number of labelled batches behind it.
    """

    shift: float
    deviation: float
    batches: int

    @classmethod
    def from_estimates(cls, estimates: Sequence[ErrorEstimate]) -> Recalibration:
        """From estimates of labelled targets, all of one model.

        Raises:
            InputError: If there is none, or one of them has no labels.
        """
        known = [by_labels.labelled for by_labels in estimates if by_labels.labelled is not None]
        if not known or len(known) < len(estimates):
            raise InputError("`estimates` must be of labelled targets, one or more; pass `labelled` to each.")
        reach = 2.0 * normal_reach(estimates[0].level)
        return cls.fit(
            np.array([by_labels.error for by_labels in known]),
            np.array([by_labels.label_free.value for by_labels in known]),
            np.array([by_labels.counts.noise for by_labels in known]),
            float(np.mean([(by_labels.label_free.high - by_labels.label_free.low) / reach for by_labels in known])),
        )

    @classmethod
    def fit(cls, labelled: Floats, free: Floats, noise: Floats, spread: float) -> Recalibration:
        """From what labels say of batches, and estimates without them.

        Args:
            labelled: Errors of the batches by their labels, in the order of time, shape ``(batches,)``.
            free: Estimates without labels.
            noise: `StratumCounts.noise` of the labels of each.
            spread: Standard deviation of the estimates without labels, as their intervals claim it.
        """
        # With a variance of its own, a batch of few mistakes would seem to be known better than others.
        error = float(np.clip(labelled.mean(), _LEAST, 1.0 - _LEAST))
        differences, variances = labelled - free, error * (1.0 - error) * noise
        counts = _MEMORY ** np.arange(len(differences))[::-1]
        between, batches = _PRIOR_PART * spread**2, float(counts.sum())
        if len(differences) > 1:
            squares = (differences - counts @ differences / batches) ** 2
            observed = float(counts @ squares / (batches - counts @ counts / batches) - counts @ variances / batches)
            known = batches - 1.0
            between = (_PRIOR_BATCHES * between + known * max(0.0, observed)) / (_PRIOR_BATCHES + known)
        weights = counts / np.maximum(between + variances, 1e-12)
        precision = 1.0 / max(spread**2, 1e-12) + float(weights.sum())
        shift = float(weights @ differences) / precision
        return cls(shift, math.sqrt(1.0 / precision + between), len(differences))

    def interval(self, error: float, sampling_noise: float, level: float) -> Interval:
        """The corrected error of a batch, with its interval."""
        corrected = min(1.0, max(0.0, error + self.shift))
        reach = normal_reach(level) * math.hypot(self.deviation, sampling_noise)
        return Interval(corrected, max(0.0, corrected - reach), min(1.0, corrected + reach))

    def apply(self, estimate: ErrorEstimate) -> ErrorEstimate:
        """The corrected estimate of a target; one that has labels of its own stays as it is."""
        if estimate.labelled is not None:
            return estimate
        interval = self.interval(estimate.error, estimate.sampling_noise, estimate.level)
        return replace(
            estimate,
            error=interval.value,
            low=interval.low,
            high=interval.high,
            recalibrated_by=self.batches,
        )
