"""The three intervals on one drawn design while its tails lean towards each other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from projnorm.core.arrays import Arrays
from projnorm.core.config import Config, seed_setting, setting
from projnorm.core.errors import InputError
from projnorm.core.records import Record, RunContext, recorded
from projnorm.core.tasks import stacked
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


@dataclass(frozen=True)
class TailAngleConfig(Config):
    """Sizes of the design and of the sweep over the angle between its tails."""

    n: int = setting(30, "Number of training examples.", least=2)
    m: int = setting(20, "Number of shifted examples.", least=2)
    dim: int = setting(100, "Number of features.", least=1)
    k: int = setting(4, "Dimension of the shared span.", least=1)
    angles: int = setting(31, "Number of tail angles, from 90 degrees down.", least=2)
    smallest_angle: float = setting(15.0, "Last of these angles, in degrees.", above=0.0, below=90.0)
    truths: int = setting(40, "Number of ground truths drawn at each angle.", least=1)
    seed: int = seed_setting()

    def check(self) -> None:
        """Refuse sizes that leave no tail, or no room for both."""
        if self.k >= min(self.n, self.m):
            raise InputError(f"`k` must be between 1 and {min(self.n, self.m) - 1}; got {self.k}.")
        if self.dim < self.n + self.m - self.k:
            raise InputError(f"`dim` must be at least n + m - k = {self.n + self.m - self.k}; got {self.dim}.")


MEANINGS = {
    "angle": "angle between paired tail eigenvectors, degrees, (angle,)",
    "ratio": "TestLoss / ProjNormLinear^2 of drawn ground truths, (angle, truth)",
    "extreme": "the same of the two ground truths built to be extreme, (angle, 2)",
    "paper": "ends of the paper's interval for the ratio, (angle, 2)",
    "generalised": "ends of the generalised interval at the true k, (angle, 2)",
    "sharp": "ends of the sharp interval, (angle, 2)",
}


def run_tail_angle(config: TailAngleConfig | None = None, context: RunContext | None = None) -> Record:
    """The record of the sweep, computed angle by angle where it is missing.

    The ground truths at one angle share the training labels, so all of them have the same three intervals.

    Args:
        config: Sizes and angles.
        context: Folder of the records and the processes; by default it runs in this process and leaves no files.

    >>> record = run_tail_angle(TailAngleConfig(angles=2, truths=3))
    >>> record.arrays["ratio"].shape
    (2, 3)
    """
    config = config or TailAngleConfig()
    degrees = np.linspace(90.0, config.smallest_angle, config.angles).tolist()
    work = partial(tail_angle_trial, config)
    return recorded("tail-angle", config, context, items=degrees, work=work, meanings=MEANINGS, assemble=stacked)


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
    pair = LinearPair.from_features(design.X, design.X_ood)
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
