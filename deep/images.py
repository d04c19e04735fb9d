"""Runs on images: their data, the networks they start from, and how these are trained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deep.config import DeepConfig
from deep.samples import RunData, Target, require_trainable, split_order
from deep.training import Recipe
from ntk.plan import TRAIN
from projnorm.vision import ImageNetInput, load_network, load_splits, open_cifar_c
from projnorm.vision.networks import HEADS
from projnorm.vision.targets import (
    GENERATED,
    Shifts,
    draw_indices,
    generated_targets,
    given_targets,
    official_targets,
    require_distinct,
)
from projnorm.vision.weights import LoadedNetwork


@dataclass(frozen=True, slots=True)
class Images:
    """What a `deep.domain.Domain` is for, of images."""

    config: DeepConfig

    def load_data(self, *, cache: Path | None = None) -> RunData:
        """Read, split, draw and corrupt; `cache` keeps the corrupted images.

        Raises:
            ValueError: If the data is not there, not whole, or too small.
            OSError: If it cannot be read.
        """
        return load_image_data(self.config, cache=cache)

    def initial(self, *, classes: int, seed: int) -> LoadedNetwork:
        """Pretrained weights under a drawn head."""
        c = self.config
        return load_network(c.architecture, c.weights, num_outputs=classes, seed=seed, drop_head=True)

    @property
    def prepare(self) -> ImageNetInput:
        """What the networks see of an image."""
        return ImageNetInput(self.config.size)

    @property
    def last(self) -> str:
        """Name of the last layer."""
        return HEADS[self.config.architecture]

    @property
    def network(self) -> str:
        """The architecture."""
        return self.config.architecture

    @property
    def sees(self) -> str:
        """How large its images are."""
        return f"images of `size` {self.config.size} px"

    @property
    def software(self) -> dict[str, str]:
        """None besides torch."""
        return {}

    def finetuning(self, steps: int) -> Recipe:
        """SGD along a cosine."""
        c = self.config
        return Recipe(steps, c.lr, c.batch, c.momentum, c.precision)

    def projnorm(self) -> Recipe:
        """The same, with batch norm as asked for."""
        c = self.config
        return Recipe(
            c.steps,
            c.projnorm_lr,
            c.projnorm_batch,
            c.momentum,
            c.precision,
            batch_norm=c.projnorm_batch_norm,
            layers=c.projnorm_layers,
        )


def load_image_data(config: DeepConfig, *, cache: Path | None = None) -> RunData:
    """As `Images.load_data`."""
    splits = load_splits(config.data)
    rng = np.random.default_rng(config.seed)
    kept, learnt, _ = split_order(len(splits.train), config.n_train, config.n_validation, rng, splits.train.name)
    validation, train = splits.train.take(kept), splits.train.take(learnt)
    indices = draw_indices(splits.test, config.m, rng, "m")
    shifts = Shifts(config.families, config.severities)
    if config.corruptions == GENERATED:
        found = generated_targets(splits.test, indices, shifts, seed=config.seed, cache=cache)
    else:
        found = official_targets(splits.test, indices, shifts, open_cifar_c(config.corruptions))
    classes = 1 + int(max(splits.train.labels.max(), splits.test.labels.max()))
    found += given_targets(config.targets, config.m, rng, classes=classes, names=splits.train.class_names)
    require_distinct(found, taken=(TRAIN,))
    targets = tuple(Target(t.name, t.family, t.severity, t.origin, t.images) for t in found)
    require_trainable(train, targets, config.methods)
    facts: dict[str, object] = {
        "archive_has_published_hash": splits.verified,
        "rotation_images": min(config.rotation_samples, len(train)),
        "corruptions": sorted({target.origin for target in targets}),
    }
    return RunData(train, validation, targets, classes, facts)
