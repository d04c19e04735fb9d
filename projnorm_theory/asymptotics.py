"""Closed forms for Gaussian inputs in high dimension: ProjNormLinear, and every curve of the toy experiment.

Section 8 of docs/theory.md. Random projections concentrate, so for large sizes one number stands for every draw.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from projnorm_theory.errors import InputError
from projnorm_theory.implicit_ridge import ImplicitRidge
from projnorm_theory.results import Result
from projnorm_theory.sign_labels import MEAN_ABS, as_outputs, mean_confidence
from projnorm_theory.validation import FloatArray, as_count, as_rows, as_vector

_UNEXPLAINED = 1 - 2 / math.pi  # variance of sign(z) that a standard normal z does not explain linearly
_LARGEST_SIGMA = 1e100  # beyond, its square leaves float64 once multiplied by the sizes


@dataclass(frozen=True, slots=True, eq=False)
class DeterministicProjNorm(Result):
    r"""The value ProjNormLinear concentrates on.

    Attributes:
        value: :math:`\bigl(\sum_i \frac{\kappa}{s_i + \kappa}\theta_i^2\bigr)^{1/2}`.
        kappa: The implicit ridge; 0 when the shifted rows span every direction of nonzero variance.
        effective: Effective number of rows :math:`N = \sum_i \frac{s_i\kappa}{(s_i + \kappa)^2}`. The relative error of
            the square is about :math:`1/N`; infinite where `kappa` is 0 and the value is exact.
    """

    value: float
    kappa: float
    effective: float


@dataclass(frozen=True, slots=True, eq=False)
class ToyAsymptotics(Result):
    """Closed forms of the Gaussian toy experiment; each field has the shape of `sigma`.

    Attributes:
        sigma: Standard deviation of the coordinates seen only at test time.
        test_error: Probability of the wrong sign.
        projnorm_linear: ProjNormLinear.
        confidence: Mean of the larger softmax probability, of ``(z, -z)`` where there is one output `z`.
        squared_loss: Mean squared error on the labels, summed over outputs.
        theta_norm: Norm of the minimum-norm solution.
        kappa: The implicit ridge of the shifted sample.
        effective: Smaller effective number of rows of the two samples; relative errors are about its inverse.
    """

    sigma: FloatArray
    test_error: FloatArray
    projnorm_linear: FloatArray
    confidence: FloatArray
    squared_loss: FloatArray
    theta_norm: FloatArray
    kappa: FloatArray
    effective: FloatArray


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
    ridge = ImplicitRidge.from_eigenvalues(s, m)
    squares = np.sum(theta.reshape(s.size, -1) ** 2, axis=1)
    effective = ridge.effective if ridge.kappa > 0.0 else math.inf
    return DeterministicProjNorm(math.sqrt(float(ridge.missed @ squares)), ridge.kappa, effective)


def toy_asymptotics(sigma: ArrayLike, *, d1: int, d2: int, n: int, m: int, outputs: str = "sign") -> ToyAsymptotics:
    r"""Closed forms of the toy experiment: labels :math:`\operatorname{sign}(x_1 + x_d)`, `d2` coordinates unseen.

    The paper's "two-class linear regression" can mean one output `z` on labels +-1, or two outputs on one-hot labels.
    The latter are :math:`(\mathbf 1 \pm y)/2`, so the two columns of the solution are
    :math:`(X^{+}\mathbf 1 \pm \hat\theta)/2` with :math:`\hat\theta` that of the one output. The predicted class is the
    same; the softmax probability is :math:`\mathrm{sigmoid}(|z|)` in place of :math:`\mathrm{sigmoid}(2|z|)`, and

    .. math:: \mathrm{ProjNormLinear}^2 =
              \tfrac12\bigl(\|(I - \tilde P)X^{+}\mathbf 1\|^2 + \|(I - \tilde P)\hat\theta\|^2\bigr)

    Args:
        sigma: One standard deviation or an array of them, zero or more.
        d1: Coordinates of unit variance in both sets.
        d2: Coordinates that vanish in training and have standard deviation `sigma` at test time.
        n: Training examples, ``n <= d1 - 4`` or ``n >= d1 + 4``; between, :math:`\|\hat\theta\|^2` has no variance.
        m: Shifted examples.
        outputs: "sign" for one output on labels +-1, "one-hot" for two outputs on labels 0 and 1.

    Raises:
        InputError: If a size is out of range, `sigma` is negative or not finite, or there is no such `outputs`.

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
    confidence, squared_loss = mean_confidence(theta_norm), 1 + theta_norm**2 - 2 * MEAN_ABS * theta_1 / label_scale
    test_error = np.arccos(theta_1 / (theta_norm * label_scale)) / math.pi
    if as_outputs(outputs) == "one-hot":
        ones_square = _noise_square(d1, n, 1.0)
        confidence = mean_confidence(theta_norm / 2)
        squared_loss = (squared_loss + 1 + ones_square) / 2
        theta_norm = math.sqrt((theta_norm**2 + ones_square) / 2)
    return ToyAsymptotics(
        sigma=sigma,
        test_error=test_error,
        projnorm_linear=theta_norm * np.sqrt(kappa / (1 + kappa)),
        confidence=confidence * constant,
        squared_loss=squared_loss,
        theta_norm=theta_norm * constant,
        kappa=kappa,
        effective=np.minimum(n * (1 - n / d1) if n < d1 else n - d1, _toy_effective(sigma, d1, d2, kappa)),
    )


def _as_sigma(sigma: ArrayLike) -> FloatArray:
    values = np.asarray(sigma)
    checked = as_vector(values.ravel(), "sigma")
    if np.any(checked < 0.0) or np.any(checked > _LARGEST_SIGMA):
        raise InputError(
            f"`sigma` must lie between 0 and {_LARGEST_SIGMA:g}; got {checked.min():g} to {checked.max():g}."
        )
    return checked.reshape(values.shape)


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


def _toy_effective(sigma: FloatArray, d1: int, d2: int, kappa: FloatArray) -> FloatArray:
    """``sum s kappa / (s + kappa)^2`` of the shifted sample; infinite where kappa is 0, and ProjNormLinear with it."""
    kappa_or_one = np.where(kappa > 0.0, kappa, 1.0)
    seen, hidden = kappa_or_one / (1 + kappa_or_one), kappa_or_one / (sigma**2 + kappa_or_one)
    return np.where(kappa > 0.0, d1 * seen * (1 - seen) + d2 * hidden * (1 - hidden), np.inf)


def _toy_theta(d1: int, n: int) -> tuple[float, float]:
    """Mean of the first weight and root mean square norm of the minimum-norm solution."""
    noise = _noise_square(d1, n, _UNEXPLAINED)
    if n > d1:
        return MEAN_ABS, math.sqrt(MEAN_ABS**2 + noise)
    return MEAN_ABS * n / d1, math.sqrt(MEAN_ABS**2 * n / d1 + noise)


def _noise_square(d1: int, n: int, variance: float) -> float:
    """Mean square norm of the minimum-norm solution for labels of this variance that the inputs do not explain."""
    if n <= d1 - 4:
        return variance * n / (d1 - n - 1)
    if n >= d1 + 4:
        return variance * d1 / (n - d1 - 1)
    raise InputError(
        f"`n` must be at most d1 - 4 = {d1 - 4} or at least d1 + 4 = {d1 + 4}: closer to d1 the norm of the "
        f"solution has no finite variance; got {n}."
    )
