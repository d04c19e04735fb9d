"""MaNo: Xie et al., "MaNo: Exploiting Matrix Norm for Unsupervised Accuracy Estimation" (NeurIPS 2024).

The paper chooses the normalisation of the outputs for each target by a criterion. Where the criterion is near its
threshold some targets of one network get the one and some the other, and scores that do not share a scale are compared;
decided on the source they do. The official code scores in train mode, with the statistics of each batch in batch
normalisation, so its numbers are not those of the network that is evaluated.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from projnorm.core.errors import InputError
from projnorm.core.statistics import Floats
from projnorm.estimators.base import LEARNT, Estimator, register
from projnorm.estimators.softmax import probabilities
from projnorm.outputs.outputs import Outputs

# Above it the network is sure of itself, and its softmax is used as it is.
SURE = 5.0
POWER = 4
CRITERIA = ("source", "target")


@register
class MaNo(Estimator):
    """The mean fourth power, to the power of a quarter, of normalised outputs.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(MaNo().fit(source).score(target), 3)
    0.627

    Attributes:
        criterion: What the normalisation is chosen on: "source", or "target" for each target as in the paper.
        is_sure: Whether the network is sure of itself in distribution.
    """

    criterion: str = "source"
    is_sure: bool = LEARNT

    name = "MaNo"
    direction = "down"

    def __post_init__(self) -> None:
        """Refuse an unknown criterion."""
        if self.criterion not in CRITERIA:
            raise InputError(f"`criterion` must be one of {', '.join(CRITERIA)}; got {self.criterion!r}.")

    def _fit(self, source: Outputs) -> MaNo:
        return replace(self, is_sure=is_sure(source.logits))

    def _score(self, target: Outputs) -> float:
        sure = self.is_sure if self.criterion == "source" else is_sure(target.logits)
        rows = probabilities(target.logits) if sure else quadratic(target.logits)
        return float(np.mean(rows**POWER) ** (1.0 / POWER))


def is_sure(logits: NDArray[np.floating]) -> bool:
    """Whether the mean of ``-log p`` over samples and classes is large, as where probabilities are near 0 and 1."""
    return bool(-log_softmax(np.asarray(logits, dtype=np.float64), axis=1).mean() > SURE)


def quadratic(logits: NDArray[np.floating]) -> Floats:
    """Rows that add up to one, of a quadratic in the logits: the Taylor series of the exponential."""
    logits = np.asarray(logits, dtype=np.float64)
    taylor = 1.0 + logits + 0.5 * logits**2
    taylor -= taylor.min(axis=1, keepdims=True)
    total = taylor.sum(axis=1, keepdims=True)
    return np.divide(taylor, total, out=np.full_like(taylor, 1.0 / taylor.shape[1]), where=total > 0.0)
