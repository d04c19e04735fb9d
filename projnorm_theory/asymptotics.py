"""Closed forms for Gaussian inputs in high dimension: ProjNormLinear, and every curve of the toy experiment.

Section 5 of docs/theory.md. Random projections concentrate, so for large sizes one number stands for every draw.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import expit, logsumexp

from projnorm_theory.results import Result
from projnorm_theory.validation import EPS, FloatArray, InputError, as_count, as_rows, as_vector

# E|z| of a standard normal, and the variance of sign(z) that z does not explain linearly.
_MEAN_ABS = math.sqrt(2 / math.pi)
_UNEXPLAINED = 1 - 2 / math.pi
_LARGEST_SIGMA = 1e100  # beyond, its square leaves float64 once multiplied by the sizes


@dataclass(frozen=True, slots=True, eq=False)
class DeterministicProjNorm(Result):
    r"""The value ProjNormLinear concentrates on.

    Attributes:
        value: :math:`\bigl(\sum_i \frac{\kappa}{s_i + \kappa}\theta_i^2\bigr)^{1/2}`.
        kappa: The implicit ridge; 0 when the shifted rows span every direction of nonzero variance.
    """

    value: float
    kappa: float


@dataclass(frozen=True, slots=True, eq=False)
class ToyAsymptotics(Result):
    """Closed forms of the Gaussian toy experiment; each field has the shape of `sigma`.

    Attributes:
        sigma: Standard deviation of the coordinates seen only at test time.
        test_error: Probability of the wrong sign.
        projnorm_linear: ProjNormLinear.
        confidence: Mean of the larger softmax probability of ``(z, -z)``; sigma does not enter.
        squared_loss: Mean squared error on the +-1 labels.
        theta_norm: Norm of the minimum-norm solution; sigma does not enter.
        kappa: The implicit ridge of the shifted sample.
    """

    sigma: FloatArray
    test_error: FloatArray
    projnorm_linear: FloatArray
    confidence: FloatArray
    squared_loss: FloatArray
    theta_norm: FloatArray
    kappa: FloatArray


def deterministic_projnorm(theta: ArrayLike, covariance_eigenvalues: ArrayLike, m: int) -> DeterministicProjNorm:
    r"""ProjNormLinear of fixed weights against `m` Gaussian rows.

    .. math:: \sum_i \frac{s_i}{s_i + \kappa} = m, \qquad
              \mathbb E\,\|(I - \tilde P)\theta\|^2 \approx \sum_i \frac{\kappa}{s_i + \kappa}\,\theta_i^2

    Args:
        theta: Weights in the eigenbasis of the covariance, shape ``(d,)`` or ``(d, c)``.
        covariance_eigenvalues: :math:`s_i \ge 0`, in the order of `theta`, shape ``(d,)``.
        m: Number of rows.

    Raises:
        InputError: If a shape is wrong, an entry is not finite, an eigenvalue is negative, or ``m < 1``.

    >>> round(deterministic_projnorm([1.0, 0.0, 0.0, 0.0], [1.0] * 4, 1).value ** 2, 9)  # one row spans a quarter
    0.75
    """
    s = as_vector(covariance_eigenvalues, "covariance_eigenvalues")
    if np.any(s < 0.0):
        raise InputError(f"`covariance_eigenvalues` must be zero or more; the smallest is {s.min():.6g}.")
    theta = as_rows(theta, "theta", rows=s.size, rows_like="`covariance_eigenvalues`")
    m = as_count(m, "m", low=1)
    kappa = _implicit_ridge(s, m)
    missed = np.where(s == 0.0, 1.0, kappa / np.where(s == 0.0, 1.0, s + kappa))
    squares = np.sum(theta.reshape(s.size, -1) ** 2, axis=1)
    return DeterministicProjNorm(math.sqrt(float(missed @ squares)), kappa)


def toy_asymptotics(sigma: ArrayLike, *, d1: int, d2: int, n: int, m: int) -> ToyAsymptotics:
    r"""Closed forms of the toy experiment: labels :math:`\operatorname{sign}(x_1 + x_d)`, `d2` coordinates unseen.

    Args:
        sigma: One standard deviation or an array of them, zero or more.
        d1: Coordinates of unit variance in both sets.
        d2: Coordinates that vanish in training and have standard deviation `sigma` at test time.
        n: Training examples, ``n <= d1 - 4`` or ``n >= d1 + 4``; between, :math:`\|\hat\theta\|^2` has no variance.
        m: Shifted examples.

    Raises:
        InputError: If a size is out of range, or `sigma` is negative or not finite.

    >>> toy = toy_asymptotics([0.0, 5.0], d1=1000, d2=500, n=500, m=500)
    >>> toy.test_error.round(3).tolist(), toy.projnorm_linear.round(3).tolist()
    ([0.34, 0.47], [0.584, 0.777])
    """
    sigma = np.asarray(_as_sigma(sigma))
    d1, d2 = as_count(d1, "d1", low=1), as_count(d2, "d2", low=1)
    n, m = as_count(n, "n", low=1), as_count(m, "m", low=1)
    theta_1, theta_norm = _toy_theta(d1, n)
    kappa = _toy_implicit_ridge(sigma, d1, d2, m)
    label_scale = np.sqrt(1 + sigma**2)
    constant = np.ones_like(sigma)
    return ToyAsymptotics(
        sigma=sigma,
        test_error=np.arccos(theta_1 / (theta_norm * label_scale)) / math.pi,
        projnorm_linear=theta_norm * np.sqrt(kappa / (1 + kappa)),
        confidence=_mean_confidence(theta_norm) * constant,
        squared_loss=1 + theta_norm**2 - 2 * _MEAN_ABS * theta_1 / label_scale,
        theta_norm=theta_norm * constant,
        kappa=kappa,
    )


def _as_sigma(sigma: ArrayLike) -> FloatArray:
    values = np.asarray(sigma)
    checked = as_vector(values.ravel(), "sigma")
    if np.any(checked < 0.0) or np.any(checked > _LARGEST_SIGMA):
        raise InputError(
            f"`sigma` must lie between 0 and {_LARGEST_SIGMA:g}; got {checked.min():g} to {checked.max():g}."
        )
    return checked.reshape(values.shape)


def _implicit_ridge(s: FloatArray, m: int) -> float:
    """The kappa with ``sum s / (s + kappa) = m``; 0 when at most `m` eigenvalues are nonzero."""
    log_s = np.sort(np.log(s[s > 0.0]))[::-1]
    if log_s.size <= m:
        return 0.0

    def excess(log_kappa: float) -> float:
        return float(np.sum(expit(log_s - log_kappa))) - m

    # The m + 1 largest alone bound the root from below, the trace from above; either may be it, to within rounding.
    low, high = float(log_s[m]) - math.log(m), float(logsumexp(log_s)) - math.log(m)
    return math.exp(brentq(excess, low - 1e-9, high + 1e-9, xtol=4 * EPS, rtol=4 * EPS))


def _toy_implicit_ridge(sigma: FloatArray, d1: int, d2: int, m: int) -> FloatArray:
    """The positive root of ``m k^2 + b k - sigma^2 (d1 + d2 - m) = 0``, which ``d1/(1+k) + d2 s2/(s2+k) = m`` is."""
    variance = sigma**2
    b = (m - d1) + (m - d2) * variance
    free = variance * max(d1 + d2 - m, 0)
    root = np.hypot(b, 2 * np.sqrt(m * free))
    # The form without cancellation on either side of b = 0.
    with np.errstate(divide="ignore", invalid="ignore"):
        kappa = np.where(b > 0, 2 * free / (b + root), (root - b) / (2 * m))
    return kappa if m < d1 + d2 else np.zeros_like(sigma)


def _toy_theta(d1: int, n: int) -> tuple[float, float]:
    """Mean of the first weight and root mean square norm of the minimum-norm solution."""
    if n <= d1 - 4:
        theta_1 = _MEAN_ABS * n / d1
        square = _MEAN_ABS**2 * n / d1 + _UNEXPLAINED * n / (d1 - n - 1)
    elif n >= d1 + 4:
        theta_1 = _MEAN_ABS
        square = _MEAN_ABS**2 + _UNEXPLAINED * d1 / (n - d1 - 1)
    else:
        raise InputError(
            f"`n` must be at most d1 - 4 = {d1 - 4} or at least d1 + 4 = {d1 + 4}: closer to d1 the norm of the "
            f"solution has no finite variance; got {n}."
        )
    return theta_1, math.sqrt(square)


def _mean_confidence(theta_norm: float) -> float:
    """``E sigmoid(2 ||theta|| |z|)`` for a standard normal `z`."""

    def density(z: float) -> float:
        return 2 * math.exp(-z * z / 2) / math.sqrt(2 * math.pi) * float(expit(2 * theta_norm * z))

    # The integrand turns at z ~ 1 / theta_norm and has vanished at z = 40.
    turn = min(1.0, 10 / theta_norm)
    return sum(quad(density, low, high, epsabs=1e-12, limit=200)[0] for low, high in ((0, turn), (turn, 10), (10, 40)))
