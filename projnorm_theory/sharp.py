"""The sharp label-free interval: from the smallest to the largest test loss that the inputs leave possible.

Section 4 of docs/theory.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from projnorm_theory.bounds import LossInterval, loss_ratio, other_leg, training_assumptions
from projnorm_theory.linear_pair import LinearPair, as_pair
from projnorm_theory.norms import frobenius
from projnorm_theory.results import Result
from projnorm_theory.row_space import RowSpace, remove_span
from projnorm_theory.trust_region import extreme_on_sphere
from projnorm_theory.validation import FloatArray, InputError, as_finite_result, as_matrix, as_range, as_rows

# Beyond this the Gram matrices cannot tell which directions the training rows determine.
_COARSEST_SINE = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class SharpInterval(LossInterval):
    r"""A `LossInterval` whose two ends are losses of ground truths, and so is every point between them.

    The one exception: with a single free direction, one output and one `rho` there are just two ground truths, and the
    ends are their losses.

    Attributes:
        free_dim: Dimension of the shifted row space that the training rows leave undetermined.
        sine_tolerance: Directions whose sine against the training row space is no larger counted as determined.
        lower_shift: :math:`W = V^\top(\theta_\star - \hat\theta)` at the lower end, shape ``(ood_rank, c)``.
        upper_shift: The same at the upper end.
    """

    free_dim: int
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

    two trust-region problems. No interval that knows only these inputs can be tighter; `attaining_truths` constructs
    the ground truths at its ends.

    Args:
        X: Training inputs, shape ``(n, d)``; or a `LinearPair`, and then no `X_ood`.
        Y: Training responses, shape ``(n,)`` or ``(n, c)``.
        X_ood: Shifted inputs, shape ``(m, d)``.
        rho: :math:`\|\tilde P\theta_\star\| / \|P\theta_\star\|`, or a range (low, high) of it.

    Raises:
        InputError: If a shape is wrong, an entry is not finite, or no ground truth has such a `rho`.

    >>> interval = sharp_interval([[1.0, 0.0]], [2.0], [[0.0, 3.0]])
    >>> round(interval.lower, 9), round(interval.upper, 9)  # orthogonal rows: (3 * 2)^2 whatever theta* is
    (36.0, 36.0)
    """
    pair = as_pair(X, X_ood)
    low, high = as_range(rho, "rho")
    fit = pair.fit(Y)
    if pair.sine_error > _COARSEST_SINE:
        raise InputError(
            f"the Gram matrices are too ill conditioned for a sharp interval: angles between the row spaces are known "
            f"to a sine of {pair.sine_error:.2g} only. Pass features, float64 kernels, or a larger `rcond`."
        )
    free = pair.free_ood_directions()
    seen = pair.cosines @ fit.coordinates
    seen_free = free.T @ seen
    determined = frobenius(seen - free @ seen_free)

    shortest, longest = _free_radii(
        (low, high), fit.norm, determined, any_free=free.shape[1] > 0, tolerance=pair.sine_tolerance
    )
    # The lower end is at the allowed radius nearest to ||S_B||, where the loss would be zero.
    nearest = min(max(frobenius(seen_free), shortest), longest)
    # The eigenvectors of B^T A B by singular values of its root, which keeps the small curvatures.
    _, roots, axes_T = np.linalg.svd(
        pair.ood_singular_values[:, None] / math.sqrt(pair.n_ood) * free, full_matrices=False
    )
    curvatures, axes = roots**2, axes_T.T
    centre = axes_T @ seen_free
    reach = longest + frobenius(centre)
    as_finite_result(float(curvatures.max(initial=0.0)) * reach * reach, "the interval for the loss")
    lower = extreme_on_sphere(curvatures, centre, nearest, largest=False)
    upper = extreme_on_sphere(curvatures, centre, longest, largest=True)

    projnorm = pair.distance_to_ood(fit.coordinates)
    return SharpInterval(
        lower=lower.value,
        upper=upper.value,
        ratio_lower=loss_ratio(lower.value, projnorm, pair, fit),
        ratio_upper=loss_ratio(upper.value, projnorm, pair, fit),
        projnorm_linear=projnorm,
        rho=(low, high),
        training_residual=fit.residual,
        interpolates=fit.interpolates,
        assumptions=(
            *training_assumptions(fit),
            f"||P~ theta*|| / ||P theta*|| in [{low:.6g}, {high:.6g}]",
        ),
        free_dim=free.shape[1],
        sine_tolerance=pair.sine_tolerance,
        lower_shift=free @ (axes @ (lower.point - centre)),
        upper_shift=free @ (axes @ (upper.point - centre)),
    )


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
    """
    X = as_matrix(X, "X")
    X_ood = as_matrix(X_ood, "X_ood", columns=X.shape[1])
    Y = as_rows(Y, "Y", rows=X.shape[0], rows_like="`X`")
    train, ood = RowSpace.of(X), RowSpace.of(X_ood)
    interval = sharp_interval(LinearPair.of_row_spaces(train, ood), Y, rho=rho)
    theta = train.solve(Y)
    new_directions, sines, principal_T = np.linalg.svd(remove_span(train.basis, ood.basis), full_matrices=False)
    free = slice(0, interval.free_dim)

    def lift(shift: FloatArray) -> FloatArray:
        addition = new_directions[:, free] @ ((principal_T[free] @ shift) / sines[free, None])
        return theta + addition.reshape(theta.shape)

    return AttainingTruths(lift(interval.lower_shift), lift(interval.upper_shift), interval)


def _free_radii(
    rho: tuple[float, float], theta_norm: float, determined: float, *, any_free: bool, tolerance: float
) -> tuple[float, float]:
    """Radii left to the free part of ``P~ theta*`` when its determined part has length `determined`.

    `tolerance` forgives the rounding of a `rho` that was itself measured.
    """
    low, high = (end * theta_norm for end in rho)
    slack = tolerance * theta_norm
    if high < determined - slack:
        raise InputError(
            f"`rho` must be at least {determined / theta_norm:.6g}, the length that the training data fix of the "
            f"projection of theta* on the shifted row space; got {_shown(rho)}."
        )
    if any_free:
        return other_leg(low, determined), other_leg(high, determined)
    if low > determined + slack:
        raise InputError(
            f"`rho` must be {determined / theta_norm:.6g}: the rows of `X_ood` lie in the row space of `X`, so the "
            f"training data fix the projection of theta* on them; got {_shown(rho)}."
        )
    return 0.0, 0.0


def _shown(rho: tuple[float, float]) -> str:
    return f"{rho[0]:.6g}" if rho[0] == rho[1] else f"({rho[0]:.6g}, {rho[1]:.6g})"
