"""CIFAR-10-C and CIFAR-100-C as published: one array per corruption, with the five severities one after the other.

D. Hendrycks and T. Dietterich, Benchmarking Neural Network Robustness to Common Corruptions and Perturbations, 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from projnorm.core.arrays import form, map_npy, read_arrays
from projnorm.core.errors import InputError
from projnorm.core.files import locate
from projnorm.data.images import ImageSet
from projnorm.data.samples import Labels

_LEVELS = 5
_LABELS = "labels.npy"
_IMAGE = (32, 32, 3)


@dataclass(frozen=True, slots=True, eq=False)
class CifarC:
    """A folder of corrupted images, which are read from disk when they are needed.

    Attributes:
        folder: Folder with the published files.
        families: Names of the corruptions in the folder, sorted.
        labels: Classes of the images, the same for every family and severity, shape ``(per_severity,)``.
    """

    folder: Path
    families: tuple[str, ...]
    labels: Labels

    @property
    def per_severity(self) -> int:
        """Number of images for each family and severity."""
        return len(self.labels)

    def images(self, family: str, severity: int, indices: NDArray[np.intp]) -> ImageSet:
        """The images of one family and severity with these indices in the clean test set; no others are read."""
        if family not in self.families:
            raise InputError(f"`family` must be one of {', '.join(self.families)}; got {family!r}.")
        if severity not in range(1, _LEVELS + 1):
            raise InputError(f"`severity` must be 1 to {_LEVELS}; got {severity!r}.")
        indices = np.asarray(indices)
        if indices.ndim != 1 or not indices.size or not np.issubdtype(indices.dtype, np.integer):
            raise InputError(f"`indices` must be one or more integers; got {form(indices)}.")
        if not 0 <= indices.min() <= indices.max() < self.per_severity:
            raise InputError(
                f"`indices` must be 0 to {self.per_severity - 1:,}; they run from {indices.min()} to {indices.max()}."
            )
        stored = _images(self.folder / f"{family}.npy", _LEVELS * self.per_severity)
        pixels = np.array(stored[(severity - 1) * self.per_severity + indices.astype(np.intp)])
        return ImageSet(f"{self.folder.name}:{family}-{severity}", pixels, self.labels[indices])


def open_cifar_c(folder: str | Path) -> CifarC:
    """Open CIFAR-10-C, CIFAR-100-C, or a smaller set in the same format; no pixels are read.

    The folder holds ``labels.npy`` and ``<family>.npy``; its path may be relative to the folder PROJNORM_DATA names.
    """
    folder = locate(folder)
    if not (folder / _LABELS).is_file():
        raise InputError(f"{folder}: has no {_LABELS}; pass the unpacked folder CIFAR-10-C or CIFAR-100-C.")
    labels = _labels(folder / _LABELS)
    paths = sorted(path for path in folder.glob("*.npy") if path.name != _LABELS and not path.name.startswith("."))
    if not paths:
        raise InputError(f"{folder}: has {_LABELS}, but no <family>.npy beside it.")
    for path in paths:
        _images(path, _LEVELS * len(labels))
    return CifarC(folder, tuple(path.stem for path in paths), labels)


def _labels(path: Path) -> Labels:
    stored = read_arrays(path, name="labels")["labels"]
    if stored.ndim != 1 or not np.issubdtype(stored.dtype, np.integer) or not len(stored) or len(stored) % _LEVELS:
        required = f"integers, the same number for each of {_LEVELS} severities"
        raise InputError(f"{path}: must hold {required}; got {form(stored)}.")
    by_severity = np.array(stored).reshape(_LEVELS, -1)
    if not (by_severity == by_severity[0]).all():
        raise InputError(f"{path}: the labels of the {_LEVELS} severities differ from one another.")
    return by_severity[0].astype(np.int64)


def _images(path: Path, count: int) -> NDArray[np.uint8]:
    stored = map_npy(path)
    if stored.dtype != np.uint8 or stored.shape != (count, *_IMAGE):
        raise InputError(f"{path}: must be uint8 of shape {(count, *_IMAGE)}, like {_LABELS}; got {form(stored)}.")
    return stored
