"""What loss, error and ProjNormLinear come to for large samples of Gaussian rows, before any is drawn.

Section 8 of docs/theory.md. Covariances need not commute; labels may be noisy and both fits may have a ridge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from projnorm_theory.errors import InputError
from projnorm_theory.implicit_ridge import ImplicitRidge
from projnorm_theory.results import Result
from projnorm_theory.validation import (
    FloatArray,
    as_count,
    as_finite_result,
    as_gram,
    as_non_negative,
    as_rows,
    as_vector,
    precision_of,
)


@dataclass(frozen=True, slots=True, eq=False)
class Equivalents(Result):
    r"""Values that the quantities of a linear model concentrate on.

    Attributes:
        loss: TestLoss against noiseless target labels, summed over outputs. Noise in the target's labels adds its
            variance for each output.
        projnorm_linear: ProjNormLinear, the root of what its square concentrates on.
        theta_norm: Norm of the weights :math:`\hat\theta`, likewise.
        error: Probability that the sign of an output differs from the sign of the noiseless label, the mean over
            outputs; nan where the truth or the fit has no variance on the target.
        effective: Smaller of `effective_train` and `effective_ood`. Relative errors are of the order of its inverse.
        effective_train: Effective number of training rows :math:`N = n - \operatorname{tr}(ARAR)`; infinite where the
            fit is exact, which needs no noise, no ridge and at least as many rows as the rank of `A`.
        effective_ood: The same of the target, :math:`m - \operatorname{tr}(B\tilde RB\tilde R)`; infinite where its
            rows span every direction of nonzero variance and there is no ridge. The loss does not depend on it.
        kappa: Implicit ridge of the training sample.
        kappa_ood: Implicit ridge of the target sample.
        mean_theta: Mean of the weights, shape of `theta_star`.
        output_scale: Root mean square of the outputs on the target, summed over outputs.
    """

    loss: float
    projnorm_linear: float
    theta_norm: float
    error: float
    effective: float
    effective_train: float
    effective_ood: float
    kappa: float
    kappa_ood: float
    mean_theta: FloatArray
    output_scale: float

    def headline(self) -> str:
        """Loss, ProjNormLinear and error, and how far they are to be relied on."""
        values = f"loss {self.loss:.6g}, ProjNormLinear {self.projnorm_linear:.6g}, error of the sign {self.error:.4g}"
        return f"Expected {values} ({self.effective:.4g} effective rows)"


def equivalents(
    theta_star: ArrayLike,
    A: ArrayLike,
    B: ArrayLike,
    *,
    n: int,
    m: int,
    noise: float = 0.0,
    ridge: float = 0.0,
    ridge_ood: float = 0.0,
) -> Equivalents:
    r"""Deterministic equivalents of loss, error, ProjNormLinear and the norm of the weights.

    The training set has `n` independent rows :math:`x \sim \mathcal N(0, A)` with labels
    :math:`x^\top\theta_\star + \varepsilon`, and the target set has `m` independent rows from
    :math:`\mathcal N(0, B)`. The weights are :math:`\hat\theta = X^\top(K + aI)^{-1}Y`, the minimum-norm solution where
    the ridge :math:`a` is 0. With :math:`n - a/\kappa = \operatorname{tr} A(A + \kappa)^{-1}`,
    :math:`R = (A + \kappa)^{-1}`, :math:`M = \kappa R` and the noise variance :math:`s^2`,

    .. math::
        \mathbb E\,\hat\theta^\top D\,\hat\theta &\approx \theta_\star^\top (I - M) D (I - M)\theta_\star
            + g_D \bigl(\kappa^2\,\theta_\star^\top RAR\,\theta_\star + s^2\bigr), \qquad
            g_D = \frac{\operatorname{tr}(ARDR)}{n - \operatorname{tr}(ARAR)} \\
        \mathbb E\,\mathrm{TestLoss} &\approx \theta_\star^\top MBM\theta_\star
            + g_B \bigl(\kappa^2\,\theta_\star^\top RAR\,\theta_\star + s^2\bigr)

    The square of ProjNormLinear is the first line with :math:`D = \tilde\kappa\tilde R` of the target, or with a ridge
    :math:`b` there :math:`D = (\tilde\kappa - b\tilde\kappa')\tilde R + b\tilde\kappa\tilde\kappa'\tilde R^2`.

    Relative errors of these means are at most about :math:`1/N`, where :math:`N` is `effective`, or :math:`4/N` where
    rows outnumber the rank and only a small ridge keeps the fit from being exact. The error of the sign further needs
    outputs to which many directions of `B` contribute.

    Args:
        theta_star: Ground truth, shape ``(d,)`` or ``(d, c)``.
        A: Covariance of the training rows, shape ``(d, d)``, or its diagonal, shape ``(d,)``; it may be singular. With
            two diagonals nothing of shape ``(d, d)`` is formed.
        B: Covariance of the target rows, likewise.
        n: Number of training rows.
        m: Number of target rows.
        noise: Standard deviation :math:`s` of the noise in each training label.
        ridge: Ridge :math:`a` of the training fit, added to :math:`K = XX^\top` itself (not to its mean over rows).
        ridge_ood: Ridge :math:`b` of the fit to the pseudo-labels, added to :math:`\tilde K`.

    Raises:
        InputError: If a shape is wrong, an entry is not finite, a covariance is not symmetric and positive
            semi-definite, a size is below 1, or `noise` or a ridge is negative; also if `n` is the rank of `A` and
            there is noise but no ridge, where the loss has no finite mean.

    >>> flat = equivalents([1.0, 0.0, 0.0, 0.0], [1.0] * 4, [1.0] * 4, n=2, m=1)
    >>> round(flat.loss, 9), round(flat.theta_norm**2, 9)  # two of four directions are learnt
    (0.5, 0.5)
    """
    train_covariance, ood_covariance = Covariance.from_matrix(A, "A"), Covariance.from_matrix(B, "B")
    s, t = train_covariance.eigenvalues, ood_covariance.eigenvalues
    if s.size != t.size:
        raise InputError(f"`B` must have {s.size} features like `A`; got {t.size}.")
    theta_star = as_rows(theta_star, "theta_star", rows=s.size, rows_like="`A`")
    n, m = as_count(n, "n", low=1), as_count(m, "m", low=1)
    noise, ridge = as_non_negative(noise, "noise"), as_non_negative(ridge, "ridge")
    train, ood = (
        ImplicitRidge.from_eigenvalues(s, n, ridge),
        ImplicitRidge.from_eigenvalues(t, m, as_non_negative(ridge_ood, "ridge_ood")),
    )
    exact = train.kappa == 0.0 and noise == 0.0
    if train.effective == 0.0 and not exact:
        raise InputError(
            "`n` must not be the rank of `A` where there is noise and no ridge, since the loss has no finite mean "
            f"there; got n = {n} and a covariance of that rank."
        )

    theta = train_covariance.coordinates(theta_star.reshape(s.size, -1))
    mean_theta = train_covariance.vector(train.learnt[:, None] * theta)
    with np.errstate(over="ignore", invalid="ignore"):
        excess = s @ (train.missed[:, None] * theta) ** 2 + noise * noise
        influence = ood_covariance.variances(train_covariance, train.influence)
        variance = np.zeros_like(theta) if exact else np.outer(influence, excess / train.effective)
    target = _on_target(train_covariance, ood_covariance, train, ood, theta, variance)
    effective_train = math.inf if exact else train.effective
    effective_ood = math.inf if ood.kappa == 0.0 else ood.effective
    return Equivalents(
        loss=as_finite_result(target.loss, "the loss"),
        projnorm_linear=math.sqrt(as_finite_result(target.projnorm_square, "ProjNormLinear")),
        theta_norm=math.sqrt(as_finite_result(target.theta_square, "the norm of the weights")),
        error=target.error,
        effective=min(effective_train, effective_ood),
        effective_train=effective_train,
        effective_ood=effective_ood,
        kappa=train.kappa,
        kappa_ood=ood.kappa,
        mean_theta=mean_theta.reshape(theta_star.shape),
        output_scale=math.sqrt(target.output_square),
    )


class _OnTarget(NamedTuple):
    """Means of the squares on the target, and the error of the sign, as `Equivalents` describes them."""

    loss: float
    projnorm_square: float
    theta_square: float
    error: float
    output_square: float


def _on_target(
    train_covariance: Covariance,
    ood_covariance: Covariance,
    train: ImplicitRidge,
    ood: ImplicitRidge,
    theta: FloatArray,
    variance: FloatArray,
) -> _OnTarget:
    """The means on the target, computed in the eigenvectors of its covariance.

    Args:
        train_covariance: Covariance of the training rows.
        ood_covariance: Covariance of the target rows.
        train: Implicit ridge of the training sample.
        ood: Implicit ridge of the target sample.
        theta: Ground truth in the eigenvectors of the training covariance, shape ``(d, c)``.
        variance: Variance of the weights along the eigenvectors of the target covariance, shape ``(d, c)``.
    """
    t = ood_covariance.eigenvalues
    mean, missed, truth = (
        ood_covariance.coordinates(train_covariance.vector(weights))
        for weights in (train.learnt[:, None] * theta, train.missed[:, None] * theta, theta)
    )
    with np.errstate(over="ignore", invalid="ignore"):
        square = mean**2 + variance
        outputs = t @ square
        return _OnTarget(
            loss=float(np.sum(t @ (missed**2 + variance))),
            projnorm_square=float(np.sum(ood.missed_square @ square)),
            theta_square=float(np.sum(square)),
            error=float(np.mean(sign_error(t @ (mean * truth), outputs, t @ truth**2))),
            output_square=float(np.sum(outputs)),
        )


def sign_error(covariance: FloatArray, variance: FloatArray, other_variance: FloatArray) -> FloatArray:
    """Probability that two jointly normal numbers of mean zero differ in sign; nan where one of them is zero."""
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine = covariance / (np.sqrt(variance) * np.sqrt(other_variance))
    return np.arccos(np.clip(cosine, -1.0, 1.0)) / math.pi


@dataclass(frozen=True, slots=True, eq=False)
class Covariance:
    """A covariance by its eigenvalues and eigenvectors; a diagonal one needs no eigenvectors.

    Attributes:
        eigenvalues: Eigenvalues, zero or more, shape ``(d,)``.
        eigenvectors: Eigenvectors as columns, shape ``(d, d)``; None for the coordinates themselves.
    """

    eigenvalues: FloatArray
    eigenvectors: FloatArray | None

    @classmethod
    def from_matrix(cls, value: ArrayLike, name: str) -> Covariance:
        """Check a covariance matrix or the diagonal of one; eigenvalues that are rounding alone become zero."""
        if _is_vector(value):
            diagonal = as_vector(value, name)
            if np.any(diagonal < 0.0):
                raise InputError(f"`{name}` must be zero or more; the smallest entry is {diagonal.min():.6g}.")
            return cls(diagonal, None)
        values, vectors = np.linalg.eigh(as_gram(value, name))
        cutoff = values.size * precision_of(value) * float(np.abs(values).max())
        if values[0] < -max(cutoff, 1e-7 * values[-1]):
            raise InputError(
                f"`{name}` must be positive semi-definite; its eigenvalues run from {values[0]:.3g} to "
                f"{values[-1]:.3g}."
            )
        return cls(np.where(values > cutoff, values, 0.0), vectors)

    def coordinates(self, vectors: FloatArray) -> FloatArray:
        """Vectors in terms of the eigenvectors."""
        return vectors if self.eigenvectors is None else self.eigenvectors.T @ vectors

    def vector(self, coordinates: FloatArray) -> FloatArray:
        """The inverse of `coordinates`."""
        return coordinates if self.eigenvectors is None else self.eigenvectors @ coordinates

    def form(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """The covariance of ``x @ left`` and ``x @ right``."""
        return self.eigenvalues @ (self.coordinates(left) * self.coordinates(right))

    def variances(self, other: Covariance, variances: FloatArray) -> FloatArray:
        """Variances along these eigenvectors of a vector that is uncorrelated along those of `other`."""
        if self.eigenvectors is None and other.eigenvectors is None:
            return variances
        rotation = self.coordinates(np.eye(variances.size) if other.eigenvectors is None else other.eigenvectors)
        return rotation**2 @ variances


def _is_vector(value: ArrayLike) -> bool:
    try:
        return np.ndim(value) == 1
    except ValueError:  # ragged, which the check of a matrix says
        return False
