"""Runs that take seconds: the one configuration that tests vary."""

from __future__ import annotations

from deep.config import DeepConfig, ImageData, ProjNormConfig, RotationConfig
from deep.recipe import Recipe
from projnorm.vision.settings import ImageNetwork

SMALL = DeepConfig(
    ImageData(families=("gaussian_noise", "contrast"), severities=(1, 5), n=200, n_validation=60, m=60),
    ImageNetwork("small-cnn"),
    Recipe(epochs=3, lr=0.05, batch=50),
    ProjNormConfig(steps=6, lr=0.05, batch=20, trajectory=(2, 6)),
    RotationConfig(samples=60),
)
