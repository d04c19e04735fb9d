"""Both ratios at once: what is left of the losses when `rho` and `eta` are known together.

The losses of section 4 of docs/theory.md under one more quadratic constraint. Such a problem with two constraints need
not be solved by its Lagrangian dual, but the dual always bounds it, and costs a line search over trust-region problems.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from projnorm.core.errors import InputError
from projnorm_theory import LinearPair
from simulations.designs import FloatArray

_SEARCH = 8.0  # the second multiplier is sought between -sinh and sinh of this, in units of its natural size


class TwoRatioInterval(NamedTuple):
    """Bounds on the test loss; no ground truth with both ratios has a loss outside."""

    lower: float
    upper: float


def two_ratio_interval(pair: LinearPair, Y: FloatArray, *, rho: float, eta: float) -> TwoRatioInterval:
    r"""Bounds on the test loss of ground truths with both ratios, for one output.

    With :math:`(I - P)V = QR` a ground truth is :math:`\hat\theta + Qz`, and the loss :math:`z^\top R A R^\top z` over

    .. math:: \|z\|^2 = (\eta^2 - 1)\|\hat\theta\|^2, \qquad \|S + R^\top z\|^2 = \rho^2\|\hat\theta\|^2 .

    Args:
        pair: The two row spaces, from features.
        Y: Training responses, shape ``(n,)``.
        rho: Ratio of the projected norms of the ground truth.
        eta: Ratio of its length in the rows of both sets to that in the training rows, above 1.

    Raises:
        InputError: If `eta` is not above 1, or no ground truth has both ratios.
    """
    if not eta > 1.0:
        raise InputError(f"`eta` must be above 1; got {eta!r}.")
    fit = pair.fit(np.asarray(Y).reshape(pair.n_train))
    coordinates = fit.coordinates[:, 0] / fit.norm
    t = pair.ood_singular_values / pair.ood_singular_values[0]
    R, S = pair.ood_sines, pair.cosines @ coordinates
    loss, seen, pull = (R * t**2) @ R.T, R @ R.T, R @ S
    length, excess = eta * eta - 1.0, rho * rho - float(S @ S)
    unit = (float(pair.ood_singular_values[0]) * fit.norm) ** 2 / pair.n_ood
    upper = _dual_bound(loss, seen, pull, length, excess)
    lower = -_dual_bound(-loss, seen, pull, length, excess)
    if lower > upper * (1 + 1e-6):
        raise InputError(f"no ground truth has both `rho` = {rho:.6g} and `eta` = {eta:.6g}.")
    return TwoRatioInterval(max(lower, 0.0) * unit, upper * unit)


def _dual_bound(loss: FloatArray, seen: FloatArray, pull: FloatArray, length: float, excess: float) -> float:
    """Upper bound on ``z^T loss z`` over ``z^T z = length`` and ``z^T seen z + 2 pull^T z = excess``."""

    def at(arsinh: float) -> float:
        multiplier = math.sinh(arsinh)
        eigenvalues, axes = np.linalg.eigh(loss - multiplier * seen)
        return _sphere_maximum(eigenvalues, multiplier * (axes.T @ pull), length) + multiplier * excess

    tightest = minimize_scalar(at, bounds=(-_SEARCH, _SEARCH), method="bounded", options={"xatol": 1e-6})
    return min(float(tightest.fun), at(0.0))


def _sphere_maximum(eigenvalues: FloatArray, pull: FloatArray, length: float) -> float:
    """Largest ``sum_j e_j z_j^2 - 2 pull_j z_j`` over ``||z||^2 = length``, by its dual, which is exact."""
    largest, root = float(eigenvalues[-1]), math.sqrt(length)
    gaps = largest - eigenvalues

    def slope(shift: float) -> float:
        return length - float(np.sum((pull / (gaps + shift)) ** 2))

    low, high = abs(float(pull[-1])) / root, float(np.linalg.norm(pull)) / root
    low = max(low, 1e-15 * (1.0 + abs(largest)))
    shift = low if slope(low) >= 0.0 or high <= low else float(brentq(slope, low, high, rtol=1e-12))
    return float(np.sum(pull**2 / (gaps + shift))) + (largest + shift) * length
