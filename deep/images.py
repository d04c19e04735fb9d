"""The data of runs on images."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from deep.config import DeepConfig
from deep.samples import RunData, Target, require_trainable, split_order
from ntk.plan import TRAIN
from projnorm.vision import load_splits, open_cifar_c
from projnorm.vision.targets import (
    GENERATED,
    Shifts,
    draw_indices,
    generated_targets,
    given_targets,
    official_targets,
    require_distinct,
)


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
