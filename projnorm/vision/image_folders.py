"""Images in a folder per class, as PNG, JPEG, BMP or WebP files."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from projnorm.errors import InputError
from projnorm.files import memory_ceiling, read_file
from projnorm.vision.images import Images, ImageSet, Splits

TRAIN, TEST_NAMES = "train", ("test", "val")
_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
_FORMATS = ("PNG", "JPEG", "BMP", "WEBP")
# More than 8 bits a pixel and channel; Pillow would clip them.
_DEEP_MODES = ("I", "F")
# More is no picture, and takes long to unpack.
_MOST_PIXELS_A_BYTE = 10_000


@dataclass(frozen=True, slots=True)
class _Listing:
    """The image files of a folder and the number of their class."""

    classes: tuple[str, ...]
    files: tuple[Path, ...]
    labels: tuple[int, ...]


def has_class_folders(folder: Path) -> bool:
    """Whether the folder has a training part of this kind."""
    return (folder / TRAIN).is_dir()


def read_folder_splits(folder: Path) -> Splits:
    """``train/<class>/*`` and ``test/<class>/*``, or ``val`` for ``test``; classes are numbered in the order of names.

    Raises:
        InputError: If a part or a class is missing, or an image is damaged or of another size than the first.
        OSError: If a file cannot be read.
    """
    part = next((name for name in TEST_NAMES if (folder / name).is_dir()), None)
    if part is None:
        raise InputError(f"{folder}: has {TRAIN} but no folder test or val beside it.")
    train, test = _listing(folder / TRAIN), _listing(folder / part)
    if train.classes != test.classes:
        only = (
            f"only {name} has {', '.join(sorted(extra)[:5])}{', ...' if len(extra) > 5 else ''}"
            for name, extra in (
                (TRAIN, set(train.classes) - set(test.classes)),
                (part, set(test.classes) - set(train.classes)),
            )
            if extra
        )
        raise InputError(f"{folder}: {TRAIN} and {part} must have the same classes; {' and '.join(only)}.")
    images = _read_all((*train.files, *test.files))
    return Splits(
        ImageSet(
            str(folder / TRAIN), images[: len(train.files)], np.array(train.labels, dtype=np.int64), train.classes
        ),
        ImageSet(str(folder / part), images[len(train.files) :], np.array(test.labels, dtype=np.int64), test.classes),
    )


def read_class_folders(folder: Path) -> ImageSet:
    """``<class>/*``; classes are numbered in the order of their names.

    Raises:
        InputError: If there is no class, or an image is damaged or of another size than the first.
        OSError: If a file cannot be read.
    """
    listing = _listing(folder)
    return ImageSet(str(folder), _read_all(listing.files), np.array(listing.labels, dtype=np.int64), listing.classes)


def _listing(folder: Path) -> _Listing:
    """Everything in the order of names; hidden files, and files of other kinds, are passed over."""
    classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not classes:
        raise InputError(f"{folder}: has no folders, one for each class.")
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        inside = sorted(
            entry
            for entry in (folder / name).iterdir()
            if entry.suffix.lower() in _ENDINGS and not entry.name.startswith(".") and entry.is_file()
        )
        if not inside:
            raise InputError(f"{folder / name}: has no images ({', '.join(_ENDINGS)}).")
        files += inside
        labels += [label] * len(inside)
    return _Listing(tuple(classes), tuple(files), tuple(labels))


def _read_all(files: tuple[Path, ...]) -> Images:
    first = _pixels(files[0])
    try:
        if len(files) * first.size > memory_ceiling():
            raise MemoryError
        images = np.empty((len(files), *first.shape), dtype=np.uint8)
    except MemoryError:
        raise InputError(
            f"{files[0].parent.parent}: {len(files):,} images of {first.shape[1]} x {first.shape[0]} px do not fit "
            "into memory; resize them first."
        ) from None
    for index, file in enumerate(files):
        pixels = _pixels(file)
        if pixels.shape != first.shape:
            raise InputError(
                f"{file}: is {pixels.shape[1]} x {pixels.shape[0]} px, but {files[0]} is {first.shape[1]} x "
                f"{first.shape[0]} px; resize the images to one size first."
            )
        images[index] = pixels
    return images


def _pixels(file: Path) -> Images:
    """RGB; grey and palette images are converted, and an alpha channel is left out."""
    from PIL import Image, UnidentifiedImageError

    data = read_file(file)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
                if image.mode.split(";")[0] in _DEEP_MODES:
                    raise InputError(f"it has pixels of mode {image.mode}; convert it to 8 bits first")
                if image.width * image.height > _MOST_PIXELS_A_BYTE * len(data):
                    raise InputError(f"it says {image.width} x {image.height} px, and has {len(data):,} bytes")
                return np.asarray(image.convert("RGB"))
    except UnidentifiedImageError:
        raise InputError(f"{file}: not a PNG, JPEG, BMP or WebP image.") from None
    except (
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
        OSError,
        SyntaxError,
        ValueError,
        LookupError,
        TypeError,
        EOFError,
        OverflowError,
        struct.error,
        zlib.error,
    ) as error:
        raise InputError(f"{file}: cannot be read as an image ({error}).") from None
