"""The sharp label-free interval: from the smallest to the largest test loss that the inputs leave possible.

`sharp_interval` computes it. The theorem and its proof are section 4 of docs/theory.md, "The sharp interval": every
ground truth that fits the training data has a loss in it, and `attaining_truths` builds one at each end, so no interval
that knows only the inputs, the training labels and `rho` can be smaller. What rounding does to it is in section 10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from projnorm_theory.bounds import (
    RatioInterval,
    fit_with_ratio,
    interval_fields,
    loss_ends,
    other_leg,
    rho_assumption,
    shown_range,
)
from projnorm_theory.errors import InputError
from projnorm_theory.linear_pair import RATIO_SLACK, LinearPair, as_pair
from projnorm_theory.norms import frobenius
from projnorm_theory.results import Result
from projnorm_theory.row_space import RowSpace, remove_span
from projnorm_theory.trust_region import SphereExtreme, extreme_on_sphere
from projnorm_theory.validation import EPS, FloatArray, as_finite_result, as_range, as_rows

# Rounding units in the lengths whose difference of squares is a radius.
_RADIUS_ROUNDINGS = 8


class InfeasibleRatioError(InputError):
    """No ground truth that fits the training data has this ratio of projected norms."""


@dataclass(frozen=True, slots=True, eq=False)
class SharpInterval(RatioInterval):
    r"""A `RatioInterval` whose two ends are losses of ground truths, and so is every point between them.

    The one exception is a single free direction with one output. Its ground truths then lie at two points for one `rho`
    and on two segments for a range of it, and their losses fill one or two intervals that reach both ends.

    Attributes:
        free_dim: Dimension of the shifted row space that the training rows leave undetermined, uncertain directions
            included.
        uncertain_dim: How many of those directions rounding leaves uncertain. They widen the interval, which allows
            both that they are free and that they are shared.
        sine_tolerance: Largest sine against the training row space that was not told from zero.
        lower_shift: :math:`W = V^\top(\theta_\star - \hat\theta)` at the lower end, shape ``(ood_rank, c)``.
        upper_shift: The same at the upper end.
    """

    free_dim: int
    uncertain_dim: int
    sine_tolerance: float
    lower_shift: FloatArray
    upper_shift: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class AttainingTruths(Result):
    r"""Two ground truths consistent with everything known, at the two ends of the sharp interval.

    Attributes:
        best: The :math:`\theta_\star` of smallest test loss, of the shape of theta.
        worst: The :math:`\theta_\star` of largest test loss.
        interval: The interval whose ends they attain.
    """

    best: FloatArray
    worst: FloatArray
    interval: SharpInterval


def sharp_interval(
    X: ArrayLike | LinearPair,
    Y: ArrayLike,
    X_ood: ArrayLike | None = None,
    *,
    rho: float | tuple[float, float] = 1.0,
) -> SharpInterval:
    r"""The range of test losses possible for some ground truth with the given norm ratio.

    With :math:`A = \Lambda/m` in the eigenbasis `V` of the shifted covariance, :math:`S = V^\top\hat\theta` and `B` the
    directions of the shifted row space that the training rows do not determine, it spans

    .. math:: \{\operatorname{tr}(W^\top A W) : W = BZ,\ \|S + W\|_F = \rho\,\|\hat\theta\|_F\},

    two trust-region problems. No interval that knows only these inputs can be tighter;
    `projnorm_theory.attaining_truths` constructs the ground truths at its ends. Proof: docs/theory.md, section 4.

    Args:
        X: Training inputs, shape ``(n, d)``; or a `LinearPair`, and then no `X_ood`.
        Y: Training responses, shape ``(n,)`` or ``(n, c)``.
        X_ood: Shifted inputs, shape ``(m, d)``.
        rho: :math:`\|\tilde P\theta_\star\| / \|P\theta_\star\|`, or a range (low, high) of it.

    Raises:
        InputError: If a shape is wrong, an entry is not finite or `Y` is zero.
        InfeasibleRatioError: If no ground truth has such a `rho`.

    >>> interval = sharp_interval([[1.0, 0.0]], [2.0], [[0.0, 3.0]])
    >>> round(interval.lower, 9), round(interval.upper, 9)  # orthogonal rows: (3 * 2)^2 whatever theta* is
    (36.0, 36.0)
    """
    pair = as_pair(X, X_ood)
    rho = as_range(rho, "rho")
    fit = fit_with_ratio(pair, Y, "rho")
    # Lengths are measured in ||theta|| and singular values in the largest, which keeps every product in range.
    reach = 1.0 + rho[1]
    as_finite_result(reach * reach, "the interval for the loss")
    directions = pair.ood_directions()
    coordinates = fit.coordinates / fit.norm
    bases = [np.hstack([directions.free, directions.uncertain])]
    if directions.uncertain.size:
        # An uncertain direction may as well be shared. Its being free leaves more truths, but the slack in rho that a
        # shared direction is given may let in a loss that is smaller still.
        bases.append(directions.free)
    slack = max(RATIO_SLACK, pair.sine_error)
    rounding = _RADIUS_ROUNDINGS * EPS * reach
    if math.isfinite(fit.norm_error):  # an infinite error has no upper end, whatever the radii
        rounding += fit.norm_error / fit.norm
    outcomes = [_extremes(pair, coordinates, basis, rho, slack=slack, rounding=rounding) for basis in bases]
    feasible = [outcome for outcome in outcomes if isinstance(outcome, _Extremes)]
    if not feasible:
        raise InfeasibleRatioError(str(outcomes[0]))
    best = min(feasible, key=lambda extremes: extremes.lower.value)
    worst = max(feasible, key=lambda extremes: extremes.upper.value)

    t_max = float(pair.ood_singular_values.max(initial=0.0))
    error = fit.prediction_error + t_max * rho[1] * fit.norm_error
    in_eigenvalues = pair.noise * reach * reach  # what rounding of a Gram matrix may do through them
    lower, upper = loss_ends(
        fit,
        t_max * fit.norm * math.sqrt(max(best.lower.value - in_eigenvalues, 0.0)) - error,
        t_max * fit.norm * math.sqrt(worst.upper.value + in_eigenvalues) + error,
        pair.n_ood,
    )
    if pair.undecided[1]:
        lower = 0.0  # eigenvalues that rounding hides may take up any part of the length
    return SharpInterval(
        **interval_fields(
            fit,
            (lower, upper),
            pair.distance_to_ood(fit.coordinates),
            pair.sine_error * fit.norm,
            (*directions.assumption(), rho_assumption(rho)),
        ),
        rho=rho,
        free_dim=bases[0].shape[1],
        uncertain_dim=directions.uncertain.shape[1],
        sine_tolerance=directions.tolerance,
        lower_shift=fit.norm * best.shift(best.lower),
        upper_shift=fit.norm * worst.shift(worst.upper),
    )


def sharp_ends(
    X: ArrayLike | LinearPair, Y: ArrayLike, X_ood: ArrayLike | None = None, *, rho: float | tuple[float, float] = 1.0
) -> FloatArray:
    """Both ends of the sharp interval, shape ``(2,)``; nan where no ground truth has such a `rho`.

    Args:
        X: Training inputs, shape ``(n, d)``; or a `LinearPair`, and then no `X_ood`.
        Y: Training responses, shape ``(n,)`` or ``(n, c)``.
        X_ood: Shifted inputs, shape ``(m, d)``.
        rho: As for `sharp_interval`.

    Raises:
        InputError: If a shape is wrong, an entry is not finite or `Y` is zero.

    >>> X, Y, X_ood = [[1.0, 0.0]], [2.0], [[3.0, 0.0]]  # one row space: rho can only be 1, and the loss 0
    >>> sharp_ends(X, Y, X_ood).round(9).tolist(), sharp_ends(X, Y, X_ood, rho=2.0).tolist()
    ([0.0, 0.0], [nan, nan])
    """
    try:
        interval = sharp_interval(X, Y, X_ood, rho=rho)
    except InfeasibleRatioError:
        return np.full(2, np.nan)
    return np.array([interval.lower, interval.upper])


def attaining_truths(
    X: ArrayLike, Y: ArrayLike, X_ood: ArrayLike, *, rho: float | tuple[float, float] = 1.0
) -> AttainingTruths:
    r"""Ground truths that fit the training data, have the given norm ratio, and attain the sharp interval.

    .. math:: \theta_\star = \hat\theta + (I - P) V \bigl(V^\top (I - P) V\bigr)^{+} W

    Args:
        X: Training inputs, shape ``(n, d)``.
        Y: Training responses, shape ``(n,)`` or ``(n, c)``.
        X_ood: Shifted inputs, shape ``(m, d)``.
        rho: As for `sharp_interval`.

    Raises:
        InputError: As `sharp_interval` does.

    >>> truths = attaining_truths([[1.0, 0.0]], [2.0], [[0.6, 0.8]])
    >>> truths.best.round(6).tolist(), truths.worst.round(6).tolist()  # at equal projections: tan and -cot of half
    ([2.0, 1.0], [2.0, -4.0])
    >>> [round(float((0.6 * t[0] + 0.8 * t[1] - 0.6 * 2) ** 2), 6) for t in (truths.best, truths.worst)]
    [0.64, 10.24]
    >>> round(truths.interval.lower, 6), round(truths.interval.upper, 6)
    (0.64, 10.24)
    """
    train = RowSpace.from_matrix(X)
    ood = RowSpace.from_matrix(X_ood, name="X_ood", columns=train.dim)
    Y = as_rows(Y, "Y", rows=train.left.shape[0], rows_like="`X`")
    interval = sharp_interval(LinearPair.from_row_spaces(train, ood), Y, rho=rho)
    theta = train.solve(Y)
    new_directions, sines, principal_T = np.linalg.svd(remove_span(train.basis, ood.basis), full_matrices=False)
    free = slice(0, interval.free_dim)

    def lift(shift: FloatArray) -> FloatArray:
        addition = new_directions[:, free] @ ((principal_T[free] @ shift) / sines[free, None])
        return theta + addition.reshape(theta.shape)

    return AttainingTruths(lift(interval.lower_shift), lift(interval.upper_shift), interval)


@dataclass(frozen=True, slots=True, eq=False)
class _Extremes:
    """Smallest and largest loss with a given set of free directions, in units of ``(t_max ||theta||)^2 / m``."""

    basis: FloatArray
    centre: FloatArray
    lower: SphereExtreme
    upper: SphereExtreme

    def shift(self, end: SphereExtreme) -> FloatArray:
        """The `W` at one end, in units of ``||theta||``."""
        return self.basis @ (end.point - self.centre)


def _extremes(
    pair: LinearPair,
    coordinates: FloatArray,
    free: FloatArray,
    rho: tuple[float, float],
    *,
    slack: float,
    rounding: float,
) -> _Extremes | str:
    """The two trust-region problems for a fit of unit length, or what `rho` must be where no truth has this one."""
    seen = pair.cosines @ coordinates
    seen_free = free.T @ seen
    determined = frobenius(seen - free @ seen_free)
    radii = _free_radii(rho, determined, any_free=free.shape[1] > 0, slack=slack, rounding=rounding)
    if isinstance(radii, str):
        return radii
    shortest, longest = radii
    # The lower end is at the allowed radius nearest to ||S_B||, where the loss would be zero.
    nearest = min(max(frobenius(seen_free), shortest), longest)
    # The eigenvectors of B^T A B by singular values of its root, which keeps the small curvatures.
    t = pair.ood_singular_values
    _, roots, axes_T = np.linalg.svd((t / t.max(initial=0.0))[:, None] * free, full_matrices=False)
    curvatures, centre = roots**2, axes_T @ seen_free
    return _Extremes(
        free @ axes_T.T,
        centre,
        extreme_on_sphere(curvatures, centre, nearest, largest=False),
        extreme_on_sphere(curvatures, centre, longest, largest=True),
    )


def _free_radii(
    rho: tuple[float, float], determined: float, *, any_free: bool, slack: float, rounding: float
) -> tuple[float, float] | str:
    """Radii left to the free part of ``P~ theta*`` when its determined part has length `determined`.

    `slack` forgives the error of a `rho` that was itself measured; the radii allow for the `rounding` of both lengths.
    Where no radius is left, what `rho` must be.
    """
    low, high = rho
    if high < determined - slack:
        return (
            f"`rho` must be at least {determined:.6g}, the length that the training data fix of the projection of "
            f"theta* on the shifted row space; got {shown_range('rho', rho)}."
        )
    if any_free:
        return other_leg(low - rounding, determined + rounding), other_leg(high + rounding, determined - rounding)
    if low > determined + slack:
        return (
            f"`rho` must be {determined:.6g}: the rows of `X_ood` lie in the row space of `X`, so the training data "
            f"fix the projection of theta* on them; got {shown_range('rho', rho)}."
        )
    return 0.0, 0.0
