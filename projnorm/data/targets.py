"""Labelled sets on which the error is estimated: the clean test set, its corruptions, and sets from files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from projnorm.core.errors import InputError
from projnorm.data.cifar_c import CifarC
from projnorm.data.corruptions.families import corrupt, corrupt_cached
from projnorm.data.datasets import read_image_set
from projnorm.data.encoding import EncodedPairs
from projnorm.data.images import ImageSet
from projnorm.data.samples import SampleSet

# Either kind has a name, a hash, `inputs`, `labels` and `take`.
S = TypeVar("S", bound=SampleSet | EncodedPairs, covariant=True)

CLEAN = "clean"
GIVEN = "given"
# Where the pixels of a target come from.
GENERATED, OFFICIAL = "generated", "official"


@dataclass(frozen=True, slots=True, eq=False)
class Target(Generic[S]):
    """A set of samples on which the error is estimated, under a unique name.

    >>> samples = SampleSet("fog", np.zeros((4, 2)), known_labels=np.array([0, 1, 1, 0]))
    >>> target = Target("fog-3", "fog", 3, GENERATED, samples)
    >>> target.error(np.array([0, 1, 1, 1]))
    0.25

    Attributes:
        name: Name of the set.
        family: Kind of shift, which targets that are alike share: a corruption, or "clean" or "given" without one.
        severity: Its severity, from 1 to 5; 0 where there is no shift.
        origin: Where the samples come from, such as "clean", "generated", "official" or "given".
        samples: The samples.
        merge: Label that each predicted class counts as; empty where the classes are the labels.
    """

    name: str
    family: str
    severity: int
    origin: str
    samples: S
    merge: tuple[int, ...] = ()

    def error(self, predicted: NDArray[np.int64]) -> float:
        """Share of labels predicted wrongly."""
        counted = np.array(self.merge)[predicted] if self.merge else predicted
        return float(np.mean(counted != self.samples.labels))


@dataclass(frozen=True, slots=True)
class Shifts:
    """All pairs of a family of corruptions and a severity.

    >>> list(Shifts(("fog", "snow"), (1, 5)))
    [('fog', 1), ('fog', 5), ('snow', 1), ('snow', 5)]
    """

    families: tuple[str, ...]
    severities: tuple[int, ...]

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Pairs of family and severity, family by family."""
        return ((family, severity) for family in self.families for severity in self.severities)


def draw_indices(samples: SampleSet, count: int, rng: np.random.Generator, option: str) -> NDArray[np.intp]:
    """Draw `count` distinct indices of samples, in ascending order."""
    if count > len(samples):
        raise InputError(f"`{option}` must be at most {len(samples):,}, the samples of {samples.name}; got {count:,}.")
    return np.sort(rng.choice(len(samples), size=count, replace=False))


def generated_targets(
    test: ImageSet, indices: NDArray[np.intp], shifts: Shifts, *, seed: int, cache: Path | None = None
) -> list[Target[ImageSet]]:
    """The images of a test set with these indices, clean and corrupted.

    `cache` is a folder in which the corrupted images are stored for later runs; None stores nothing.
    """
    chosen = test.take(indices)
    corrupted = corrupt if cache is None else partial(corrupt_cached, folder=cache)

    def images(family: str, severity: int) -> ImageSet:
        pixels = corrupted(chosen.images, family, severity, seed=seed, indices=indices)
        return ImageSet(f"{family}-{severity}", pixels, chosen.labels)

    return _clean_and_shifted(chosen, shifts, GENERATED, images)


def official_targets(
    test: ImageSet, indices: NDArray[np.intp], shifts: Shifts, cifar_c: CifarC
) -> list[Target[ImageSet]]:
    """As `generated_targets`, with corrupted images from the official files."""
    chosen = test.take(indices)
    if cifar_c.per_severity != len(test) or not np.array_equal(cifar_c.labels[indices], chosen.labels):
        raise InputError(
            f"{cifar_c.folder}: its labels are not those of the test set of {test.name}; pass its corruptions."
        )
    return _clean_and_shifted(chosen, shifts, OFFICIAL, partial(cifar_c.images, indices=indices))


def given_targets(
    paths: tuple[str, ...], m: int, rng: np.random.Generator, *, classes: int, names: tuple[str, ...]
) -> list[Target[ImageSet]]:
    """Draw at most `m` images from each of several NPZ files, or folders with one subfolder for each class.

    Labels must be below `classes`, the number of training classes; `names` are theirs, if known, by which the classes
    of a folder are numbered.
    """
    targets = []
    for path in paths:
        whole = read_image_set(Path(path)).with_labels().of_classes(classes, names)
        drawn = whole.take(draw_indices(whole, min(m, len(whole)), rng, "m"))
        targets.append(Target(Path(path).stem, GIVEN, 0, GIVEN, drawn))
    return targets


def require_distinct(names: Iterable[str], *, taken: tuple[str, ...] = ()) -> None:
    """Check that the names of the targets are distinct and none of them is `taken`."""
    for name, count in Counter(names).items():
        if count > 1 or name in taken:
            raise InputError(f"the name {name!r} of a target set is already in use; rename the file.")


def _clean_and_shifted(
    clean: ImageSet, shifts: Shifts, origin: str, images: Callable[[str, int], ImageSet]
) -> list[Target[ImageSet]]:
    shifted = (Target(f"{family}-{level}", family, level, origin, images(family, level)) for family, level in shifts)
    return [Target(CLEAN, CLEAN, 0, CLEAN, clean), *shifted]
