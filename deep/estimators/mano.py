"""MaNo: Xie et al., "MaNo: Exploiting Matrix Norm for Unsupervised Accuracy Estimation" (NeurIPS 2024)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from deep.estimators.base import Estimator, register
from deep.estimators.softmax import Floats, probabilities
from deep.outputs import Outputs

# Above it the network is sure of itself, and its softmax is used as it is.
SURE = 5.0
POWER = 4


@register
class MaNo(Estimator):
    """The mean fourth power, to the power of a quarter, of normalised outputs."""

    name = "MaNo"
    direction = "down"

    def _score(self, target: Outputs) -> float:
        return float(np.mean(normalised(target.logits) ** POWER) ** (1.0 / POWER))


def normalised(logits: NDArray[np.floating]) -> Floats:
    """Rows that add up to one: softmax where the mean of ``-log p`` is large, else a quadratic in the logits."""
    logits = np.asarray(logits, dtype=np.float64)
    if -log_softmax(logits, axis=1).mean() > SURE:
        return probabilities(logits)
    taylor = 1.0 + logits + 0.5 * logits**2
    taylor -= taylor.min(axis=1, keepdims=True)
    total = taylor.sum(axis=1, keepdims=True)
    return np.divide(taylor, total, out=np.full_like(taylor, 1.0 / taylor.shape[1]), where=total > 0.0)
