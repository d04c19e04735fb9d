"""Probabilities and entropies of logits, in float64, and the temperature and biases that calibrate them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize
from scipy.special import log_softmax, softmax

from projnorm.core.errors import InputError
from projnorm.core.statistics import Floats as Floats

# A network without errors would be sharpened for ever, one without any knowledge be flattened.
COLDEST, HOTTEST = 0.05, 20.0
# Newton's method stops at this relative step, or after this number of steps.
_NEAR, _MOST_STEPS = 1e-10, 100
_L_BFGS = {"ftol": 1e-13, "gtol": 1e-7, "maxiter": 1000, "maxcor": 20}


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
    the temperature, so the one maximum is where its derivative is zero, and Newton's method between bounds finds it.
    Samples without a mistake would sharpen without end, so they are taken to hold half a mistake.
    """
    logits = _below_largest(logits, labels)
    coldest = _coldest(logits, labels)
    own = float(logits[np.arange(len(labels)), labels].mean())

    def derivatives(inverse: float) -> tuple[float, float]:
        """First and second derivative of the mean loss with respect to the inverse temperature."""
        rows = np.exp(inverse * logits)
        rows /= rows.sum(axis=1, keepdims=True)
        means, squares = np.einsum("jk,jk->j", rows, logits), np.einsum("jk,jk,jk->j", rows, logits, logits)
        return float(means.mean()) - own, float((squares - means**2).mean())

    low, high = 1.0 / HOTTEST, 1.0 / coldest
    if derivatives(low)[0] >= 0.0:
        return HOTTEST
    if derivatives(high)[0] <= 0.0:
        return coldest
    inverse = min(1.0, 0.5 * (low + high))
    for _ in range(_MOST_STEPS):
        slope, curvature = derivatives(inverse)
        low, high = (inverse, high) if slope < 0.0 else (low, inverse)
        # A Newton step for the logarithm of the inverse temperature; halfway where it would leave the bounds.
        log_step = -slope / (inverse * curvature) if curvature > 0.0 else math.inf
        stepped = inverse * math.exp(log_step) if abs(log_step) < 5.0 else math.inf
        stepped = stepped if low < stepped < high else math.sqrt(low * high)
        if abs(stepped - inverse) <= _NEAR * inverse:
            return 1.0 / stepped
        inverse = stepped
    return 1.0 / inverse


@dataclass(frozen=True, slots=True, eq=False)
class BiasCorrected:
    """Temperature scaling with a bias for each class: Alexandari, Kundaje and Shrikumar (BCTS, ICML 2020).

    Its mean probability of each class is the share of the class, up to the penalty, as estimates of class shares need.

    Attributes:
        temperature: Number that logits are divided by.
        bias: Number that is added to the logits of each class afterwards.
    """

    temperature: float
    bias: Floats

    @classmethod
    def fit(cls, logits: NDArray[np.floating], labels: NDArray[np.int64]) -> BiasCorrected:
        """The likeliest scaling of labelled samples, if biases are normal with variance one beforehand.

        This weighs as much as one sample of each class, and keeps classes without a sample finite.
        """
        first = fit_temperature(logits, labels)
        logits = _below_largest(logits, labels)
        coldest = _coldest(logits, labels)
        logits = logits / first
        count, classes = logits.shape
        shares = np.bincount(labels, minlength=classes) / count
        own = float(logits[np.arange(count), labels].mean())
        rows = softmax(logits, axis=1)
        # Parameters in units of their own curvature, which L-BFGS needs where classes have very different shares.
        units = 1.0 / np.sqrt(rows.mean(axis=0) - np.mean(rows**2, axis=0) + 1.0 / count)

        def loss(parameters: Floats) -> tuple[float, Floats]:
            inverse, bias = parameters[0], units * parameters[1:]
            scores = inverse * logits + bias
            largest = scores.max(axis=1, keepdims=True)
            exps = np.exp(scores - largest)
            sums = exps.sum(axis=1, keepdims=True)
            exps /= sums
            value = float((largest + np.log(sums)).mean()) - inverse * own - shares @ bias + 0.5 * bias @ bias / count
            slope = np.einsum("jk,jk->", exps, logits) / count - own
            return value, np.concatenate([[slope], units * (exps.mean(axis=0) - shares + bias / count)])

        bounds = [(first / HOTTEST, first / coldest), *[(None, None)] * classes]
        start = np.concatenate([[1.0], np.zeros(classes)])
        solution = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=_L_BFGS).x
        return cls(first / float(solution[0]), units * solution[1:])

    def probabilities(self, logits: NDArray[np.floating]) -> Floats:
        """Softmax along the classes of the scaled logits."""
        return softmax(np.asarray(logits, dtype=np.float64) / self.temperature + self.bias, axis=1)


def _coldest(logits: Floats, labels: NDArray[np.int64]) -> float:
    """The lowest temperature to choose: where no sample is wrong, that which expects half a mistake, or one."""
    if not (logits[np.arange(len(labels)), labels] >= logits.max(axis=1)).all():
        return COLDEST

    def excess(log_temperature: float) -> float:
        confidence = softmax(logits / math.exp(log_temperature), axis=1).max(axis=1)
        return 1.0 - float(confidence.mean()) - 0.5 / (len(labels) + 1)

    if excess(0.0) <= 0.0:
        return 1.0
    coldest = math.log(COLDEST)
    return COLDEST if excess(coldest) >= 0.0 else math.exp(float(brentq(excess, coldest, 0.0)))


def _below_largest(logits: NDArray[np.floating], labels: NDArray[np.int64]) -> Floats:
    """Logits less the largest of their row, which changes no probability and lets no exponential overflow."""
    if len(logits) != len(labels) or not len(labels):
        raise InputError(f"`labels` must hold one class per row of `logits`; got {len(labels)} for {len(logits)}.")
    logits = np.asarray(logits, dtype=np.float64)
    return logits - logits.max(axis=1, keepdims=True)
