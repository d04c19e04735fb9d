"""The paper's bound with tails that meet in zero but are not orthogonal: it fails (docs/theory.md, section 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from projnorm.core.arrays import Arrays
from projnorm.core.config import Config, setting
from projnorm.core.errors import InputError
from projnorm.core.records import Record, RunContext, recorded
from projnorm_theory import LinearPair, min_norm_solution, ood_loss, projnorm_linear, proposition_bound, sharp_interval
from simulations.designs import Design, FloatArray


@dataclass(frozen=True)
class CounterexampleConfig(Config):
    """The angles between the tails at which the counterexample is measured."""

    angles: int = setting(171, "Number of angles, evenly spaced.", least=2)
    smallest_angle: float = setting(5.0, "First angle in degrees; the last is 180 minus it.", above=0.0, below=90.0)


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
        InputError: If `phi` or `scale` is out of range.

    >>> from projnorm_theory import min_norm_solution, ood_loss, proposition_bound
    >>> design = counterexample(1.0, root="tan")
    >>> loss = ood_loss(min_norm_solution(design.X, design.Y).theta, design.X_ood, design.Y_ood)
    >>> bound = proposition_bound(design.X, design.Y, design.X_ood, k=1)
    >>> round(loss / bound.lower, 6), round(math.tan(0.5) ** 2, 6)  # below the lower end
    (0.298446, 0.298446)
    """
    if not 0.0 < phi < math.pi:
        raise InputError(f"`phi` must lie strictly between 0 and pi; got {phi!r}.")
    if not scale > 1.0:
        raise InputError(f"`scale` must exceed 1, so that the shared direction is the top one; got {scale!r}.")
    beyond = math.tan(phi / 2) if root == "tan" else -1 / math.tan(phi / 2)
    return Design(
        X=np.array([[scale, 0.0, 0.0], [0.0, 1.0, 0.0]]),
        X_ood=np.array([[scale, 0.0, 0.0], [0.0, math.cos(phi), math.sin(phi)]]),
        theta_star=np.array([[shared], [tail], [tail * beyond]]),
        k=1,
    )


MEANINGS = {
    "phi": "angle between the two tail vectors, radians, (angle,)",
    "tan_root": "m TestLoss / ProjNormLinear^2 of one ground truth; tan(phi/2)^2 in theory, (angle,)",
    "cot_root": "the same of the other; cot(phi/2)^2 in theory, (angle,)",
    "paper": "ends of the paper's interval for the same ratio, (angle, 2)",
    "sharp": "ends of the sharp interval for it, (angle, 2)",
}


def run_counterexample(config: CounterexampleConfig | None = None, context: RunContext | None = None) -> Record:
    """The record of the sweep over the angle, computed where it is missing.

    Args:
        config: The angles.
        context: Folder of the records and the processes; by default it runs in this process and leaves no files.

    >>> record = run_counterexample(CounterexampleConfig(angles=3))
    >>> record.arrays["tan_root"].round(3).tolist(), record.arrays["paper"][:, 1].round(3).tolist()
    ([0.002, 1.0, 524.582], [1.0, 1.0, 1.0])
    """
    config = config or CounterexampleConfig()
    phi = np.radians(np.linspace(config.smallest_angle, 180.0 - config.smallest_angle, config.angles))
    return recorded("counterexample", config, context, items=[phi], work=counterexample_sweep, meanings=MEANINGS)


def closed_form_ratios(phi: FloatArray) -> tuple[FloatArray, FloatArray]:
    """M TestLoss / ProjNormLinear^2 of both ground truths in theory: tan(phi/2)^2 and cot(phi/2)^2."""
    tan_squared = np.tan(phi / 2) ** 2
    return tan_squared, 1 / tan_squared


def counterexample_sweep(phi: FloatArray) -> Arrays:
    """Measure both ground truths and the intervals at each angle of `phi`, in radians."""
    rows = [_measure(float(angle)) for angle in phi]
    return {"phi": phi, **{name: np.array([row[name] for row in rows]) for name in MEANINGS if name != "phi"}}


def _measure(phi: float) -> dict[str, float | tuple[float, float]]:
    at_tan, at_cot = counterexample(phi, root="tan"), counterexample(phi, root="cot")
    m = at_tan.X_ood.shape[0]
    pair = LinearPair.from_features(at_tan.X, at_tan.X_ood)
    paper, sharp = proposition_bound(pair, at_tan.Y, k=at_tan.k), sharp_interval(pair, at_tan.Y)
    return {
        "tan_root": _scaled_ratio(at_tan),
        "cot_root": _scaled_ratio(at_cot),
        "paper": (m * paper.ratio_lower, m * paper.ratio_upper),
        "sharp": (m * sharp.ratio_lower, m * sharp.ratio_upper),
    }


def _scaled_ratio(design: Design) -> float:
    theta = min_norm_solution(design.X, design.Y).theta
    loss = ood_loss(theta, design.X_ood, design.Y_ood)
    return loss * design.X_ood.shape[0] / projnorm_linear(theta, design.X_ood).value ** 2
