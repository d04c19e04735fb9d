"""Small things that tests share: a configuration of a run that takes seconds, and a classification of points."""

from __future__ import annotations

import numpy as np

from deep.comparison.config import DeepConfig, ImageData, ProjNormConfig, RotationConfig
from projnorm.data.image_settings import ImageNetwork
from projnorm.models.recipe import Recipe
from projnorm.outputs.outputs import Outputs

SMALL = DeepConfig(
    ImageData(families=("gaussian_noise", "contrast"), severities=(1, 5), n=200, n_validation=60, m=60),
    ImageNetwork("small-cnn"),
    Recipe(epochs=3, lr=0.05, batch=50),
    ProjNormConfig(steps=6, lr=0.05, batch=20, trajectory=(2, 6)),
    RotationConfig(samples=60),
)


def world(
    n: int, shift: float, seed: int, *, classes: int = 4, width: int = 4, noise: float = 0.7
) -> tuple[np.ndarray, np.ndarray]:
    """Points around corners, the nearer the further shifted, and their labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=n)
    points = (1.0 - shift) * 2.0 * np.eye(classes, width)[labels] + noise * rng.standard_normal((n, width))
    return points.astype(np.float32), labels


def gaussian_outputs(n: int, shares, rng: np.random.Generator, *, spread: float = 1.0, noise: float = 0.0) -> Outputs:
    """Labelled outputs of the best classifier of normal classes around corners, on inputs with noise added.

    Under equal shares and without noise its probabilities are calibrated.
    """
    classes = len(shares)
    labels = rng.choice(classes, size=n, p=np.asarray(shares) / np.sum(shares))
    points = 2.0 * np.eye(classes)[labels] + spread * rng.standard_normal((n, classes))
    points += noise * rng.standard_normal(points.shape)
    return Outputs(2.0 * points / spread**2, labels=labels, features=points, name="drawn")
