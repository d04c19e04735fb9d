"""Sets of labelled images, and what a network pretrained on ImageNet wants to see of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

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
        name: Where they come from.
        images: RGB, shape ``(n, height, width, 3)``.
        labels: Classes from 0, shape ``(n,)``.
        class_names: Of the classes, where the source has names; else empty.
    """

    name: str
    images: Images
    labels: Labels
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what is not a set of labelled RGB images."""
        if self.images.dtype != np.uint8 or self.images.ndim != 4 or self.images.shape[3] != 3 or not self.images.size:
            raise InputError(
                f"{self.name}: images must be uint8 of shape (n, height, width, 3); got {self.images.dtype} of shape "
                f"{self.images.shape}."
            )
        if self.labels.shape != (len(self.images),) or not np.issubdtype(self.labels.dtype, np.integer):
            raise InputError(
                f"{self.name}: labels must be {len(self.images)} integers; got {self.labels.dtype} of shape "
                f"{self.labels.shape}."
            )
        if not 0 <= self.labels.min() <= self.labels.max() < _MOST_CLASSES:
            raise InputError(
                f"{self.name}: labels must be classes from 0 to {_MOST_CLASSES - 1:,}; they run from "
                f"{self.labels.min()} to {self.labels.max()}."
            )

    def __len__(self) -> int:
        return len(self.images)

    @property
    def inputs(self) -> Images:
        """The images, as what a network takes."""
        return self.images

    @property
    def sha256(self) -> str:
        """Of shape, pixels and labels."""
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
        train: To learn from.
        test: To predict on.
        verified: Whether they come from an archive that has the hash its authors publish.
    """

    train: ImageSet
    test: ImageSet
    verified: bool = False


@dataclass(frozen=True, slots=True)
class ImageNetInput:
    """From ``uint8`` images, shape ``(n, height, width, 3)``, to the input of a network pretrained on ImageNet.

    Attributes:
        size: Height and width that the network sees; images of another size are resized with antialiasing.
    """

    size: int

    def __call__(self, images: Tensor) -> Tensor:
        """Shape ``(n, 3, size, size)``, each channel centred and scaled as for ImageNet."""
        x = images.movedim(3, 1).to(torch.float32) / 255.0
        if x.shape[2:] != (self.size, self.size):
            x = functional.interpolate(x, size=(self.size, self.size), mode="bilinear", antialias=True)
        mean, std = (torch.tensor(v, device=x.device).view(3, 1, 1) for v in (_MEAN, _STD))
        return (x - mean) / std
