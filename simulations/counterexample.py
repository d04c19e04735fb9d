"""The paper's bound with tails that meet in zero but are not orthogonal: it fails (docs/theory.md, section 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from projnorm_theory import (
    LinearPair,
    min_norm_solution,
    ood_loss,
    projnorm_linear,
    proposition_bound,
    sharp_interval,
)
from simulations.designs import Design, FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class CounterexampleSweep:
    """Test loss over ProjNormLinear squared, times m, on the counterexample, for each angle.

    Attributes:
        phi: Angle between the two tail vectors, in radians.
        tan_root: The ratio of one ground truth; ``tan(phi / 2)**2`` in theory.
        cot_root: The ratio of the other; ``cot(phi / 2)**2`` in theory.
        paper_lower: Lower end of the paper's interval.
        paper_upper: Upper end of the paper's interval.
        sharp_lower: Lower end of the sharp interval.
        sharp_upper: Upper end of the sharp interval.
    """

    phi: FloatArray
    tan_root: FloatArray
    cot_root: FloatArray
    paper_lower: FloatArray
    paper_upper: FloatArray
    sharp_lower: FloatArray
    sharp_upper: FloatArray


def counterexample(
    phi: float, *, root: Literal["tan", "cot"], scale: float = 2.0, shared: float = 1.0, tail: float = 1.0
) -> Design:
    """Three features, two rows a set: one shared direction, and tails at an angle.

    Args:
        phi: Angle between the tails, strictly between 0 and pi.
        root: Which of the two ground truths of equal projected norms: ``(shared, tail, tail * tan(phi / 2))``, or the
            one that ends in ``-tail * cot(phi / 2)``.
        scale: Singular value of the shared direction, above 1.
        shared: The ground truth along the shared direction.
        tail: The ground truth along the training tail.

    Raises:
        ValueError: If `phi` or `scale` is out of range.
    """
    if not 0.0 < phi < math.pi:
        raise ValueError(f"`phi` must lie strictly between 0 and pi; got {phi!r}.")
    if not scale > 1.0:
        raise ValueError(f"`scale` must exceed 1, so that the shared direction is the top one; got {scale!r}.")
    beyond = math.tan(phi / 2) if root == "tan" else -1 / math.tan(phi / 2)
    return Design(
        X=np.array([[scale, 0.0, 0.0], [0.0, 1.0, 0.0]]),
        X_ood=np.array([[scale, 0.0, 0.0], [0.0, math.cos(phi), math.sin(phi)]]),
        theta_star=np.array([[shared], [tail], [tail * beyond]]),
        k=1,
    )


def counterexample_sweep(phi: ArrayLike) -> CounterexampleSweep:
    """Measure both ground truths and the intervals at each angle of `phi`, shape ``(p,)``."""
    angles = np.asarray(phi, dtype=np.float64)
    return CounterexampleSweep(angles, *np.array([_measure(float(angle)) for angle in angles]).T)


def _measure(phi: float) -> tuple[float, ...]:
    at_tan, at_cot = counterexample(phi, root="tan"), counterexample(phi, root="cot")
    m = at_tan.X_ood.shape[0]
    pair = LinearPair.of(at_tan.X, at_tan.X_ood)
    paper, sharp = proposition_bound(pair, at_tan.Y, k=at_tan.k), sharp_interval(pair, at_tan.Y)
    ends = (paper.ratio_lower, paper.ratio_upper, sharp.ratio_lower, sharp.ratio_upper)
    return (_scaled_ratio(at_tan), _scaled_ratio(at_cot), *(m * end for end in ends))


def _scaled_ratio(design: Design) -> float:
    theta = min_norm_solution(design.X, design.Y).theta
    loss = ood_loss(theta, design.X_ood, design.Y_ood)
    return loss * design.X_ood.shape[0] / projnorm_linear(theta, design.X_ood).value ** 2
