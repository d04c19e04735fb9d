"""Extremes of a quadratic on a sphere, by the secular equation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from projnorm_theory.norms import frobenius
from projnorm_theory.validation import EPS, FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class SphereExtreme:
    """Where the quadratic is extreme on the sphere.

    Attributes:
        value: The extreme value.
        point: A point that attains it, shape ``(q, c)``.
    """

    value: float
    point: FloatArray


def extreme_on_sphere(curvatures: FloatArray, centre: FloatArray, radius: float, *, largest: bool) -> SphereExtreme:
    r"""Largest or smallest weighted distance to a centre over a sphere around the origin.

    .. math:: \operatorname{ext}_{\|Q\|_F = R}\; \sum_j l_j \|Q_j - S_j\|^2

    At the optimum :math:`Q_j = l_j S_j / (l_j - \nu)` with one :math:`\nu` outside the range of the :math:`l_j`, fixed
    by :math:`\|Q\| = R`. It is sought as its distance to the nearest :math:`l_j`, which keeps full relative accuracy
    in the nearly hard case. In the hard case, where the centre has nothing along the extreme curvature and
    :math:`\nu` may reach it, what is missing from `radius` goes along that curvature.

    Args:
        curvatures: :math:`l_j \ge 0`, shape ``(q,)``, in any order.
        centre: :math:`S`, shape ``(q, c)``.
        radius: :math:`R \ge 0`.
        largest: Whether to maximise.
    """
    if curvatures.size == 0 or radius == 0.0:
        point = np.zeros_like(centre)
    else:
        point = _stationary_point(curvatures, centre, radius, largest)
    return SphereExtreme(float(curvatures @ np.sum((point - centre) ** 2, axis=1)), point)


def _stationary_point(curvatures: FloatArray, centre: FloatArray, radius: float, largest: bool) -> FloatArray:
    extreme = int(np.argmax(curvatures) if largest else np.argmin(curvatures))
    gaps = np.abs(curvatures - curvatures[extreme])
    pull = curvatures * np.array([frobenius(row) for row in centre])
    pulled = pull > 0.0
    # The scale of the curvatures drops out of Q; taking it out keeps products clear of underflow.
    scale = float(curvatures.max()) or 1.0
    gaps, weights = gaps[pulled] / scale, pull[pulled] / scale

    shift = _secular_root(gaps, weights, radius)
    point = np.zeros_like(centre)
    side = -1.0 if largest else 1.0
    point[pulled] = side * centre[pulled] * (curvatures[pulled] / scale / (gaps + shift))[:, None]
    if shift == 0.0:
        missing = radius**2 - float(np.sum(point**2))
        point[extreme, 0] = np.sqrt(max(missing, 0.0))
    return point


def _secular_root(gaps: FloatArray, weights: FloatArray, radius: float) -> float:
    """The shift with ``||weights / (gaps + shift)|| = radius``; 0 in the hard case."""

    def excess(log_shift: float) -> float:
        # The reciprocal of the norm is nearly linear in the shift, which is what makes the root easy to find.
        return 1.0 / frobenius(weights / (gaps + math.exp(log_shift))) - 1.0 / radius

    # Without a pull along the extreme curvature, the norm at a shift of zero says whether this is the hard case.
    low = frobenius(weights[gaps == 0.0]) / radius
    if low == 0.0:
        if weights.size == 0 or frobenius(weights / gaps) <= radius:
            return 0.0
        low = EPS**2 * float(gaps.min())  # a smaller shift is lost in every sum
    high = frobenius(weights) / radius
    # The shift may be smaller than the gaps by any power of ten, so it is sought on a logarithmic scale.
    ends = math.log(low), math.log(high)
    if excess(ends[0]) >= 0.0:
        return low
    if excess(ends[1]) <= 0.0:
        return high
    return math.exp(brentq(excess, *ends, xtol=EPS, rtol=4 * EPS, maxiter=500))
