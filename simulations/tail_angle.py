"""The three intervals on one drawn design while its tails lean towards each other."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from projnorm.runs import ONE_PROCESS, Arrays, Backend, Record, recorded, stacked
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

MEANINGS = {
    "angle": "angle between paired tail eigenvectors, degrees, (angle,)",
    "ratio": "TestLoss / ProjNormLinear^2 of drawn ground truths, (angle, truth)",
    "extreme": "the same of the two ground truths built to be extreme, (angle, 2)",
    "paper": "ends of the paper's interval for the ratio, (angle, 2)",
    "generalised": "ends of the generalised interval at the true k, (angle, 2)",
    "sharp": "ends of the sharp interval, (angle, 2)",
}


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


def run_tail_angle(
    config: TailAngleConfig, *, root: Path, backend: Backend = ONE_PROCESS, fresh: bool = False
) -> Record:
    """The record of the sweep under `root`, computed angle by angle where it is missing.

    The ground truths at one angle share the training labels, so all of them have the same three intervals.
    """
    return recorded(
        "tail-angle",
        asdict(config),
        root=root,
        items=np.linspace(90.0, config.smallest_angle, config.angles).tolist(),
        work=partial(tail_angle_trial, config),
        assemble=stacked,
        meanings=MEANINGS,
        backend=backend,
        fresh=fresh,
    )


def tail_angle_trial(config: TailAngleConfig, degrees: float) -> Arrays:
    """Ratios of drawn truths, of the two extreme ones, and the ends of the three intervals, at one angle."""
    rng = np.random.default_rng(config.seed)  # the same frame and spectra at every angle
    design = spectral_design(
        rng,
        train_singular_values=np.sqrt(config.n) * np.arange(1, config.n + 1) ** -0.5,
        ood_singular_values=np.sqrt(config.m) * np.arange(1, config.m + 1) ** -0.5,
        dim=config.dim,
        k=config.k,
        tail_angle=math.radians(degrees),
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

    return {
        "angle": np.array(degrees),
        "ratio": np.array([ratio(truth) for truth in drawn]),
        "extreme": np.array([ratio(built.best), ratio(built.worst)]),
        **{
            name: np.array([interval.ratio_lower, interval.ratio_upper])
            for name, interval in zip(("paper", "generalised", "sharp"), intervals, strict=True)
        },
    }
