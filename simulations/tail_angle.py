"""The three intervals on one drawn design while its tails lean towards each other."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from projnorm_theory import (
    LinearPair,
    attaining_truths,
    generalised_bound,
    min_norm_solution,
    ood_loss,
    proposition_bound,
    sharp_interval,
)
from simulations.designs import FloatArray, draw_truth, spectral_design


@dataclass(frozen=True, slots=True)
class TailAngleConfig:
    """Sizes of the design and of the sweep.

    Attributes:
        n: Training examples.
        m: Shifted examples.
        dim: Features.
        k: Dimension of the shared span.
        angles: How many tail angles, from 90 degrees down.
        smallest_angle: The last of them, in degrees.
        truths: Ground truths drawn at each angle.
        seed: Seed of everything drawn.
    """

    n: int = 30
    m: int = 20
    dim: int = 100
    k: int = 4
    angles: int = 31
    smallest_angle: float = 15.0
    truths: int = 40
    seed: int = 0

    def __post_init__(self) -> None:
        """Check that the sizes fit together."""
        if not 0 < self.k < min(self.n, self.m):
            raise ValueError(f"`k` must be between 1 and {min(self.n, self.m) - 1}; got {self.k}.")
        if self.dim < self.n + self.m - self.k:
            raise ValueError(f"`dim` must be at least n + m - k = {self.n + self.m - self.k}; got {self.dim}.")
        if self.angles < 2 or self.truths < 1:
            raise ValueError(f"`angles` must be at least 2 and `truths` at least 1; got {self.angles}, {self.truths}.")
        if not 0.0 < self.smallest_angle < 90.0:
            raise ValueError(f"`smallest_angle` must lie strictly between 0 and 90; got {self.smallest_angle}.")
        if self.seed < 0:
            raise ValueError(f"`seed` must be zero or more; got {self.seed}.")


@dataclass(frozen=True, slots=True, eq=False)
class TailAngleSweep:
    """TestLoss / ProjNormLinear^2 and its three intervals, angle by angle.

    Attributes:
        config: What was run.
        angle: Tail angle in degrees, shape ``(angles,)``.
        ratio: The true ratios, shape ``(angles, truths)``.
        extreme: The true ratios of the two ground truths built to be extreme, shape ``(angles, 2)``.
        paper: Ends of the paper's interval, shape ``(angles, 2)``.
        generalised: Ends of the generalised one at the true k.
        sharp: Ends of the sharp one.
    """

    config: TailAngleConfig
    angle: FloatArray
    ratio: FloatArray
    extreme: FloatArray
    paper: FloatArray
    generalised: FloatArray
    sharp: FloatArray

    def coverage(self, ends: FloatArray) -> FloatArray:
        """Share of the true ratios inside `ends`, angle by angle; rounding is forgiven."""
        low, high = ends[:, :1] * (1 - 1e-9), ends[:, 1:] * (1 + 1e-9)
        return np.mean((self.ratio >= low) & (self.ratio <= high), axis=1)


def tail_angle_sweep(config: TailAngleConfig) -> TailAngleSweep:
    """Draw the design, turn its tails, and compare the three intervals with many ground truths at each angle.

    The ground truths at one angle share the training labels, so all of them have the same three intervals.
    """
    degrees = np.linspace(90.0, config.smallest_angle, config.angles)
    rows = [_at_angle(config, math.radians(angle)) for angle in degrees]
    return TailAngleSweep(config, degrees, *(np.array(column) for column in zip(*rows, strict=True)))


def _at_angle(config: TailAngleConfig, angle: float) -> tuple[list[float], ...]:
    """Ratios of drawn truths, of the two extreme ones, and the ends of the three intervals."""
    rng = np.random.default_rng(config.seed)  # the same frame and spectra at every angle
    design = spectral_design(
        rng,
        train_singular_values=np.sqrt(config.n) * np.arange(1, config.n + 1) ** -0.5,
        ood_singular_values=np.sqrt(config.m) * np.arange(1, config.m + 1) ** -0.5,
        dim=config.dim,
        k=config.k,
        tail_angle=angle,
    )
    pair = LinearPair.of(design.X, design.X_ood)
    theta = min_norm_solution(design.X, design.Y).theta
    intervals = (
        proposition_bound(pair, design.Y, k=config.k),
        generalised_bound(pair, design.Y, k=config.k),
        sharp_interval(pair, design.Y),
    )
    drawn = [draw_truth(rng, design.X, theta, design.X_ood, rho=1.0) for _ in range(config.truths)]
    built = attaining_truths(design.X, design.Y, design.X_ood)

    def ratio(truth: FloatArray) -> float:
        return ood_loss(theta, design.X_ood, design.X_ood @ truth) / intervals[0].projnorm_linear ** 2

    return (
        [ratio(truth) for truth in drawn],
        [ratio(built.best), ratio(built.worst)],
        *([interval.ratio_lower, interval.ratio_upper] for interval in intervals),
    )
