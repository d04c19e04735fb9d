r"""Laws of weighted sums of squared normals: both tails to near full relative accuracy, without simulation.

For :math:`Q = \sum_k w_k \chi^2_{h_k}(\delta_k^2)`, with weights of either sign, the cumulant generating function `K`
is known in closed form, and

.. math:: P(Q > x) = \frac{1}{2\pi i}\int_{c - i\infty}^{c + i\infty} e^{K(s) - sx}\,\frac{ds}{s}, \qquad c > 0,

while a negative `c` gives :math:`-P(Q \le x)`. The path crosses the real axis where the integrand is smallest, as for
the saddle-point approximation. The integral itself is computed by the trapezoidal rule in a variable in which the
integrand is analytic in a strip, so its error falls exponentially with the number of nodes. At ``x = 0``, which is all
that a ratio of two sums needs, nothing oscillates and the path is a straight line. Otherwise it is bent towards the
path of steepest descent (Helstrom, IEEE Trans. Information Theory 38, 1992). The smaller tail is integrated and the
other one is its complement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, gammainccinv, gammaincinv

from projnorm_theory.results import Result
from projnorm_theory.validation import FloatArray

# What lies this many nats below the peak of the integrand is rounding.
_NEGLIGIBLE = 40.0
# The rule is refined until two successive values agree to this; the error is then about its square.
_AGREEMENT = 1e-9
_MOST_HALVINGS = 12
# Complex numbers held at a time.
_BLOCK = 2**20
# Mass of the law of an unknown scale that the average over it leaves out at each end.
_SCALE_CUT = 1e-10
# Stands for a probability that underflows in the search for a quantile.
_SMALLEST_PROBABILITY = 5e-324


@dataclass(frozen=True, slots=True, eq=False)
class Tails(Result):
    """The two tail probabilities of a law at a point.

    Attributes:
        lower: Probability of that value or less.
        upper: Probability of more.
    """

    lower: float
    upper: float


class Law(Protocol):
    """The law of a non-negative quantity, as far as quantiles need it."""

    @property
    def floor(self) -> float:
        """The smallest possible value."""
        ...

    @property
    def typical(self) -> float:
        """A value in the bulk of the law, above `floor`."""
        ...

    def tails(self, x: float) -> Tails:
        """Probabilities of at most `x` and of more."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class RatioLaw(Result):
    r"""The law of :math:`\sum_j l_j \chi^2_h \big/ \sum_i g_i \chi^2_{h_i}` with independent chi-squares.

    Attributes:
        weights: :math:`l_j \ge 0`, at least one of them positive, shape ``(q,)``.
        dof: Degrees of freedom :math:`h` of each chi-square of the numerator.
        denominator_weights: :math:`g_i > 0`, shape ``(p,)``.
        denominator_dofs: Degrees of freedom :math:`h_i`, shape ``(p,)``.
    """

    weights: FloatArray
    dof: int
    denominator_weights: FloatArray
    denominator_dofs: FloatArray

    @property
    def floor(self) -> float:
        """The smallest possible value, 0."""
        return 0.0

    @property
    def typical(self) -> float:
        """The ratio of the two means."""
        return float(self.dof * self.weights.sum() / (self.denominator_weights @ self.denominator_dofs))

    def tails(self, x: float) -> Tails:
        """Probabilities of a ratio of at most `x` and of more."""
        if not 0.0 < x < math.inf:
            return Tails(float(x > 0.0), float(x <= 0.0))
        largest = float(self.weights.max())
        return quadratic_tails(
            np.concatenate([self.weights / largest, -(x / largest) * self.denominator_weights]),
            np.concatenate([np.full(self.weights.size, float(self.dof)), self.denominator_dofs]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class ShiftedLaw(Result):
    r"""The law of :math:`f + \sum_j \|b_j + \sqrt{l_j/g}\,z_j\|^2`, with `z_j` standard normal in `h` dimensions.

    The scale is random, :math:`g \sim \chi^2_\nu`, and averaged over by the trapezoidal rule in its logarithm, to
    about 1e-6.

    Attributes:
        weights: :math:`l_j > 0`, shape ``(q,)``.
        dof: The dimension :math:`h`.
        shifts: :math:`\|b_j\|^2`, shape ``(q,)``.
        floor: The constant :math:`f`.
        scale_dof: :math:`\nu`.
    """

    weights: FloatArray
    dof: int
    shifts: FloatArray
    floor: float
    scale_dof: int

    @property
    def typical(self) -> float:
        """The mean at a typical scale."""
        return self.floor + float(self.shifts.sum() + self.dof * self.weights.sum() / self.scale_dof)

    def tails(self, x: float) -> Tails:
        """Probabilities of at most `x` and of more."""
        if not self.floor < x < math.inf:
            return Tails(float(x > self.floor), float(x <= self.floor))
        scales, masses = _scale_rule(self.scale_dof)
        dofs = np.full(self.weights.size, float(self.dof))
        largest = float(self.weights.max())
        weights, threshold = self.weights / largest, (x - self.floor) / largest
        lower = upper = 0.0
        for g, mass in zip(scales, masses, strict=True):
            tails = quadratic_tails(weights, dofs, g * self.shifts / self.weights, g * threshold)
            lower, upper = lower + mass * tails.lower, upper + mass * tails.upper
        return Tails(float(lower), float(upper))


def quadratic_tails(
    weights: FloatArray, dofs: FloatArray, noncentralities: FloatArray | None = None, threshold: float = 0.0
) -> Tails:
    r"""Probabilities that :math:`\sum_k w_k \chi^2_{h_k}(\delta_k^2)` is at most a threshold, and that it is more.

    Args:
        weights: :math:`w_k`, of either sign, shape ``(p,)``; of both signs where `threshold` is 0.
        dofs: Degrees of freedom :math:`h_k > 0`, shape ``(p,)``.
        noncentralities: :math:`\delta_k^2 \ge 0`, shape ``(p,)``; none of them by default.
        threshold: The value compared with; 0, or positive with positive weights.

    >>> tails = quadratic_tails(np.array([1.0, -3.0]), np.array([1.0, 1.0]))  # P(F_{1,1} <= 3)
    >>> round(tails.lower, 12), round(tails.upper, 12)
    (0.666666666667, 0.333333333333)
    """
    if threshold == 0.0 and weights.max() <= 0.0:
        return Tails(1.0, 0.0)
    if threshold == 0.0 and weights.min() >= 0.0:
        return Tails(0.0, 1.0)
    deltas = np.zeros_like(weights) if noncentralities is None else noncentralities
    crossing = _crossing(weights, dofs, deltas, threshold)
    tail = _tail_integral(weights, dofs, deltas, threshold, crossing)
    return Tails(1.0 - tail, tail) if crossing > 0.0 else Tails(tail, 1.0 - tail)


def quantile(law: Law, p: float) -> float:
    """The value that `law` exceeds with probability ``1 - p``, by a search on the logarithm of its smaller tail."""
    log_p = math.log(p) if p <= 0.5 else math.log1p(-p)

    def excess(log_x: float) -> float:
        tails = law.tails(law.floor + math.exp(log_x))
        tail = max(tails.lower if p <= 0.5 else tails.upper, _SMALLEST_PROBABILITY)
        return math.log(tail) - log_p if p <= 0.5 else log_p - math.log(tail)

    start = math.log(law.typical - law.floor)
    direction = -1.0 if excess(start) > 0.0 else 1.0
    width, inner, outer = 1.0, start, start + direction
    while direction * excess(outer) < 0.0:
        width, inner, outer = 2 * width, outer, start + 2 * direction * width
    return law.floor + math.exp(brentq(excess, min(inner, outer), max(inner, outer), xtol=1e-12, rtol=1e-12))


def _scale_rule(dof: int) -> tuple[FloatArray, FloatArray]:
    """Nodes and masses that average over a chi-square: the trapezoidal rule in its logarithm."""
    low, high = np.log(2 * gammaincinv(dof / 2, _SCALE_CUT)), np.log(2 * gammainccinv(dof / 2, _SCALE_CUT))
    step = min(0.5, math.sqrt(1.0 / dof))  # 0.7 standard deviations of the logarithm
    log_g = np.linspace(low, high, math.ceil((high - low) / step) + 1)
    masses = np.exp(0.5 * dof * (log_g - math.log(dof)) - 0.5 * (np.exp(log_g) - dof))
    return np.exp(log_g), masses / masses.sum()


def _crossing(weights: FloatArray, dofs: FloatArray, deltas: FloatArray, threshold: float) -> float:
    """Where the path crosses the real axis: the minimum of ``K(s) - s x - log|s|`` on the side of the smaller tail.

    The function is convex and infinite at both ends of its domain. The minimum need not be found well: every crossing
    gives the same integral.
    """
    if weights @ (dofs + deltas) <= threshold:
        end = 0.5 / float(weights.max())
    elif weights.min() < 0.0:
        end = 0.5 / float(weights.min())
    else:  # no singularity on this side, but the minimum cannot lie beyond
        end = -1.01 * (1.0 + 0.5 * float(np.sum(dofs + deltas))) / threshold
    low, high = -700.0, 36.0  # s / end as a logit
    for _ in range(24):
        middle = (low + high) / 2
        s = end * float(expit(middle))
        u = 1.0 - 2.0 * s * weights
        with np.errstate(divide="ignore", over="ignore"):
            slope = float(np.sum(weights / u * (dofs + deltas / u))) - threshold - 1.0 / s
        low, high = (middle, high) if slope * end < 0.0 else (low, middle)
    return end * float(expit(low))


def _tail_integral(
    weights: FloatArray, dofs: FloatArray, deltas: FloatArray, threshold: float, crossing: float
) -> float:
    """The tail on the side of `crossing`, by the trapezoidal rule in `t` where ``s = c + i a sinh t`` and its bend."""
    u = 1.0 - 2.0 * crossing * weights
    ratio = weights / u
    curvature = float(np.sum(2 * ratio**2 * (dofs + 2 * deltas / u)))
    width = 1.0 / math.sqrt(curvature + crossing**-2)
    # Towards the steepest descent of K(s) - s x, to the right, where exp(-s x) falls.
    bend = 0.0
    if threshold != 0.0:
        bend = float(np.sum(8 * ratio**3 * (dofs + 3 * deltas / u))) / (6 * curvature)
    peak = float(-0.5 * (dofs @ np.log(u)) + 0.5 * (deltas @ (1.0 / u - 1.0))) - crossing * threshold

    def integrand(t: NDArray[Any]) -> NDArray[Any]:
        y = width * np.sinh(t)
        s = crossing + 1j * y + bend * y * y
        values = np.empty(t.size, dtype=np.complex128)
        block = max(1, _BLOCK // weights.size)
        for start in range(0, t.size, block):
            part = slice(start, start + block)
            factors = 1.0 - 2.0 * np.multiply.outer(s[part], weights)
            exponent = -0.5 * (np.log(factors) @ dofs) - s[part] * threshold - peak
            if deltas.any():
                exponent += 0.5 * ((1.0 / factors - 1.0) @ deltas)
            values[part] = np.exp(exponent) / s[part]
        return values * (1j + 2 * bend * y) * width * np.cosh(t)

    reach = 1.0
    negligible = width / abs(crossing) * math.exp(-_NEGLIGIBLE)
    while abs(integrand(np.array([reach]))[0]) > negligible:
        reach *= 1.15
    count = max(4, math.ceil(2 * reach))
    step = reach / count
    values = integrand(step * np.arange(count + 1)).imag
    total = float(values.sum() - values[0] / 2)
    for _ in range(_MOST_HALVINGS):
        before = total * step
        total += float(integrand(step * (np.arange(count) + 0.5)).imag.sum())
        step, count = step / 2, 2 * count
        if abs(total * step - before) <= _AGREEMENT * abs(before):
            break
    return min(abs(total) * step / math.pi * math.exp(peak), 1.0)
