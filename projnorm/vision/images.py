"""Sets of labelled images, and their conversion to the input of a network pretrained on ImageNet."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from projnorm.arrays import form
from projnorm.errors import InputError

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]

_MOST_CLASSES = 65_536
_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True, slots=True, eq=False)
class ImageSet:
    """Images with their labels.

    Attributes:
        name: File, folder or data set that the images come from.
        images: RGB pixels, shape ``(n, height, width, 3)``.
        labels: Classes, counted from 0, shape ``(n,)``.
        class_names: Names of the classes; empty if the source does not name them.
    """

    name: str
    images: Images
    labels: Labels
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check types, shapes and the range of the labels."""
        if self.images.dtype != np.uint8 or self.images.ndim != 4 or self.images.shape[3] != 3 or not self.images.size:
            raise InputError(
                f"{self.name}: images must be uint8 of shape (n, height, width, 3); got {form(self.images)}."
            )
        if self.labels.shape != (len(self.images),) or not np.issubdtype(self.labels.dtype, np.integer):
            raise InputError(f"{self.name}: labels must be {len(self.images)} integers; got {form(self.labels)}.")
        if not 0 <= self.labels.min() <= self.labels.max() < _MOST_CLASSES:
            raise InputError(
                f"{self.name}: labels must be classes from 0 to {_MOST_CLASSES - 1:,}; they run from "
                f"{self.labels.min()} to {self.labels.max()}."
            )

    def __len__(self) -> int:
        return len(self.images)

    @property
    def inputs(self) -> Images:
        """The images, under the name that all kinds of samples share."""
        return self.images

    @property
    def sha256(self) -> str:
        """Hash of the shape, the pixels and the labels."""
        digest = hashlib.sha256(str(self.images.shape).encode())
        digest.update(np.ascontiguousarray(self.images).data)
        digest.update(self.labels.astype("<i8").tobytes())
        return digest.hexdigest()

    def take(self, indices: NDArray[np.intp]) -> ImageSet:
        """The images with these indices."""
        return ImageSet(self.name, self.images[indices], self.labels[indices], self.class_names)


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
        """Images of shape ``(n, 3, size, size)``, standardised with the channel means and deviations of ImageNet."""
        x = images.movedim(3, 1).to(torch.float32) / 255.0
        if x.shape[2:] != (self.size, self.size):
            x = functional.interpolate(x, size=(self.size, self.size), mode="bilinear", antialias=True)
        mean, std = (torch.tensor(v, device=x.device).view(3, 1, 1) for v in (_MEAN, _STD))
        return (x - mean) / std
