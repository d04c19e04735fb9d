"""CIFAR-10 with a ResNet18: fine-tuned once, and stored."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.shifts.fitted_model import FittedModel
from benchmarks.shifts.image_suites import made_shifts
from benchmarks.shifts.problems import LabelledSet, Places, Problem
from projnorm.core.store import Store, digest
from projnorm.models.recipe import Recipe

_SIZE = 32
_RECIPE = Recipe(epochs=4, lr=1e-2)
_LAST = "fc"


def cifar(places: Places, _setting: str, rng: np.random.Generator) -> Problem:
    """Images of ten classes with other class shares, corruptions, and both."""
    from projnorm.data.datasets import load_splits

    splits = load_splits(places.images)
    train, test = (LabelledSet(part.images, part.labels) for part in (splits.train, splits.test))
    return made_shifts(train, test, rng)


def finetuned(samples: LabelledSet, weights: str, cache: Path, *, classes: int, seed: int) -> FittedModel:
    """The ResNet18, fine-tuned from these weights; an unfinished training resumes, a finished one is found again."""
    from deep.training.loop import Checkpoint, to_arrays, to_tensors, train
    from projnorm.data.images import ImageNetInput, ImageSet
    from projnorm.models.weights import load_network

    loaded = load_network("resnet18", weights, num_outputs=classes, seed=seed, drop_head=True)
    images = ImageSet("training images", samples.inputs, samples.labels)
    key = f"resnet18-{digest([_RECIPE.identity, seed, _SIZE, loaded.sha256, images.sha256])}"
    store, prepare = Store(cache / "networks"), ImageNetInput(_SIZE)
    with store.lock(key):
        if (entry := store.get(key)) is not None:
            loaded.model.load_state_dict(to_tensors(entry.arrays))
        else:
            checkpoint = Checkpoint(store, f"{key}-unfinished")
            train(
                loaded.model, images.images, images.labels, _RECIPE, seed=seed, prepare=prepare, checkpoint=checkpoint
            )
            store.put(key, to_arrays(loaded.model.state_dict()), compress=False)
            store.remove(checkpoint.key)
    return FittedModel(loaded.model.eval(), classes, prepare, _LAST)
