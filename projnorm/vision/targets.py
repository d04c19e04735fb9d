"""The sets of images whose error is to be predicted: the clean test set, its corruptions, and sets from files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from projnorm.errors import InputError
from projnorm.vision.cifar_c import CifarC
from projnorm.vision.corruptions import corrupt, corrupt_cached
from projnorm.vision.datasets import read_image_set
from projnorm.vision.images import ImageSet

CLEAN = "clean"
GIVEN = "given"
# Where the pixels of a target come from.
GENERATED, OFFICIAL = "generated", "official"


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A set of images to predict the error on.

    Attributes:
        name: What it is called.
        family: The shift that made it; "clean", or "given" for a set from a file.
        severity: 1 to 5; 0 where there is none.
        origin: "generated" here, "official" of CIFAR-C, "clean" or "given".
        images: The images and their labels.
    """

    name: str
    family: str
    severity: int
    origin: str
    images: ImageSet


@dataclass(frozen=True, slots=True)
class Shifts:
    """Families of corruptions, each at every one of the severities."""

    families: tuple[str, ...]
    severities: tuple[int, ...]

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Family by family."""
        return ((family, severity) for family in self.families for severity in self.severities)


def draw_indices(images: ImageSet, count: int, rng: np.random.Generator, option: str) -> NDArray[np.intp]:
    """`count` different indices in ascending order.

    Raises:
        InputError: If there are not so many images; `option` is named as the culprit.
    """
    if count > len(images):
        raise InputError(f"`{option}` must be at most {len(images):,}, the images of {images.name}; got {count:,}.")
    return np.sort(rng.choice(len(images), size=count, replace=False))


def generated_targets(
    test: ImageSet, indices: NDArray[np.intp], shifts: Shifts, *, seed: int, cache: Path | None = None
) -> list[Target]:
    """The chosen images of a test set, clean and under every family and severity.

    Args:
        test: The whole test set.
        indices: Which images.
        shifts: Families and severities.
        seed: Of what the corruptions draw.
        cache: Folder that keeps the corrupted images.

    Raises:
        InputError: If there is no such family or severity.
        OSError: If the cache cannot be written to.
    """
    chosen = test.take(indices)
    targets = [Target(CLEAN, CLEAN, 0, CLEAN, chosen)]
    for family, severity in shifts:
        if cache is None:
            pixels = corrupt(chosen.images, family, severity, seed=seed, indices=indices)
        else:
            pixels = corrupt_cached(chosen.images, family, severity, seed=seed, indices=indices, folder=cache)
        name = f"{family}-{severity}"
        targets.append(Target(name, family, severity, GENERATED, ImageSet(name, pixels, chosen.labels)))
    return targets


def official_targets(test: ImageSet, indices: NDArray[np.intp], shifts: Shifts, cifar_c: CifarC) -> list[Target]:
    """As `generated_targets`, with the corrupted images from the official files.

    Raises:
        InputError: If the files are not of this test set, or lack a family.
        OSError: If they cannot be read.
    """
    chosen = test.take(indices)
    if cifar_c.per_severity != len(test) or not np.array_equal(cifar_c.labels[indices], chosen.labels):
        raise InputError(
            f"{cifar_c.folder}: its labels are not those of the test set of {test.name}; pass the files made from it."
        )
    targets = [Target(CLEAN, CLEAN, 0, CLEAN, chosen)]
    for family, severity in shifts:
        images = cifar_c.images(family, severity, indices)
        targets.append(Target(f"{family}-{severity}", family, severity, OFFICIAL, images))
    return targets


def given_targets(
    paths: tuple[str, ...],
    m: int,
    rng: np.random.Generator,
    *,
    classes: int | None = None,
    names: tuple[str, ...] = (),
) -> list[Target]:
    """At most `m` images of each set from a file.

    Args:
        paths: NPZ files, or folders of class folders.
        m: Images of each at most.
        rng: Draws them.
        classes: Number of classes of the training images; a label beyond them is refused.
        names: Names of the training classes, where they have some; a folder's classes are numbered after them.

    Raises:
        InputError: If a file is no set of images, or has classes that training lacks.
        OSError: If it cannot be read.
    """
    targets = []
    for path in paths:
        whole = _numbered_after(names, read_image_set(Path(path)))
        if classes is not None and whole.labels.max() >= classes:
            raise InputError(f"{path}: has class {whole.labels.max()}; the training images have 0 to {classes - 1}.")
        drawn = whole.take(draw_indices(whole, min(m, len(whole)), rng, "m"))
        targets.append(Target(Path(path).stem, GIVEN, 0, GIVEN, drawn))
    return targets


def _numbered_after(names: tuple[str, ...], images: ImageSet) -> ImageSet:
    """The images with their classes numbered as in `names`, where both have names."""
    if not names or not images.class_names:
        return images
    if unknown := sorted(set(images.class_names) - set(names)):
        raise InputError(f"{images.name}: has the class {unknown[0]!r}, which the training images lack.")
    numbers = np.array([names.index(name) for name in images.class_names])
    return ImageSet(images.name, images.images, numbers[images.labels], names)


def require_distinct(targets: list[Target], *, taken: tuple[str, ...] = ()) -> None:
    """Refuse two targets of one name, or one that is `taken`.

    Raises:
        InputError: If a name is not free.
    """
    names = [target.name for target in targets]
    for name in names:
        if names.count(name) > 1 or name in taken:
            raise InputError(f"no target set may be called {name!r}, which is taken; rename the file.")
