"""Small networks of torch: a perceptron for rows of numbers, a convolutional one for images."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.shifts.fitted_model import FittedModel
from benchmarks.shifts.problems import LabelledSet
from deep.training.loop import train
from projnorm.data.images import unit_images
from projnorm.models.recipe import Recipe

_WIDTHS = (64, 32)
_CHANNELS = (16, 32)
_RECIPE = Recipe(1_500, lr=2e-3, optimiser="adamw")
# Standardised numbers further out are cut.
_FURTHEST = 10.0


class Perceptron(nn.Module):
    """Two hidden layers on standardised numbers; a missing number is replaced by the mean of its column."""

    mean: Tensor
    scale: Tensor

    def __init__(self, rows: NDArray[Any], classes: int) -> None:
        """Training rows, which give the mean and the scale of each column, and the number of classes."""
        super().__init__()
        spread = np.nanstd(rows, axis=0)
        self.register_buffer("mean", torch.tensor(np.nanmean(rows, axis=0), dtype=torch.float32))
        self.register_buffer("scale", torch.tensor(np.where(spread > 0.0, spread, 1.0), dtype=torch.float32))
        self.hidden = nn.Sequential(nn.Linear(rows.shape[1], _WIDTHS[0]), nn.ReLU(), nn.Linear(*_WIDTHS), nn.ReLU())
        self.last = nn.Linear(_WIDTHS[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of rows of numbers."""
        standard = torch.nan_to_num((x.float() - self.mean) / self.scale).clamp(-_FURTHEST, _FURTHEST)
        logits: Tensor = self.last(self.hidden(standard))
        return logits


class SmallConvolutional(nn.Module):
    """Two strided convolutions and a hidden layer."""

    def __init__(self, classes: int) -> None:
        """The number of classes."""
        super().__init__()
        first, second = _CHANNELS
        self.hidden = nn.Sequential(
            nn.Conv2d(3, first, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(first, second, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(second * 16, _WIDTHS[0]),
            nn.ReLU(),
        )
        self.last = nn.Linear(_WIDTHS[0], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of images of 32 x 32 pixels from 0 to 1."""
        logits: Tensor = self.last(self.hidden(x))
        return logits


def small_network(samples: LabelledSet, *, classes: int, seed: int) -> FittedModel:
    """A network of the kind that the inputs ask for, trained on them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        is_images = samples.inputs.ndim == 4
        network = SmallConvolutional(classes) if is_images else Perceptron(samples.inputs, classes)
    trained = train(network, samples.inputs, samples.labels, _RECIPE, seed=seed, prepare=unit_images)
    return FittedModel(trained, classes, unit_images, "last")
