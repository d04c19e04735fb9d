"""Intervals for the test loss from the spectra: the paper's Proposition and our generalisation of it.

Sections 2 and 3 of docs/theory.md; `sharp` and `joint` hold the intervals of sections 4 and 5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from projnorm_theory.errors import InputError
from projnorm_theory.linear_pair import RATIO_SLACK, SHARED_SINE, LinearPair, as_pair
from projnorm_theory.norms import frobenius, spectral
from projnorm_theory.results import Result
from projnorm_theory.training_fit import TrainingFit
from projnorm_theory.validation import EPS, FloatArray, as_count, as_finite_result, as_range

# Rounding units by which the square roots of both ends are moved apart, relative to that of the upper end.
OUTWARD_ROUNDINGS = 32
# What rounding may do before a crossing counts: a share of the end crossed, for losses over a tail of condition 1e6,
# and a share of the upper end, for lower ends that are the square of a small difference of lengths.
_RELATIVE_SLACK, _ROUNDING_OF_UPPER = 1e-6, 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class LossInterval(Result):
    """An interval for the test loss, with the quantities that it was computed from.

    Rounding widens it: the square root of each end is moved outwards by what rounding of the data may do to it, and by
    at least 32 eps times the square root of the upper end.

    Attributes:
        lower: Lower end for TestLoss.
        upper: Upper end for TestLoss; infinite where rounding of Gram matrices leaves the fit undecided.
        ratio_lower: Lower end for TestLoss / ProjNormLinear^2; nan where ProjNormLinear is zero to rounding.
        ratio_upper: Upper end for the same ratio.
        projnorm_linear: ProjNormLinear of the minimum-norm solution.
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
    training_residual: float
    interpolates: bool
    assumptions: tuple[str, ...]

    def headline(self) -> str:
        """The ends, and whether the assumptions that need no labels hold."""
        checked = {True: ", valid", False: ", NOT valid: an assumption that needs no labels fails", None: ""}
        fit = "" if self.interpolates else ", the training data is not interpolated"
        valid = checked[getattr(self, "valid", None)]
        return f"TestLoss from {self.lower:.6g} to {self.upper:.6g} ({self._given()}{valid}{fit})"

    def contains(self, loss: float, *, rtol: float = 0.0) -> bool:
        """Whether `loss` lies in the interval widened by ``rtol`` times its upper end."""
        slack = rtol * self.upper
        return self.lower - slack <= loss <= self.upper + slack

    def _given(self) -> str:
        """The ratio that the interval was computed for, as its headline shows it."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class RatioInterval(LossInterval):
    """A `LossInterval` that assumes how long the ground truth is in the one row space against the other.

    Attributes:
        rho: The values of ``||P~ theta*|| / ||P theta*||`` it allows, (low, high).
    """

    rho: tuple[float, float]

    def _given(self) -> str:
        return shown_range("rho", self.rho)


@dataclass(frozen=True, slots=True, eq=False)
class SpectralInterval(RatioInterval):
    r"""A `RatioInterval` that needs the top-k shifted eigenvectors to lie in the training row space.

    Attributes:
        k: Number of those eigenvectors.
        overlap: :math:`c = \|\tilde P_\perp p\| / \|p\|` of the part `p` of theta outside their span.
        span_gap: Sine of the largest angle from their span to the row space of `X`; 0 at k = 0.
        eigengap: Relative drop of the shifted eigenvalues after the k-th; 1 at k = 0. A span behind a small gap is ill
            determined.
        valid: Whether the assumptions that need no labels hold to within rounding. From Gram matrices, which see a sine
            to about 1e-7 at best, a shared span is never taken for certain.
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
    where `X_ood` is rank deficient and :math:`\lambda_m = 0` says nothing. It is enough that the top-k shifted
    eigenvectors lie in the row space of `X`; they need not be its own top ones. Proof: docs/theory.md, section 2.

    Args:
        X: Training inputs, shape ``(n, d)``; or a `LinearPair`, and then no `X_ood`.
        Y: Training responses, shape ``(n,)`` or ``(n, c)``.
        X_ood: Shifted inputs, shape ``(m, d)``.
        k: Number of shifted eigenvectors assumed to lie in the training row space, at least 0 and below ``min(n, m)``.

    Raises:
        InputError: If a shape is wrong, an entry is not finite, or `k` is out of range.

    >>> X, Y = [[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [2.0, 1.0]  # the first direction is shared, the tails are orthogonal
    >>> X_ood = [[3.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    >>> print(proposition_bound(X, Y, X_ood, k=1))
    TestLoss from 0.5 to 0.5 (rho = 1, valid)
    """
    pair = as_pair(X, X_ood)
    top = min(pair.train_rank, pair.ood_rank, pair.n_train - 1, pair.n_ood - 1)
    k = as_count(k, "k", low=0, high=top, because=" (within both ranks and below both sample counts)")
    fit = pair.fit(Y)
    longest, shortest = tail_ends(pair.ood_singular_values, k)
    projnorm = pair.distance_to_ood(fit.coordinates)
    return _spectral_interval(
        pair, fit, k, roots=(shortest * projnorm, longest * projnorm), rho=(1.0, 1.0), needs_orthogonal_tails=True
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

    with `p` the part of theta outside the span of the top-k shifted eigenvectors, `c` its overlap with the shifted tail
    and :math:`\rho_k^2 \|p\|^2 = \rho^2\|\hat\theta\|^2 - \|P_0\hat\theta\|^2`. At ``k = 0`` nothing is assumed of the
    spectra and the interval always holds; at ``k > 0`` the top-k shifted eigenvectors must lie in the row space of `X`,
    which `span_gap` measures.

    Args:
        X: Training inputs, shape ``(n, d)``; or a `LinearPair`, and then no `X_ood`.
        Y: Training responses, shape ``(n,)`` or ``(n, c)``.
        X_ood: Shifted inputs, shape ``(m, d)``.
        k: Number of shifted eigenvectors assumed to lie in the training row space, from 0 to the smaller rank.
        rho: :math:`\|\tilde P\theta_\star\| / \|P\theta_\star\|`, or a range (low, high) of it.

    Raises:
        InputError: If a shape is wrong, an entry is not finite, `k` is out of range, `Y` is zero, or `rho` is negative
            or smaller than the top-k span alone allows.

    >>> X, Y = [[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [2.0, 1.0]  # the first direction is shared, the tails are orthogonal
    >>> X_ood = [[3.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    >>> print(generalised_bound(X, Y, X_ood))  # nothing assumed of the spectra
    TestLoss from 0.0857864 to 26.2279 (rho = 1, valid)
    >>> print(generalised_bound(X, Y, X_ood, k=1))
    TestLoss from 0.5 to 0.5 (rho = 1, valid)
    """
    pair = as_pair(X, X_ood)
    k = as_count(k, "k", low=0, high=min(pair.train_rank, pair.ood_rank), because=", the smaller rank")
    low, high = as_range(rho, "rho")
    fit = fit_with_ratio(pair, Y, "rho")
    seen = pair.cosines @ fit.coordinates
    shared, overlap = frobenius(seen[:k]), frobenius(seen[k:])
    if high * fit.norm < shared - max(RATIO_SLACK, pair.sine_error) * fit.norm:
        raise InputError(
            f"`rho` must be at least {shared / fit.norm:.6g}: the top-{k} span alone carries that much; got {rho!r}."
        )
    # Lengths of q = P~_perp theta* that rho allows, and of s = P~_perp p, as far as rounding lets them be known.
    shortest, longest = (other_leg(end * fit.norm, shared) for end in (low, high))
    radius_error = high * fit.norm_error
    top, bottom = tail_ends(pair.ood_singular_values, k)
    overlap_error = _overlap_error(pair, fit, bottom)
    most_seen = fit.norm + fit.norm_error  # a projection is no longer than what it projects
    if not pair.undecided[1]:
        most_seen = min(most_seen, overlap + overlap_error)
    nearest = max(0.0, shortest - radius_error - most_seen, overlap - overlap_error - longest - radius_error)
    return _spectral_interval(
        pair,
        fit,
        k,
        roots=(smallest_root(pair, bottom) * nearest, top * (longest + radius_error + most_seen)),
        rho=(low, high),
        needs_orthogonal_tails=False,
    )


def fit_with_ratio(pair: LinearPair, Y: ArrayLike, ratio: str) -> TrainingFit:
    """The training fit; an error where it is zero, so that no ratio to its length is defined."""
    fit = pair.fit(Y)
    if fit.norm == 0.0:
        raise InputError(f"`Y` must not be fitted by zero weights: `{ratio}` is a ratio to their length.")
    return fit


def tail_ends(values: FloatArray, k: int) -> tuple[float, float]:
    """Largest and smallest of the values, which descend, behind the k-th; zeros when there is none."""
    tail = values[k:]
    return (float(tail[0]), float(tail[-1])) if tail.size else (0.0, 0.0)


def smallest_root(pair: LinearPair, singular_value: float) -> float:
    """A singular value of `X_ood` less what rounding of a Gram matrix may have added to it."""
    if pair.undecided[1] or singular_value == 0.0:
        return 0.0
    relative = float(pair.ood_singular_values[0]) / singular_value
    return singular_value * math.sqrt(max(1.0 - pair.noise * relative * relative, 0.0))


def loss_ends(fit: TrainingFit, lower_root: float, upper_root: float, n_ood: int) -> tuple[float, float]:
    """Ends for the loss from ends for its root times ``sqrt(m)``, rounded outwards."""
    if fit.norm_error == math.inf:
        return 0.0, math.inf
    slack = OUTWARD_ROUNDINGS * EPS * upper_root
    low, high = max(lower_root - slack, 0.0), upper_root + slack
    return low * (low / n_ood), as_finite_result(high * (high / n_ood), "the interval for the loss")


def tail_overlap(pair: LinearPair, fit: TrainingFit, k: int) -> float:
    r"""The overlap :math:`c = \|\tilde P_\perp p\| / \|p\|` of the fit behind the top-k shifted span; 0 if p = 0."""
    seen = pair.cosines @ fit.coordinates
    within = fit.coordinates - pair.cosines[:k].T @ seen[:k]
    rest = math.hypot(frobenius(within), frobenius(pair.ood_sines[:, :k] @ seen[:k]))
    return min(frobenius(seen[k:]) / rest, 1.0) if rest > pair.sine_error * fit.norm else 0.0


def interval_fields(
    fit: TrainingFit,
    ends: tuple[float, float],
    projnorm: float,
    smallest_projnorm: float,
    assumptions: Sequence[str],
) -> dict[str, Any]:
    """The fields of a `LossInterval`; a ProjNormLinear up to `smallest_projnorm` is rounding and has no ratio."""
    ratios = [end / projnorm / projnorm if projnorm > smallest_projnorm else math.nan for end in ends]
    return {
        "lower": ends[0],
        "upper": ends[1],
        "ratio_lower": ratios[0],
        "ratio_upper": ratios[1],
        "projnorm_linear": projnorm,
        "training_residual": fit.residual,
        "interpolates": fit.interpolates,
        "assumptions": (*training_assumptions(fit), *assumptions),
    }


def rho_assumption(rho: tuple[float, float]) -> str:
    """What an interval assumes of the two projected norms, in words."""
    return f"||P~ theta*|| / ||P theta*|| in [{rho[0]:.6g}, {rho[1]:.6g}]"


def other_leg(hypotenuse: float, leg: float) -> float:
    """``sqrt(hypotenuse^2 - leg^2)`` without squaring; 0 where the leg is the longer."""
    return math.sqrt(hypotenuse - leg) * math.sqrt(hypotenuse + leg) if hypotenuse > leg else 0.0


def training_assumptions(fit: TrainingFit) -> tuple[str, ...]:
    """What every interval assumes of the responses, in words."""
    if fit.norm_error == math.inf:
        where = "a part of Y lies where their eigenvalues are rounding noise"
        return (f"the Gram matrices leave the fit undecided: {where}; pass features, or `rcond` to set the rank",)
    if fit.interpolates:
        return ("covariate shift: one theta* gives the responses of both sets",)
    residual = f"X does not interpolate Y (training residual {fit.residual:.3g})"
    return (f"{residual}: theta* is one whose projection on the training row space is the fitted theta",)


def shown_range(name: str, ends: tuple[float, float]) -> str:
    """A number or a range in a few characters."""
    return f"{name} = {ends[0]:.4g}" if ends[0] == ends[1] else f"{name} from {ends[0]:.4g} to {ends[1]:.4g}"


def containment_gap(pair: LinearPair, k: int) -> float:
    """Sine of the largest angle from the top-k shifted eigenvectors to the training row space; 0 at ``k = 0``."""
    return spectral(pair.ood_sines[:, :k])


def _spectral_interval(
    pair: LinearPair,
    fit: TrainingFit,
    k: int,
    *,
    roots: tuple[float, float],
    rho: tuple[float, float],
    needs_orthogonal_tails: bool,
) -> SpectralInterval:
    ends = loss_ends(fit, *roots, pair.n_ood)
    projnorm = pair.distance_to_ood(fit.coordinates)
    gap, leak = containment_gap(pair, k), frobenius(pair.cosines[k:])
    tolerance = float(pair.sine_tolerances(np.eye(pair.ood_rank, k)).max(initial=0.0))
    contained = k == 0 or (gap == 0.0 and pair.noise == 0.0) or gap <= tolerance <= SHARED_SINE
    orthogonal = leak <= max(RATIO_SLACK, pair.sine_error)
    assumptions = [rho_assumption(rho)]
    if k:
        assumptions.append(
            f"the top-{k} shifted eigenvectors lie in the training row space (sine of the largest angle: {gap:.3g})"
        )
    if needs_orthogonal_tails:
        assumptions.append(f"the other shifted eigenvectors are orthogonal to it (Frobenius cosine: {leak:.3g})")
    return SpectralInterval(
        **interval_fields(fit, ends, projnorm, pair.sine_error * fit.norm, assumptions),
        rho=rho,
        k=k,
        overlap=tail_overlap(pair, fit, k),
        span_gap=gap,
        eigengap=_eigengap(pair.ood_singular_values, k),
        valid=contained and (orthogonal or not needs_orthogonal_tails),
    )


def holds(loss: FloatArray | float, ends: FloatArray) -> NDArray[np.bool_]:
    """Whether each loss lies between its ends, shape ``(..., 2)``, up to rounding; False where the ends are nan.

    Example:
        >>> import numpy as np
        >>> holds(np.array([1.0, 3.0]), np.array([[0.5, 2.0], [0.5, 2.0]]))
        array([ True, False])
    """
    lower, upper = ends[..., 0], ends[..., 1]
    least = lower * (1 - _RELATIVE_SLACK) - upper * _ROUNDING_OF_UPPER
    return (loss >= least) & (loss <= upper * (1 + _RELATIVE_SLACK))


def _overlap_error(pair: LinearPair, fit: TrainingFit, smallest: float) -> float:
    """How far rounding may move the length of the projection of the fit on directions of at least this strength."""
    if smallest == 0.0:
        return 0.0
    if pair.noise:
        return fit.prediction_error / smallest
    # Rounding turns the fit within the training row space by up to the condition number of X.
    s = pair.train_singular_values
    amplified = float(s[0] / s[-1]) + float(pair.ood_singular_values[0]) / smallest
    return pair.sine_unit * amplified * fit.norm


def _eigengap(singular_values: FloatArray, k: int) -> float:
    if k == 0:
        return 1.0
    following = singular_values[k] if k < singular_values.size else 0.0
    return float(1.0 - (following / singular_values[k - 1]) ** 2)
