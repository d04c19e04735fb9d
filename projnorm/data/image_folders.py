"""Image sets as folders, one for each class, of PNG, JPEG, BMP or WebP files."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from projnorm.core.errors import InputError
from projnorm.core.files import UNREADABLE, memory_ceiling, read_file, reason
from projnorm.data.images import Images, ImageSet, Splits

TRAIN, TEST_NAMES = "train", ("test", "val")
_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
_FORMATS = ("PNG", "JPEG", "BMP", "WEBP")
# Modes with more than 8 bits per channel, which Pillow would clip.
_DEEP_MODES = ("I", "F")
# A file with more is a decompression bomb, not a picture.
_MOST_PIXELS_PER_BYTE = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class _Listing:
    """The image files below a folder, each with its label, an index into the sorted names of the class folders.

    Without class folders there are no classes, and the labels are None.
    """

    classes: tuple[str, ...]
    files: tuple[Path, ...]
    labels: NDArray[np.int64] | None

    def image_set(self, folder: Path, images: Images) -> ImageSet:
        return ImageSet(str(folder), images, self.labels, self.classes)


def read_folder_splits(folder: Path) -> Splits:
    """Read ``train/<class>/*`` and ``test/<class>/*`` (or ``val``); classes are numbered in the order of names.

    The test images may lie in the folder itself; their labels are not known then.
    """
    part = next((name for name in TEST_NAMES if (folder / name).is_dir()), None)
    if part is None:
        raise InputError(f"{folder}: has {TRAIN} but no folder test or val beside it.")
    train, test = _listing(folder / TRAIN), _listing(folder / part)
    if test.classes and train.classes != test.classes:
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
    n_train = len(train.files)
    return Splits(train.image_set(folder / TRAIN, images[:n_train]), test.image_set(folder / part, images[n_train:]))


def read_class_folders(folder: Path) -> ImageSet:
    """Read ``<class>/*``, classes numbered in the order of their names; or images in the folder itself, unlabelled."""
    listing = _listing(folder)
    return listing.image_set(folder, _read_all(listing.files))


def _listing(folder: Path) -> _Listing:
    """The images in the order of their paths; hidden files and files that are not images are skipped."""
    classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not classes:
        if not (inside := _image_files(folder)):
            raise InputError(f"{folder}: has no folders, one for each class, and no images ({', '.join(_ENDINGS)}).")
        return _Listing((), inside, None)
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        inside = _image_files(folder / name)
        if not inside:
            raise InputError(f"{folder / name}: has no images ({', '.join(_ENDINGS)}).")
        files += inside
        labels += [label] * len(inside)
    return _Listing(tuple(classes), tuple(files), np.array(labels, dtype=np.int64))


def _image_files(folder: Path) -> tuple[Path, ...]:
    return tuple(
        sorted(
            entry
            for entry in folder.iterdir()
            if entry.suffix.lower() in _ENDINGS and not entry.name.startswith(".") and entry.is_file()
        )
    )


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
    """Pixels of an image in RGB; grey and palette images are converted, and an alpha channel is dropped."""
    from PIL import Image, UnidentifiedImageError

    data = read_file(file)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
                if image.mode.split(";")[0] in _DEEP_MODES:
                    raise InputError(f"it has pixels of mode {image.mode}; convert it to 8 bits first")
                if image.width * image.height > _MOST_PIXELS_PER_BYTE * len(data):
                    raise InputError(f"it claims {image.width} x {image.height} px in only {len(data):,} bytes")
                return np.asarray(image.convert("RGB"))
    except UnidentifiedImageError:
        raise InputError(f"{file}: not a PNG, JPEG, BMP or WebP image.") from None
    except (*UNREADABLE, OSError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise InputError(f"{file}: cannot be read as an image ({reason(error)}).") from None
