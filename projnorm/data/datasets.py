"""Image sets in any supported format, read without executing anything in a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from projnorm.core.arrays import read_arrays
from projnorm.core.errors import InputError
from projnorm.core.files import locate
from projnorm.data.cifar import ARCHIVE_ENDINGS, DOWNLOADS, cached_archive, read_cifar
from projnorm.data.image_folders import TRAIN, read_class_folders, read_folder_splits
from projnorm.data.images import ImageSet, Splits
from projnorm.data.samples import SampleSet

DIGITS = "digits"
_SPLIT_SEED = 0
_IMAGES, _INPUTS = "images", "inputs"
S = TypeVar("S", bound=SampleSet)


def load_splits(source: str | Path) -> Splits:
    """Load a training set and a test set.

    Args:
        source: One of

            - "digits";
            - "cifar10" or "cifar100", after `download_cifar`;
            - a published archive of CIFAR-10 or CIFAR-100, binary or Python version, or the folder it unpacks to;
            - a folder with ``train/<class>/*`` and ``test/<class>/*`` or ``val/<class>/*``, images of one size;
            - an NPZ file with `train_images`, `train_labels`, `test_images` and `test_labels`, or with `images` and
              `labels`, which are split into halves.

            A test set may lack labels: images without class folders, or no `test_labels`.
    """
    if str(source) == DIGITS:
        return digits()
    path = locate(source)
    if str(source) in DOWNLOADS and not path.exists():
        path = cached_archive(str(source))
        if not path.exists():
            raise InputError(
                f"{source} is not at {path}; fetch it with download_cifar({str(source)!r}), or pass the path of its "
                "archive."
            )
    if not path.exists():
        raise InputError(
            f"there is no data at {path}; pass an archive or folder of CIFAR, a folder with train/<class>/* and "
            f"test/<class>/*, an .npz file, or {DIGITS!r}."
        )
    if (path / TRAIN).is_dir():
        return read_folder_splits(path)
    if path.is_dir() or path.name.endswith(ARCHIVE_ENDINGS):
        return read_cifar(path)
    return Splits(*read_array_splits(path, ImageSet))


def read_array_splits(path: Path, kind: type[S]) -> tuple[S, S]:
    """Training and test set of an NPZ file, as `load_splits` describes them; a `SampleSet` may be called `inputs`."""
    arrays = read_arrays(path, name=_INPUTS)
    if any(f"train_{name}" in arrays for name in _names(kind)):
        return _sample_set(path, arrays, kind, "train_"), _sample_set(path, arrays, kind, "test_")
    return halves(_sample_set(path, arrays, kind))


def read_image_set(path: Path) -> ImageSet:
    """Read one set: an NPZ file with `images`, or a folder of images.

    Labels are those of the array `labels`, or the folders ``<class>/*`` sorted by name; a set may have none.
    """
    return read_sample_set(path, ImageSet)


def read_sample_set(path: Path, kind: type[S]) -> S:
    """As `read_image_set`; a `SampleSet` has inputs of any shape, which may be called `inputs` or be an NPY file."""
    path = locate(path)
    if path.is_dir():
        images = read_class_folders(path)
        return kind(images.name, images.images, images.known_labels, images.class_names)
    return _sample_set(path, read_arrays(path, name=_INPUTS), kind)


def halves(whole: S) -> tuple[S, S]:
    """A training and a test half, drawn in a fixed random order."""
    if len(whole) < 2:
        raise InputError(f"{whole.name}: at least 2 samples are needed for a training and a test set.")
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(whole))
    half = (len(whole) + 1) // 2
    train, test = whole.take(order[:half]), whole.take(order[half:])
    return (
        replace(train, name=f"the training half of {whole.name}"),
        replace(test, name=f"the test half of {whole.name}"),
    )


def digits() -> Splits:
    """Scikit-learn's 1,797 handwritten digits, enlarged from 8 px to 32 px RGB; needs no download."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    grey = np.round(bunch.images * (255.0 / 16.0)).astype(np.uint8)
    images = np.repeat(grey.repeat(4, axis=1).repeat(4, axis=2)[..., None], 3, axis=3)
    return Splits(*halves(ImageSet(DIGITS, images, bunch.target.astype(np.int64))))


def _sample_set(path: Path, arrays: dict[str, NDArray[Any]], kind: type[S], prefix: str = "") -> S:
    names = [f"{prefix}{name}" for name in _names(kind)]
    key = next((name for name in names if name in arrays), None)
    if key is None:
        expected_names = " or ".join(map(repr, names))
        raise InputError(f"{path}: has no array {expected_names}; it has {', '.join(sorted(arrays)) or 'none'}.")
    labels = arrays.get(f"{prefix}labels")
    if labels is not None and np.issubdtype(labels.dtype, np.integer):
        labels = labels.reshape(-1).astype(np.int64)
    return kind(f"{path.name}:{key}" if prefix else path.name, arrays[key], labels)


def _names(kind: type[SampleSet]) -> tuple[str, ...]:
    """Names that the inputs may have in an NPZ file."""
    return (_IMAGES,) if issubclass(kind, ImageSet) else (_IMAGES, _INPUTS)
