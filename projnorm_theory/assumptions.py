"""Diagnostics of the theory's assumptions on labelled data: section 9 of docs/theory.md, one function each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from projnorm_theory.bounds import tail_ends, tail_overlap
from projnorm_theory.errors import InputError
from projnorm_theory.joint import joint_ratio
from projnorm_theory.linear_pair import LinearPair, as_pair
from projnorm_theory.norms import frobenius, spectral
from projnorm_theory.results import Result
from projnorm_theory.spectra import Alignment, PowerLawFit, alignment, fit_power_law, span_gap
from projnorm_theory.validation import FloatArray, as_count

# Up to here every k is looked at; beyond, k grows by a tenth a step, because each costs a decomposition.
_EVERY_K_UP_TO = 100


@dataclass(frozen=True, slots=True, eq=False)
class CovariateShift(Result):
    r"""Whether one ground truth can give the responses of both sets (the paper's Assumption 1).

    Attributes:
        residual: Relative residual of the stacked least-squares problem :math:`[X; \tilde X]\theta = [Y; \tilde Y]`.
        trivial: Whether the stacked rows are independent. The residual is then zero by construction and tells nothing.
        stacked_rank: Rank of the stacked rows.
        ood_floor: Mean squared part of `Y_ood` outside the column space of `X_ood`: a part of TestLoss that no interval
            covers.
    """

    residual: float
    trivial: bool
    stacked_rank: int
    ood_floor: float


@dataclass(frozen=True, slots=True, eq=False)
class NormAssumption(Result):
    r"""The paper's Assumption 2, equal projected norms, measured.

    Attributes:
        train_norm: :math:`\|P\theta_\star\|`.
        ood_norm: :math:`\|\tilde P\theta_\star\|`.
    """

    train_norm: float
    ood_norm: float

    @property
    def rho(self) -> float:
        """``ood_norm / train_norm``: 1 under the assumption; nan where `train_norm` is 0."""
        return self.ood_norm / self.train_norm if self.train_norm else math.nan


@dataclass(frozen=True, slots=True, eq=False)
class BoundTightness(Result):
    """The paper's interval against the true loss for every `k`: a diagnostic, not a bound.

    Attributes:
        k: The values of `k`, shape ``(len(k),)``.
        span_gap: Sine of the largest angle between the top-k spans.
        overlap: The overlap `c` of the fitted weights behind the top-k span.
        lower_over_loss: Lower end of the paper's interval over the true loss; above 1 it fails.
        upper_over_loss: Upper end over the true loss; below 1 it fails.
    """

    k: NDArray[np.intp]
    span_gap: FloatArray
    overlap: FloatArray
    lower_over_loss: FloatArray
    upper_over_loss: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class AssumptionReport(Result):
    r"""Every assumption of the theory, measured on labelled data; prints as a table.

    Attributes:
        k: The shared dimension asked about.
        covariate_shift: Assumption 1.
        norms: Assumption 2.
        eta: :math:`\|P_Z\theta_\star\| / \|P\theta_\star\|`, what `joint_interval` assumes; nan for zero responses.
        span_gap: Sine of the largest angle between the top-k spans (first half of Assumption 3).
        leak: :math:`\|\tilde P_\perp P_\perp\|_2` at `k` (its second half, as the proof needs it).
        overlap: The overlap `c` of the fitted weights at `k`.
        tightness: The paper's interval against the loss, and the span gap, for every k.
        train_decay: Power law of the training spectrum; None with fewer than three eigenvalues.
        ood_decay: The same for the shifted spectrum.
        alignment: Alignment of the leading eigenvectors.
        test_loss: The true test loss.
        projnorm_linear: ProjNormLinear.
        training_residual: :math:`\|X\hat\theta - Y\|`.
        interpolates: Whether that is rounding only.
    """

    k: int
    covariate_shift: CovariateShift
    norms: NormAssumption
    eta: float
    span_gap: float
    leak: float
    overlap: float
    tightness: BoundTightness
    train_decay: PowerLawFit | None
    ood_decay: PowerLawFit | None
    alignment: Alignment
    test_loss: float
    projnorm_linear: float
    training_residual: float
    interpolates: bool

    def __str__(self) -> str:
        shift = self.covariate_shift
        rows = [
            ("quantity", "measured", "ideal", "reading"),
            (
                "covariate-shift residual",
                f"{shift.residual:.3g}",
                "0",
                "zero by construction: the stacked rows are independent" if shift.trivial else "one theta* for both",
            ),
            ("test-loss floor", f"{shift.ood_floor:.3g}", "0", "part of the loss outside every interval"),
            (
                "training residual",
                f"{self.training_residual:.3g}",
                "0",
                "interpolates" if self.interpolates else "does not interpolate",
            ),
            ("rho = ||P~theta*||/||Ptheta*||", f"{self.norms.rho:.4g}", "1", "equal projected norms"),
            (
                "eta = ||P_Z theta*||/||P theta*||",
                f"{self.eta:.4g}",
                "",
                "length in the rows of both sets",
            ),
            (f"span gap at k = {self.k}", f"{self.span_gap:.3g}", "0", "sine of the largest angle of the top spans"),
            (f"tail leak at k = {self.k}", f"{self.leak:.3g}", "0", "largest cosine between the tails"),
            (f"overlap c at k = {self.k}", f"{self.overlap:.3g}", "0", "cosine between theta's tail and theirs"),
            ("training decay", _decay(self.train_decay), "", "exponent of the eigenvalues, with interval"),
            ("shifted decay", _decay(self.ood_decay), "", "the same"),
            ("ProjNormLinear", f"{self.projnorm_linear:.6g}", "", ""),
            ("test loss", f"{self.test_loss:.6g}", "", ""),
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def check_assumptions(
    X: ArrayLike | LinearPair,
    Y: ArrayLike,
    X_ood: ArrayLike | None = None,
    Y_ood: ArrayLike | None = None,
    *,
    k: int,
    ks: Sequence[int] | None = None,
) -> AssumptionReport:
    """Measure every assumption of the theory where the shifted labels are known.

    Args:
        X: Training inputs, shape ``(n, d)``; or a `LinearPair`, and then no `X_ood`.
        Y: Training responses, shape ``(n,)`` or ``(n, c)``.
        X_ood: Shifted inputs, shape ``(m, d)``.
        Y_ood: Their true responses, shape ``(m,)`` or ``(m, c)``; required.
        k: Dimension of the span assumed shared, from 0 to the smaller rank.
        ks: Values of `k` for the curves of `tightness`. Default: every one up to 100, then ever fewer.

    Returns:
        Every measured assumption, with the test loss; `print` shows them as a table.

    Raises:
        InputError: If a shape is wrong, an entry is not finite, or `k` is out of range.

    >>> X, Y = [[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [2.0, 1.0]  # the first direction is shared, the tails are orthogonal
    >>> X_ood = [[3.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    >>> report = check_assumptions(X, Y, X_ood, [3.0, 1.0], k=1)  # print(report) shows all of them as a table
    >>> round(report.norms.rho, 6), round(report.span_gap, 6), round(report.leak, 6), round(report.test_loss, 6)
    (1.0, 0.0, 0.0, 0.5)
    """
    pair = as_pair(X, X_ood)
    k = as_count(k, "k", low=0, high=min(pair.train_rank, pair.ood_rank), because=", the smaller rank")
    if Y_ood is None:
        raise InputError("`Y_ood` is required: the assumptions are about the true shifted responses.")
    fit = pair.fit(Y)
    return AssumptionReport(
        k=k,
        covariate_shift=covariate_shift(pair, Y, Y_ood),
        norms=norm_assumption(pair, Y, Y_ood),
        eta=joint_ratio(pair, Y, Y_ood=Y_ood) if fit.norm else math.nan,
        span_gap=span_gap(pair, k),
        leak=tail_leak(pair, k),
        overlap=tail_overlap(pair, fit, k),
        tightness=bound_tightness(pair, Y, Y_ood, ks=ks),
        train_decay=_decay_of(pair.train_eigenvalues),
        ood_decay=_decay_of(pair.ood_eigenvalues),
        alignment=alignment(pair),
        test_loss=pair.test_loss(fit, Y_ood),
        projnorm_linear=pair.distance_to_ood(fit.coordinates),
        training_residual=fit.residual,
        interpolates=fit.interpolates,
    )


def norm_assumption(pair: LinearPair, Y: ArrayLike, Y_ood: ArrayLike) -> NormAssumption:
    """The two projected norms of the ground truth, from the responses of both sets.

    Args:
        pair: The two row spaces.
        Y: Training responses.
        Y_ood: Shifted responses, with as many outputs.
    """
    return NormAssumption(pair.fit(Y).norm, frobenius(pair.ood_coordinates(Y_ood)))


def covariate_shift(pair: LinearPair, Y: ArrayLike, Y_ood: ArrayLike) -> CovariateShift:
    r"""How far the two sets are from having one ground truth.

    In the coordinates of the pair a ground truth is free in :math:`x = U^\top\theta_\star` and in the directions of
    the shifted row space that the training rows do not determine; the stacked system is solved in those.

    Args:
        pair: The two row spaces.
        Y: Training responses.
        Y_ood: Shifted responses, with as many outputs.

    Raises:
        InputError: If a shape is wrong or an entry is not finite.
    """
    Y = pair.as_responses(Y)
    Y_ood = pair.as_ood_responses(Y_ood, outputs=Y.shape[1])
    free = pair.ood_directions().free
    scores, scores_ood = pair.train_left.T @ Y, pair.ood_left.T @ Y_ood
    outside = frobenius(Y - pair.train_left @ scores)
    outside_ood = frobenius(Y_ood - pair.ood_left @ scores_ood)
    within = 0.0
    if free.shape[1] < pair.ood_rank:
        s, t = pair.train_singular_values, pair.ood_singular_values[:, None]
        system = np.block([[np.diag(s), np.zeros((s.size, free.shape[1]))], [t * pair.cosines, t * free]])
        target = np.vstack([scores, scores_ood])
        solution = linalg.lstsq(system, target, lapack_driver="gelsy", check_finite=False)[0]
        within = frobenius(system @ solution - target)
    size = math.hypot(frobenius(Y), frobenius(Y_ood))
    rank = pair.train_rank + free.shape[1]
    return CovariateShift(
        residual=math.hypot(outside, outside_ood, within) / size if size else 0.0,
        trivial=rank == pair.n_train + pair.n_ood,
        stacked_rank=rank,
        ood_floor=outside_ood * outside_ood / pair.n_ood,
    )


def bound_tightness(
    pair: LinearPair, Y: ArrayLike, Y_ood: ArrayLike, *, ks: Sequence[int] | None = None
) -> BoundTightness:
    """The paper's interval against the true loss as `k` varies, whether or not its assumptions hold.

    Args:
        pair: The two row spaces.
        Y: Training responses.
        Y_ood: Shifted responses, with as many outputs.
        ks: Values of `k`, each from 1 to the smaller rank. Default: every one up to 100, then ever fewer.
    """
    smaller = min(pair.train_rank, pair.ood_rank)
    if ks is None:
        ks = _default_ks(smaller)
    else:
        ks = [as_count(k, "ks", low=1, high=smaller, because=", the smaller rank") for k in ks]
    fit = pair.fit(Y)
    loss = pair.test_loss(fit, Y_ood)
    distance = pair.distance_to_ood(fit.coordinates)
    scale = distance * distance / pair.n_ood
    ends = np.array([tail_ends(pair.ood_eigenvalues, k) for k in ks]).reshape(-1, 2) * scale
    with np.errstate(divide="ignore", invalid="ignore"):
        upper_over_loss, lower_over_loss = (ends / loss).T
    return BoundTightness(
        k=np.array(ks, dtype=np.intp),
        span_gap=np.array([span_gap(pair, k) for k in ks]),
        overlap=np.array([tail_overlap(pair, fit, k) for k in ks]),
        lower_over_loss=lower_over_loss,
        upper_over_loss=upper_over_loss,
    )


def tail_leak(pair: LinearPair, k: int) -> float:
    r""":math:`\|\tilde P_\perp P_\perp\|_2`: cosine of the smallest angle between the spans behind the top-k ones."""
    return spectral(pair.cosines[k:, k:])


def _default_ks(smaller: int) -> list[int]:
    ks = list(range(1, min(smaller, _EVERY_K_UP_TO) + 1))
    while ks and ks[-1] < smaller:
        ks.append(min(smaller, math.ceil(ks[-1] * 1.1)))
    return ks


def _decay_of(eigenvalues: FloatArray) -> PowerLawFit | None:
    """The power law of a spectrum; None where there are too few eigenvalues or they underflow."""
    return fit_power_law(eigenvalues) if eigenvalues.size >= 3 and eigenvalues[-1] > 0.0 else None


def _decay(fit: PowerLawFit | None) -> str:
    return "too few" if fit is None else f"{fit.exponent:.3g} [{fit.low:.3g}, {fit.high:.3g}]"
