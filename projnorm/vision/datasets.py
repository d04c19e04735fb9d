"""Image sets in any supported format, read without executing anything in a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from projnorm.arrays import read_arrays
from projnorm.errors import InputError
from projnorm.files import locate
from projnorm.vision.cifar import ARCHIVE_ENDINGS, DOWNLOADS, cached_archive, read_cifar
from projnorm.vision.image_folders import TRAIN, read_class_folders, read_folder_splits
from projnorm.vision.images import ImageSet, Splits

DIGITS = "digits"
_SPLIT_SEED = 0


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
    arrays = read_arrays(path)
    if {"train_images", "train_labels", "test_images", "test_labels"} <= set(arrays):
        train, test = (_image_set(path, arrays, f"{part}_") for part in ("train", "test"))
        return Splits(train, test)
    return _halves(read_image_set(path))


def read_image_set(path: Path) -> ImageSet:
    """Read one set: `images` and `labels` of an NPZ file, or a folder with ``<class>/*``, classes sorted by name."""
    path = locate(path)
    if path.is_dir():
        return read_class_folders(path)
    arrays = read_arrays(path)
    for key in ("images", "labels"):
        if key not in arrays:
            raise InputError(f"{path}: has no array {key!r}; it has {', '.join(sorted(arrays)) or 'none'}.")
    return _image_set(path, arrays, "")


def digits() -> Splits:
    """Scikit-learn's 1,797 handwritten digits, enlarged from 8 px to 32 px RGB; needs no download."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    grey = np.round(bunch.images * (255.0 / 16.0)).astype(np.uint8)
    images = np.repeat(grey.repeat(4, axis=1).repeat(4, axis=2)[..., None], 3, axis=3)
    return _halves(ImageSet(DIGITS, images, bunch.target.astype(np.int64)))


def _image_set(path: Path, arrays: dict[str, np.ndarray], prefix: str) -> ImageSet:
    images, labels = arrays[f"{prefix}images"], arrays[f"{prefix}labels"]
    if np.issubdtype(labels.dtype, np.integer):
        labels = labels.reshape(-1).astype(np.int64)
    return ImageSet(f"{path.name}:{prefix}images" if prefix else path.name, images, labels)


def _halves(whole: ImageSet) -> Splits:
    """Two halves in a fixed random order, so that training and test images never mix."""
    if len(whole) < 2:
        raise InputError(f"{whole.name}: at least 2 images are needed for a training and a test set.")
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(whole))
    half = (len(whole) + 1) // 2
    train, test = whole.take(order[:half]), whole.take(order[half:])
    return Splits(
        replace(train, name=f"the training half of {whole.name}"), replace(test, name=f"the test half of {whole.name}")
    )
