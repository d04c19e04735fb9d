"""A run on digits that takes seconds."""

from __future__ import annotations

from deep.config import DeepConfig

SMALL = DeepConfig(
    families=("gaussian_noise", "contrast"),
    severities=(1, 5),
    n_train=200,
    n_validation=60,
    m=60,
    architecture="small-cnn",
    epochs=3,
    lr=0.05,
    batch=50,
    steps=6,
    projnorm_lr=0.05,
    projnorm_batch=20,
    trajectory=(2, 6),
    rotation_samples=60,
)
