"""Sets of images, and their conversion to the input of a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from projnorm.core.arrays import form
from projnorm.core.errors import InputError
from projnorm.data.samples import SampleSet

Images = NDArray[np.uint8]

_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True, slots=True, eq=False)
class ImageSet(SampleSet):
    """Samples that are images in RGB, one byte per colour, shape ``(n, height, width, 3)``.

    >>> images = ImageSet("black", np.zeros((2, 8, 8, 3), np.uint8), known_labels=np.array([0, 1]))
    >>> len(images), images.images.shape
    (2, (2, 8, 8, 3))
    """

    @property
    def images(self) -> Images:
        """The inputs, by the name of what they are."""
        return self.inputs

    def _check_inputs(self) -> None:
        if not are_rgb_bytes(self.inputs) or not self.inputs.size:
            raise InputError(
                f"{self.name}: images must be uint8 of shape (n, height, width, 3); got {form(self.inputs)}."
            )


@dataclass(frozen=True, slots=True, eq=False)
class Splits:
    """A training set and a test set of the same classes.

    Attributes:
        train: Training set.
        test: Test set.
        verified: Whether they come from an archive with the hash that its authors publish.
    """

    train: ImageSet
    test: ImageSet
    verified: bool = False


@dataclass(frozen=True, slots=True)
class ImageNetInput:
    """Conversion of ``uint8`` images, shape ``(n, height, width, 3)``, to the input of an ImageNet network.

    Attributes:
        size: Height and width of the network's input; other images are resized with antialiasing.
    """

    size: int

    def __call__(self, images: Tensor) -> Tensor:
        """Images of shape ``(n, 3, size, size)``, standardised with the channel means and deviations of ImageNet.

        The channels are last in memory, as in the bytes, which convolutions are fastest on.
        """
        x = images.movedim(3, 1).to(torch.float32) / 255.0
        if x.shape[2:] != (self.size, self.size):
            x = functional.interpolate(x, size=(self.size, self.size), mode="bilinear", antialias=True)
        mean, std = (torch.tensor(v, device=x.device).view(3, 1, 1) for v in (_MEAN, _STD))
        return ((x - mean) / std).contiguous(memory_format=torch.channels_last)


def unit_images(x: Tensor) -> Tensor:
    """Images as bytes with colours last become numbers from 0 to 1 with them first; anything else stays."""
    is_bytes = x.dtype == torch.uint8 and x.ndim == 4 and x.shape[3] in (1, 3)
    return x.movedim(3, 1).to(torch.float32) / 255.0 if is_bytes else x


def are_rgb_bytes(inputs: NDArray[Any]) -> bool:
    """Whether these are images that corruptions are defined for."""
    return inputs.dtype == np.uint8 and inputs.ndim == 4 and inputs.shape[3] == 3
