"""Intervals for the test loss from the spectra: the paper's Proposition and our generalisation of it.

Sections 2 and 3 of docs/theory.md; the sharp interval of section 4 is in `sharp`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from numpy.typing import ArrayLike

from projnorm_theory.linear_pair import LinearPair, TrainingFit, as_pair
from projnorm_theory.norms import frobenius
from projnorm_theory.results import Result
from projnorm_theory.spectra import span_gap
from projnorm_theory.validation import FloatArray, InputError, as_count, as_finite_result, as_range


@dataclass(frozen=True, slots=True, eq=False)
class LossInterval(Result):
    """An interval for the test loss, with what it rests on.

    Attributes:
        lower: Lower end for TestLoss.
        upper: Upper end for TestLoss.
        ratio_lower: Lower end for TestLoss / ProjNormLinear^2; nan where ProjNormLinear is zero to rounding.
        ratio_upper: Upper end for the same ratio.
        projnorm_linear: ProjNormLinear of the minimum-norm solution.
        rho: The values of ``||P~ theta*|| / ||P theta*||`` it allows, (low, high).
        training_residual: ``||X theta - Y||``.
        interpolates: Whether that is rounding only. If not, the interval speaks of a `theta*` whose projection on the
            training row space is the fitted `theta`.
        assumptions: What must be true for the interval to hold, in words.
    """

    lower: float
    upper: float
    ratio_lower: float
    ratio_upper: float
    projnorm_linear: float
    rho: tuple[float, float]
    training_residual: float
    interpolates: bool
    assumptions: tuple[str, ...]

    def headline(self) -> str:
        """The ends, and whether the assumptions that need no labels hold."""
        checked = {True: ", valid", False: ", NOT valid: an assumption that needs no labels fails", None: ""}
        low, high = self.rho
        ratio = f"rho = {low:.4g}" if low == high else f"rho from {low:.4g} to {high:.4g}"
        fit = "" if self.interpolates else ", the training data is not interpolated"
        valid = checked[getattr(self, "valid", None)]
        return f"TestLoss from {self.lower:.6g} to {self.upper:.6g} ({ratio}{valid}{fit})"

    def contains(self, loss: float, *, rtol: float = 0.0) -> bool:
        """Whether `loss` lies in the interval widened by ``rtol`` times its upper end."""
        slack = rtol * self.upper
        return self.lower - slack <= loss <= self.upper + slack


@dataclass(frozen=True, slots=True, eq=False)
class SpectralInterval(LossInterval):
    r"""A `LossInterval` that leans on a span shared by the top-k eigenvectors of both covariances.

    Attributes:
        k: Dimension of the shared span.
        overlap: :math:`c = \|\tilde P_\perp p\| / \|p\|` of the part `p` of theta outside the shared span.
        span_gap: Sine of the largest angle between the two top-k spans; 0 at k = 0.
        eigengap: Relative drop of the eigenvalues after the k-th, the smaller of the two spectra; 1 at k = 0. A span
            behind a small gap is ill determined.
        valid: Whether the assumptions that need no labels hold to within `LinearPair.sine_tolerance`.
    """

    k: int
    overlap: float
    span_gap: float
    eigengap: float
    valid: bool


def proposition_bound(
    X: ArrayLike | LinearPair, Y: ArrayLike, X_ood: ArrayLike | None = None, *, k: int
) -> SpectralInterval:
    r"""The paper's Proposition, for eigenvalues :math:`\lambda_j` of :math:`\tilde X^\top\tilde X`.

    .. math:: \frac{\lambda_r}{m} \le \frac{\mathrm{TestLoss}}{\mathrm{ProjNormLinear}^2} \le \frac{\lambda_{k+1}}{m}

    Read as its proof needs it: the eigenvalues are not divided by `m` a second time, and the two tails are
    orthogonal. The smallest nonzero eigenvalue :math:`\lambda_r` stands for :math:`\lambda_m`; the two differ only
    where `X_ood` is rank deficient and :math:`\lambda_m = 0` says nothing.

    Args:
        X: Training inputs, shape ``(n, d)``; or a `LinearPair`, and then no `X_ood`.
        Y: Training responses, shape ``(n,)`` or ``(n, c)``.
        X_ood: Shifted inputs, shape ``(m, d)``.
        k: Dimension of the span shared by the top eigenvectors, at least 0 and below ``min(n, m)``.

    Raises:
        InputError: If a shape is wrong, an entry is not finite, or `k` is out of range.
    """
    pair = as_pair(X, X_ood)
    top = min(pair.train_rank, pair.ood_rank, pair.n_train - 1, pair.n_ood - 1)
    k = as_count(k, "k", low=0, high=top, because=" (within both ranks and below both sample counts)")
    fit = pair.fit(Y)
    highest, lowest = tail_ends(pair.ood_eigenvalues, k)
    projnorm = pair.distance_to_ood(fit.coordinates)
    return _spectral_interval(
        pair,
        fit,
        k,
        ends=(lowest / pair.n_ood * projnorm * projnorm, highest / pair.n_ood * projnorm * projnorm),
        rho=(1.0, 1.0),
        needs_orthogonal_tails=True,
    )


def generalised_bound(
    X: ArrayLike | LinearPair,
    Y: ArrayLike,
    X_ood: ArrayLike | None = None,
    *,
    k: int = 0,
    rho: float | tuple[float, float] = 1.0,
) -> SpectralInterval:
    r"""The Proposition without orthogonal tails and without equal norms.

    .. math:: \tfrac{\lambda_r}{m} (\rho_k - c)^2 \|p\|^2 \le \mathrm{TestLoss}
              \le \tfrac{\lambda_{k+1}}{m} (\rho_k + c)^2 \|p\|^2

    with `p` the part of theta outside the shared span, `c` its overlap with the shifted tail and
    :math:`\rho_k^2 \|p\|^2 = \rho^2\|\hat\theta\|^2 - \|P_0\hat\theta\|^2`. At ``k = 0`` nothing is assumed of the
    spectra and the interval always holds; at ``k > 0`` the top-k spans must coincide, which `span_gap` measures.

    Args:
        X: Training inputs, shape ``(n, d)``; or a `LinearPair`, and then no `X_ood`.
        Y: Training responses, shape ``(n,)`` or ``(n, c)``.
        X_ood: Shifted inputs, shape ``(m, d)``.
        k: Dimension of the shared span, from 0 to the smaller rank.
        rho: :math:`\|\tilde P\theta_\star\| / \|P\theta_\star\|`, or a range (low, high) of it.

    Raises:
        InputError: If a shape is wrong, an entry is not finite, `k` is out of range, or `rho` is negative or smaller
            than the shared span alone allows.
    """
    pair = as_pair(X, X_ood)
    k = as_count(k, "k", low=0, high=min(pair.train_rank, pair.ood_rank), because=", the smaller rank")
    low, high = as_range(rho, "rho")
    fit = pair.fit(Y)
    shared = frobenius(fit.coordinates[:k])
    if high * fit.norm < shared - pair.sine_tolerance * fit.norm:
        raise InputError(
            f"`rho` must be at least {shared / fit.norm:.6g}: the shared span alone carries that much; got {rho!r}."
        )
    # Lengths of q = P~_perp theta* that rho allows, and of s = P~_perp p.
    shortest, longest = (other_leg(end * fit.norm, shared) for end in (low, high))
    overlap = tail_overlap(pair, fit, k) * frobenius(fit.coordinates[k:])
    nearest, farthest = max(0.0, shortest - overlap, overlap - longest), longest + overlap
    highest, lowest = tail_ends(pair.ood_eigenvalues, k)
    return _spectral_interval(
        pair,
        fit,
        k,
        ends=(lowest / pair.n_ood * nearest * nearest, highest / pair.n_ood * farthest * farthest),
        rho=(low, high),
        needs_orthogonal_tails=False,
    )


def tail_ends(eigenvalues: FloatArray, k: int) -> tuple[float, float]:
    """Largest and smallest eigenvalue behind the k-th; zeros when there is none."""
    tail = eigenvalues[k:]
    return (float(tail[0]), float(tail[-1])) if tail.size else (0.0, 0.0)


def tail_overlap(pair: LinearPair, fit: TrainingFit, k: int) -> float:
    r"""The overlap :math:`c = \|\tilde P_\perp p\| / \|p\|` of the fitted weights behind the top-k span; 0 if p = 0."""
    tail = fit.coordinates[k:]
    norm = frobenius(tail)
    return frobenius(pair.cosines[k:, k:] @ tail) / norm if norm else 0.0


def loss_ratio(loss: float, projnorm: float, pair: LinearPair, fit: TrainingFit) -> float:
    """``loss / projnorm**2``, nan where `projnorm` is zero to rounding."""
    return loss / projnorm / projnorm if projnorm > pair.sine_error * fit.norm else math.nan


def other_leg(hypotenuse: float, leg: float) -> float:
    """``sqrt(hypotenuse^2 - leg^2)`` without squaring; 0 where the leg is the longer."""
    return math.sqrt(hypotenuse - leg) * math.sqrt(hypotenuse + leg) if hypotenuse > leg else 0.0


def training_assumptions(fit: TrainingFit) -> tuple[str, ...]:
    """What every interval assumes of the responses, in words."""
    if fit.interpolates:
        return ("covariate shift: one theta* gives the responses of both sets",)
    residual = f"X does not interpolate Y (training residual {fit.residual:.3g})"
    return (f"{residual}: theta* is one whose projection on the training row space is the fitted theta",)


def _spectral_interval(
    pair: LinearPair,
    fit: TrainingFit,
    k: int,
    *,
    ends: tuple[float, float],
    rho: tuple[float, float],
    needs_orthogonal_tails: bool,
) -> SpectralInterval:
    as_finite_result(ends[1], "the interval for the loss")
    projnorm = pair.distance_to_ood(fit.coordinates)
    gap, leak = span_gap(pair, k), frobenius(pair.cosines[k:, k:])
    assumptions = [*training_assumptions(fit), f"||P~ theta*|| / ||P theta*|| in [{rho[0]:.6g}, {rho[1]:.6g}]"]
    if k:
        assumptions.append(f"the top-{k} spans coincide (sine of the largest angle: {gap:.3g})")
    if needs_orthogonal_tails:
        assumptions.append(f"the tails are orthogonal (||P~_perp P_perp||_F: {leak:.3g})")
    return SpectralInterval(
        lower=ends[0],
        upper=ends[1],
        ratio_lower=loss_ratio(ends[0], projnorm, pair, fit),
        ratio_upper=loss_ratio(ends[1], projnorm, pair, fit),
        projnorm_linear=projnorm,
        rho=rho,
        training_residual=fit.residual,
        interpolates=fit.interpolates,
        assumptions=tuple(assumptions),
        k=k,
        overlap=tail_overlap(pair, fit, k),
        span_gap=gap,
        eigengap=min(_eigengap(pair.train_eigenvalues, k), _eigengap(pair.ood_eigenvalues, k)),
        valid=gap <= pair.sine_tolerance and (not needs_orthogonal_tails or leak <= pair.sine_tolerance),
    )


def _eigengap(eigenvalues: FloatArray, k: int) -> float:
    if k == 0:
        return 1.0
    following = eigenvalues[k] if k < eigenvalues.size else 0.0
    return float(1.0 - following / eigenvalues[k - 1])
