"""The images of a run: what is trained on, what is held out, and the targets."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deep.config import DeepConfig
from ntk.plan import TRAIN
from projnorm.vision import ImageSet, load_splits, open_cifar_c
from projnorm.vision.targets import (
    GENERATED,
    Shifts,
    Target,
    draw_indices,
    generated_targets,
    given_targets,
    official_targets,
    require_distinct,
)


@dataclass(frozen=True, slots=True, eq=False)
class RunData:
    """Everything a run looks at.

    Attributes:
        train: Images to fine-tune on, in an order drawn once.
        validation: Labelled images of the same distribution that no training sees.
        targets: The sets to predict the error on.
        classes: Number of classes.
        verified: Whether the images come from an archive that has the hash its authors publish.
    """

    train: ImageSet
    validation: ImageSet
    targets: tuple[Target, ...]
    classes: int
    verified: bool

    @property
    def sha256(self) -> str:
        """Of every pixel and label: other images are another run."""
        sets = (self.train, self.validation, *(target.images for target in self.targets))
        return hashlib.sha256("".join(images.sha256 for images in sets).encode()).hexdigest()


def load_data(config: DeepConfig, *, cache: Path | None = None) -> RunData:
    """Read, split, draw and corrupt.

    Training and validation images are two parts of one drawn order of the training set, so that a smaller run uses the
    first images of a larger one.

    Args:
        config: What was asked.
        cache: Folder that keeps the corrupted images.

    Raises:
        ValueError: If the data is not there, not whole, or too small.
        OSError: If it cannot be read.
    """
    splits = load_splits(config.data)
    rng = np.random.default_rng(config.seed)
    order = rng.permutation(len(splits.train))
    left = len(order) - config.n_validation
    n_train = config.n_train or left
    if not 2 <= n_train <= left:
        raise ValueError(
            f"`n_train` and `n_validation` must leave 2 images or more of the {len(order):,} of {splits.train.name} to "
            f"train on; got n_train = {config.n_train:,} and n_validation = {config.n_validation:,}."
        )
    validation = splits.train.take(order[: config.n_validation])
    train = splits.train.take(order[config.n_validation : config.n_validation + n_train])
    if len(np.unique(train.labels)) < 2:
        raise ValueError(f"the {n_train} training images are all of one class; nothing can be learnt from them.")
    indices = draw_indices(splits.test, config.m, rng, "m")
    shifts = Shifts(config.families, config.severities)
    if config.corruptions == GENERATED:
        targets = generated_targets(splits.test, indices, shifts, seed=config.seed, cache=cache)
    else:
        targets = official_targets(splits.test, indices, shifts, open_cifar_c(config.corruptions))
    classes = 1 + int(max(splits.train.labels.max(), splits.test.labels.max()))
    targets += given_targets(config.targets, config.m, rng, classes=classes, names=splits.train.class_names)
    require_distinct(targets, taken=(TRAIN,))
    if "ProjNorm" in config.methods and (smallest := min(targets, key=lambda t: len(t.images))).images.labels.size < 2:
        raise ValueError(f"ProjNorm trains on every target and needs 2 images of each; {smallest.name} has 1.")
    return RunData(train, validation, tuple(targets), classes, splits.verified)


def few_indices(size: int, count: int, seed: int) -> NDArray[np.intp]:
    """`count` of `size` images, all if there are no more, ascending; fewer of them are some of these.

    Target sets may be sorted by class, so their first images would not do.
    """
    return np.sort(np.random.default_rng(seed).permutation(size)[:count])
