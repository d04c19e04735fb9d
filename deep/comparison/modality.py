"""What runs on images and runs on text differ in; everything above it is the same for both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import numpy as np

from deep.comparison.config import DeepConfig, RunConfig, TextConfig
from deep.comparison.run_data import RunData, require_trainable, split_order
from deep.comparison.text_targets import load_text_data
from projnorm.core.errors import InputError
from projnorm.data.cifar import DOWNLOADS, download_cifar
from projnorm.data.cifar_c import open_cifar_c
from projnorm.data.datasets import load_splits
from projnorm.data.images import ImageNetInput
from projnorm.data.nli import LABELS
from projnorm.data.targets import (
    GENERATED,
    Shifts,
    draw_indices,
    generated_targets,
    given_targets,
    official_targets,
    require_distinct,
)
from projnorm.models.networks import HEADS
from projnorm.models.preparation import Prepare
from projnorm.models.text_networks import LoadedPairClassifier, download_checkpoint, load_pair_classifier
from projnorm.models.weights import LoadedNetwork, load_network

# Name of the training samples in kernels of a run, `ntk.tiles.plan.TRAIN`, which no target may have.
_TRAIN = "train"
# A network and where its weights come from.
Loaded = LoadedNetwork | LoadedPairClassifier


@dataclass(frozen=True, slots=True, eq=False)
class ImageOrText:
    """The networks of a configuration, on images or on text.

    `last` is the name of the last layer, `sees` describes the inputs, and `prepare` turns a batch into them; it is None
    for pairs, which are encoded when they are read. `software` has the versions, besides torch's, that numbers depend
    on. `initial` makes pretrained weights under a drawn head from a number of classes and a seed.
    """

    network: str
    last: str
    sees: str
    prepare: Prepare | None
    software: dict[str, str]
    initial: Callable[[int, int], Loaded]


@lru_cache(maxsize=8)
def modality_of(config: RunConfig) -> ImageOrText:
    """The networks and inputs of a configuration."""
    if isinstance(config, TextConfig):
        model, length = config.network.model, config.network.length
        return ImageOrText(
            model,
            load_pair_classifier(model, num_outputs=len(LABELS), seed=0).last,
            f"pairs of `length` {length} tokens",
            None,
            {"transformers": version("transformers")},
            lambda classes, seed: load_pair_classifier(model, num_outputs=classes, seed=seed),
        )
    network = config.network
    return ImageOrText(
        network.architecture,
        HEADS[network.architecture],
        f"images of `size` {network.size} px",
        ImageNetInput(network.size),
        {},
        lambda classes, seed: load_network(
            network.architecture, network.weights, num_outputs=classes, seed=seed, drop_head=True
        ),
    )


def load_data(config: RunConfig, cache: Path) -> RunData:
    """All samples of a run; `cache` is a folder for corrupted images."""
    return load_text_data(config) if isinstance(config, TextConfig) else load_image_data(config, cache=cache)


def load_image_data(config: DeepConfig, *, cache: Path | None = None) -> RunData:
    """Read, split, draw and corrupt; `cache` is a folder for corrupted images."""
    data = config.data
    splits = load_splits(data.data)
    rng = np.random.default_rng(config.seed)
    held_out, learnt, _ = split_order(len(splits.train), data.n, data.n_validation, rng, splits.train.name)
    validation, train = splits.train.take(held_out), splits.train.take(learnt)
    indices = draw_indices(splits.test, data.m, rng, "m")
    shifts = Shifts(data.families, data.severities)
    if data.corruptions == GENERATED:
        shifted = generated_targets(splits.test, indices, shifts, seed=config.seed, cache=cache)
    else:
        shifted = official_targets(splits.test, indices, shifts, open_cifar_c(data.corruptions))
    classes = 1 + int(max(splits.train.labels.max(), splits.test.labels.max()))
    shifted += given_targets(data.targets, data.m, rng, classes=classes, names=splits.train.class_names)
    require_distinct([target.name for target in shifted], taken=(_TRAIN,))
    targets = tuple(shifted)
    require_trainable(train, targets, config.methods)
    facts: dict[str, object] = {
        "archive_has_published_hash": splits.verified,
        "rotation_images": min(config.rotation.samples, len(train)),
        "corruptions": sorted({target.origin for target in targets}),
    }
    return RunData(train, validation, targets, classes, facts)


def download(config: RunConfig) -> None:
    """Fetch the data set or the checkpoint that a configuration names, unless it is there."""
    if isinstance(config, TextConfig):
        download_checkpoint(config.network.model)
    elif config.data.data in DOWNLOADS:
        download_cifar(config.data.data)
    else:
        raise InputError(f"`data` must be one of {', '.join(DOWNLOADS)} to be fetched; got {config.data.data!r}.")
