"""What a data set of the benchmark is: sets to train on, a labelled source, and targets whose labels are the truth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from projnorm.core.errors import InputError
from projnorm.data.class_draws import drawn_with_shares
from projnorm.outputs.outputs import Outputs

# Kinds of shift, as the leaderboard and the figure sort targets.
NONE, TIME, PLACE, DOMAIN = "no shift", "time", "place", "domain"
CLASSES, CORRUPTION, BOTH = "class shares", "corruption", "class shares and corruption"
KINDS = (NONE, TIME, PLACE, DOMAIN, CLASSES, CORRUPTION, BOTH)
# Largest number of samples that a model is trained on, and of the labelled source.
MOST_TRAIN, MOST_SOURCE = 20_000, 5_000
# Share of the samples of a source domain without a test set of its own that a model is trained on.
_TRAIN_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Places:
    """Where the data of the benchmark are; every path is the user's.

    Attributes:
        data: Folder with the data sets that `docs/benchmark-of-shifts.md` lists.
        packages: Folder in which the packages that hold data are installed; empty for this environment.
        images: Training and test images of CIFAR-10, as `projnorm.data.load_splits` takes them.
        weights: Weights that the ResNet18 starts from.
        cache: Folder for what is computed once, such as encoded texts and trained networks.
    """

    data: Path
    packages: str
    images: str
    weights: str
    cache: Path

    def package(self, name: str, version: str) -> Path:
        """Folder of an installed package, which is not imported.

        Raises:
            InputError: If it is not installed.
        """
        if self.packages:
            folder = Path(self.packages) / name
        else:
            spec = find_spec(name)
            folder = Path(spec.origin).parent if spec is not None and spec.origin else Path(name)
        if not folder.is_dir():
            raise InputError(
                f"the benchmark needs the data of {name}: pip install {name}=={version}, or pass the site-packages "
                "folder that has it as `packages`."
            )
        return folder


@dataclass(frozen=True, slots=True, eq=False)
class LabelledSet:
    """Samples with their labels.

    Attributes:
        inputs: Inputs of the model, one sample per row.
        labels: Classes, counted from 0.
        name: Name of the set.
        kind: Kind of shift that separates it from the source, of `KINDS`; empty for the source itself.
    """

    inputs: NDArray[Any]
    labels: NDArray[np.int64]
    name: str = ""
    kind: str = ""

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: NDArray[np.integer] | slice) -> LabelledSet:
        """The samples with these indices."""
        return replace(self, inputs=self.inputs[indices], labels=self.labels[indices])

    def at_most(self, count: int, rng: np.random.Generator) -> LabelledSet:
        """All samples, or `count` of them drawn without replacement and left in their order."""
        if len(self) <= count:
            return self
        return self.take(np.sort(rng.choice(len(self), size=count, replace=False)))


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """One question of the benchmark, without a model.

    Attributes:
        train: What a model is trained on.
        source: Labelled samples of the same distribution, which no model is trained on.
        targets: Sets whose error is estimated.
    """

    train: LabelledSet
    source: LabelledSet
    targets: tuple[LabelledSet, ...]

    @property
    def classes(self) -> int:
        """Number of classes."""
        return 1 + int(max(self.train.labels.max(), self.source.labels.max()))

    def at_most(self, m: int, rng: np.random.Generator) -> Problem:
        """At most `m` samples of each target, and as many to train on and of the source as the benchmark uses."""
        targets = tuple(target.at_most(m, rng) for target in self.targets)
        return Problem(self.train.at_most(MOST_TRAIN, rng), self.source.at_most(MOST_SOURCE, rng), targets)


@dataclass(frozen=True, slots=True, eq=False)
class GivenOutputs:
    """One question of the benchmark whose data come with the outputs of a model that is not there.

    Attributes:
        source: Outputs on labelled samples.
        targets: Outputs on sets whose error is estimated, with labels.
        kinds: Kind of shift of each target.
    """

    source: Outputs
    targets: tuple[Outputs, ...]
    kinds: tuple[str, ...]

    def at_most(self, m: int, rng: np.random.Generator) -> GivenOutputs:
        """At most `m` samples of each target."""
        drawn = (np.sort(rng.choice(len(target), size=min(m, len(target)), replace=False)) for target in self.targets)
        targets = (target.take(rows) for target, rows in zip(self.targets, drawn, strict=True))
        return replace(self, targets=tuple(targets))


def split_source(
    whole: LabelledSet, targets: Iterable[LabelledSet], rng: np.random.Generator, share: float = _TRAIN_SHARE
) -> Problem:
    """A problem whose training set and source are parts of one set, split at random."""
    order = rng.permutation(len(whole))
    count = round(share * len(whole))
    return Problem(whole.take(np.sort(order[:count])), whole.take(np.sort(order[count:])), tuple(targets))


def split_in_time(whole: LabelledSet, targets: Iterable[LabelledSet], share: float = _TRAIN_SHARE) -> Problem:
    """As `split_source`, of a set in the order of time: its beginning to train on, and the rest as the source.

    Neighbours in time are alike; a model that had seen every other one would be better on the source than on any day
    to come.
    """
    count = round(share * len(whole))
    return Problem(whole.take(slice(count)), whole.take(slice(count, None)), tuple(targets))


def split_by_group(
    whole: LabelledSet, groups: NDArray[np.integer], targets: Iterable[LabelledSet], rng: np.random.Generator
) -> Problem:
    """As `split_source`, with all samples of a group on one side."""
    names = rng.permutation(np.unique(groups))
    is_train = np.isin(groups, names[: round(_TRAIN_SHARE * len(names))])
    return Problem(whole.take(np.flatnonzero(is_train)), whole.take(np.flatnonzero(~is_train)), tuple(targets))


def other_than(sets: Sequence[LabelledSet], name: str) -> tuple[LabelledSet, tuple[LabelledSet, ...]]:
    """The set of this name, and the others."""
    chosen = [samples for samples in sets if samples.name == name]
    if len(chosen) != 1:
        raise InputError(f"there is no set {name!r}; there are {', '.join(samples.name for samples in sets)}.")
    return chosen[0], tuple(samples for samples in sets if samples.name != name)


def drawn_by_shares(
    whole: LabelledSet, shares: NDArray[np.floating], most: int, rng: np.random.Generator
) -> LabelledSet:
    """Samples in these class shares, drawn without replacement: as many as every class allows, and `most` at most."""
    return whole.take(drawn_with_shares(whole.labels, shares, most, rng))
