"""Runs on images: their data and the networks they start from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deep.config import DeepConfig
from deep.samples import RunData, Target, require_trainable, split_order
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
    """The `deep.domain.Domain` of images."""

    config: DeepConfig

    def initial(self, *, classes: int, seed: int) -> LoadedNetwork:
        """Pretrained weights under a drawn head."""
        network = self.config.network
        return load_network(network.architecture, network.weights, num_outputs=classes, seed=seed, drop_head=True)

    @property
    def prepare(self) -> ImageNetInput:
        """Function from a batch of images to what the networks see."""
        return ImageNetInput(self.config.network.size)

    @property
    def last(self) -> str:
        """Name of the last layer."""
        return HEADS[self.config.network.architecture]

    @property
    def network(self) -> str:
        """Name of the network."""
        return self.config.network.architecture

    @property
    def sees(self) -> str:
        """Description of the inputs that the network takes."""
        return f"images of `size` {self.config.network.size} px"

    @property
    def software(self) -> dict[str, str]:
        """Versions, besides torch's, that the numbers depend on."""
        return {}


def load_image_data(config: DeepConfig, *, cache: Path | None = None) -> RunData:
    """Read, split, draw and corrupt; `cache` is a folder for corrupted images."""
    wanted = config.data
    splits = load_splits(wanted.data)
    rng = np.random.default_rng(config.seed)
    held_out, learnt, _ = split_order(len(splits.train), wanted.n, wanted.n_validation, rng, splits.train.name)
    validation, train = splits.train.take(held_out), splits.train.take(learnt)
    indices = draw_indices(splits.test, wanted.m, rng, "m")
    shifts = Shifts(wanted.families, wanted.severities)
    if wanted.corruptions == GENERATED:
        shifted = generated_targets(splits.test, indices, shifts, seed=config.seed, cache=cache)
    else:
        shifted = official_targets(splits.test, indices, shifts, open_cifar_c(wanted.corruptions))
    classes = 1 + int(max(splits.train.labels.max(), splits.test.labels.max()))
    shifted += given_targets(wanted.targets, wanted.m, rng, classes=classes, names=splits.train.class_names)
    require_distinct(shifted, taken=(TRAIN,))
    targets = tuple(Target(t.name, t.family, t.severity, t.origin, t.images) for t in shifted)
    require_trainable(train, targets, config.methods)
    facts: dict[str, object] = {
        "archive_has_published_hash": splits.verified,
        "rotation_images": min(config.rotation.samples, len(train)),
        "corruptions": sorted({target.origin for target in targets}),
    }
    return RunData(train, validation, targets, classes, facts)
