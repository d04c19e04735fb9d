"""The description of a training. No torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from projnorm.core.config import Config, setting, settings
from projnorm.core.errors import InputError


@dataclass(frozen=True)
class Recipe(Config):
    """A training: an optimiser without weight decay, and a learning rate that falls to zero.

    >>> recipe = Recipe(epochs=2, batch=32, lr=0.1)
    >>> recipe.count_steps(100)
    8
    >>> [round(recipe.lr_at(step, 8), 3) for step in (0, 4, 7)]
    [0.1, 0.05, 0.004]
    """

    steps: int = setting(0, "Number of training steps; 0 to train for a number of epochs.", least=0, rare=True)
    lr: float = setting(1e-3, "Learning rate of the first step, which falls to zero.", above=0.0)
    batch: int = setting(128, "Number of samples in a step; batch norm needs two.", least=2)
    epochs: int = setting(0, "Number of passes over the samples; 0 to train for a number of steps.", least=0)
    momentum: float = setting(0.9, "Momentum of SGD; AdamW keeps torch's two.", least=0.0, below=1.0, rare=True)
    precision: str = setting(
        "float32",
        "float32 keeps the type of the network; mixed multiplies in bfloat16, on CUDA or a CPU.",
        choices=("float32", "mixed"),
        rare=True,
    )
    batch_norm: str = setting(
        "batch",
        "batch normalises by the statistics of each batch, as usual; frozen by those the network came with, so that "
        "small batches add no noise.",
        choices=("batch", "frozen"),
        rare=True,
    )
    optimiser: str = setting(
        "sgd", "Optimiser: the paper has sgd on images and adamw on text.", choices=("sgd", "adamw"), rare=True
    )
    augmentation: str = setting(
        "none",
        "none as in the paper; standard mirrors half of the images and moves each by up to an eighth of its size.",
        choices=("none", "standard"),
        rare=True,
    )
    decay: str = setting("cosine", "How the learning rate falls to zero.", choices=("cosine", "linear"), rare=True)
    layers: tuple[str, ...] = setting(
        (), "Layers that are trained, by the beginnings of their names; all by default.", distinct=True, rare=True
    )
    # Rounding differs with it, so it belongs to the training and not to the machine.
    compiled: bool = setting(
        False, "Whether to train through torch.compile, which changes numbers by rounding.", rare=True
    )

    def check(self) -> None:
        """A training lasts for a number of steps or of epochs."""
        if (self.steps > 0) == (self.epochs > 0):
            raise InputError(
                f"one of `epochs` and `steps` must be positive and the other 0; got {self.epochs} and {self.steps}."
            )

    @property
    def identity(self) -> dict[str, Any]:
        """What a training is named after, as plain JSON values."""
        document = self.to_json()
        return {field.name: document[field.name] for field in settings(Recipe)}

    def count_steps(self, samples: int) -> int:
        """Number of steps of a training set of `samples` samples."""
        return self.steps or self.epochs * batches_per_epoch(samples, self.batch)

    def trains(self, parameter: str) -> bool:
        """Whether a `parameter`, given by its name, is trained."""
        return not self.layers or any(parameter == layer or parameter.startswith(f"{layer}.") for layer in self.layers)

    def lr_at(self, step: int, steps: int) -> float:
        """The learning rate of one `step`, counted from 0, of a training of `steps` steps."""
        done = step / steps
        return self.lr * (1.0 - done if self.decay == "linear" else 0.5 * (1.0 + math.cos(math.pi * done)))


def batches_per_epoch(count: int, batch: int) -> int:
    """A last batch of one joins the one before: batch norm has no variance of a single sample."""
    return max(1, math.ceil(count / batch) - (count % batch == 1))
