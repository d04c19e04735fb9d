"""Probabilities and entropies of logits, in float64, and the temperature that calibrates them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from projnorm.errors import InputError

Floats = NDArray[np.float64]
# A network without errors would be sharpened for ever, one without any knowledge be flattened.
COLDEST, HOTTEST = 0.05, 20.0


def probabilities(logits: NDArray[np.floating]) -> Floats:
    """Softmax along the classes."""
    return softmax(np.asarray(logits, dtype=np.float64), axis=1)


def entropies(logits: NDArray[np.floating]) -> Floats:
    r""":math:`-\sum_k p_k \log p_k` of every row."""
    logs = log_softmax(np.asarray(logits, dtype=np.float64), axis=1)
    return -np.sum(np.exp(logs) * logs, axis=1)


def fit_temperature(logits: NDArray[np.floating], labels: NDArray[np.int64]) -> float:
    """The temperature under which labelled in-distribution samples are likeliest, from 0.05 to 20.

    Guo et al., "On Calibration of Modern Neural Networks" (ICML 2017). The likelihood is log-concave in the inverse of
    the temperature, so the one maximum is found.
    """
    logits = np.asarray(logits, dtype=np.float64)
    if len(logits) != len(labels) or not len(labels):
        raise InputError(f"`labels` must hold one class per row of `logits`; got {len(labels)} for {len(logits)}.")

    def loss(log_inverse: float) -> float:
        logs = log_softmax(math.exp(log_inverse) * logits, axis=1)
        return -float(logs[np.arange(len(labels)), labels].mean())

    ends = (-math.log(HOTTEST), -math.log(COLDEST))
    least = minimize_scalar(loss, bounds=ends, method="bounded", options={"xatol": 1e-8})
    return math.exp(-float(least.x))
