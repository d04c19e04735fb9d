"""Readers of image sets: scikit-learn's digits, CIFAR folders, and NPZ files. Nothing in a file is ever executed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from projnorm.runs import from_npz
from projnorm.vision.files import locate
from projnorm.vision.images import Images, ImageSet, Labels

DIGITS = "digits"
_DIGITS_SEED = 0
_PIXELS = 3 * 32 * 32


@dataclass(frozen=True, slots=True, eq=False)
class Splits:
    """A training set and a test set of the same classes."""

    train: ImageSet
    test: ImageSet


def load_splits(source: str | Path) -> Splits:
    """A training and a test set.

    Args:
        source: "digits"; a folder with the binary version of CIFAR-10 or CIFAR-100; or an NPZ file with `train_images`,
            `train_labels`, `test_images` and `test_labels`, or with `images` and `labels`, which are then halved.

    Raises:
        ValueError: If there is no such set, or it is not whole.
        OSError: If it cannot be read.
    """
    if str(source) == DIGITS:
        return digits()
    path = locate(source)
    if path.is_dir():
        return read_cifar(path)
    if not path.exists():
        raise ValueError(f"there is no data at {path}; pass a CIFAR folder, an .npz file, or {DIGITS!r}.")
    arrays = _npz(path)
    if {"train_images", "train_labels", "test_images", "test_labels"} <= set(arrays):
        train, test = (_image_set(path, arrays, f"{part}_") for part in ("train", "test"))
        return Splits(train, test)
    return _halves(read_image_set(path))


def read_image_set(path: Path) -> ImageSet:
    """The `images` and `labels` of an NPZ file.

    Raises:
        ValueError: If they are not there, or not what they should be.
        OSError: If the file cannot be read.
    """
    path = locate(path)
    arrays = _npz(path)
    for key in ("images", "labels"):
        if key not in arrays:
            raise ValueError(f"{path}: has no array {key!r}; it has {', '.join(sorted(arrays)) or 'none'}.")
    return _image_set(path, arrays, "")


def digits() -> Splits:
    """Scikit-learn's 1,797 handwritten digits, 8 px each, shown as 32 px RGB; no download."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    grey = np.round(bunch.images * (255.0 / 16.0)).astype(np.uint8)
    images = np.repeat(grey.repeat(4, axis=1).repeat(4, axis=2)[..., None], 3, axis=3)
    return _halves(ImageSet(DIGITS, images, bunch.target.astype(np.int64)))


def read_cifar(folder: Path) -> Splits:
    """The binary version of CIFAR-10 (``data_batch_1.bin`` ...) or CIFAR-100 (``train.bin``), unpacked.

    Raises:
        ValueError: If the files are not there or not whole.
        OSError: If they cannot be read.
    """
    ten = sorted(folder.glob("data_batch_*.bin"))
    if ten and (folder / "test_batch.bin").exists():
        return Splits(_cifar_set(ten, label_bytes=1), _cifar_set([folder / "test_batch.bin"], label_bytes=1))
    if all((folder / name).exists() for name in ("train.bin", "test.bin")):
        train, test = (_cifar_set([folder / f"{part}.bin"], label_bytes=2) for part in ("train", "test"))
        return Splits(train, test)
    raise ValueError(
        f"{folder}: no binary version of CIFAR-10 (data_batch_*.bin and test_batch.bin) or CIFAR-100 (train.bin and "
        "test.bin) here."
    )


def _cifar_set(paths: list[Path], *, label_bytes: int) -> ImageSet:
    """Records of `label_bytes` labels, the last of which counts, then the red, green and blue plane."""
    length = label_bytes + _PIXELS
    images: list[Images] = []
    labels: list[Labels] = []
    for path in paths:
        data = np.fromfile(path, dtype=np.uint8)
        if data.size == 0 or data.size % length:
            raise ValueError(f"{path}: {data.size:,} bytes are not a whole number of records of {length:,}.")
        records = data.reshape(-1, length)
        images.append(records[:, label_bytes:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        labels.append(records[:, label_bytes - 1].astype(np.int64))
    return ImageSet(str(paths[0].parent), np.ascontiguousarray(np.concatenate(images)), np.concatenate(labels))


def _npz(path: Path) -> dict[str, np.ndarray]:
    try:
        return from_npz(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: {error}.") from None


def _image_set(path: Path, arrays: dict[str, np.ndarray], prefix: str) -> ImageSet:
    images, labels = arrays[f"{prefix}images"], arrays[f"{prefix}labels"]
    if np.issubdtype(labels.dtype, np.integer):
        labels = labels.reshape(-1).astype(np.int64)
    return ImageSet(f"{path.name}:{prefix}images" if prefix else path.name, images, labels)


def _halves(whole: ImageSet) -> Splits:
    """Two halves in an order drawn once and for all, so that training and test never mix."""
    if len(whole) < 2:
        raise ValueError(f"{whole.name}: at least 2 images are needed for a training and a test set.")
    order = np.random.default_rng(_DIGITS_SEED).permutation(len(whole))
    half = (len(whole) + 1) // 2
    return Splits(whole.take(order[:half]), whole.take(order[half:]))
