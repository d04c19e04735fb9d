"""Probabilities and entropies of logits, in float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

Floats = NDArray[np.float64]


def probabilities(logits: NDArray[np.floating]) -> Floats:
    """Softmax along the classes."""
    return softmax(np.asarray(logits, dtype=np.float64), axis=1)


def entropies(logits: NDArray[np.floating]) -> Floats:
    r""":math:`-\sum_k p_k \log p_k` of every row."""
    logs = log_softmax(np.asarray(logits, dtype=np.float64), axis=1)
    return -np.sum(np.exp(logs) * logs, axis=1)
