"""The plan of an experiment from the number and the shape of its images, without the images and the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ntk.engine import Engine
from ntk.experiment import NtkConfig
from ntk.gram import as_sets, plan_kernels
from ntk.plan import TRAIN, Plan
from ntk.spread import Parcel, Spread, spread
from projnorm.vision import ImageNetInput, load_network, load_splits
from projnorm.vision.targets import Shifts, generated_targets, given_targets, require_distinct
from projnorm.vision.weights import RANDOM


@dataclass(frozen=True, slots=True)
class Planned:
    """An experiment on paper.

    Attributes:
        plan: That of the run, were there so many images.
        parcel: What workers are sent.
    """

    plan: Plan
    parcel: Parcel

    def on(self, workers: int) -> Spread:
        """The plan on so many workers."""
        return spread(self.plan, self.parcel, workers)


def plan_experiment(config: NtkConfig, **limits: Any) -> Planned:
    """The plan that `ntk.experiment.run_kernels` would follow, with one image of each set in memory.

    Args:
        config: The experiment; `n` and `m` may be more than there are images.
        limits: Fields of `KernelConfig` that do not change the numbers.

    Raises:
        ValueError: If something asked for does not fit.
        OSError: If a file cannot be read.
    """
    kernel = config.kernel(**limits)
    splits = load_splits(config.data)
    shifts = Shifts(config.families, config.severities)
    generated = generated_targets(splits.test, np.arange(1), shifts, seed=config.seed)
    given = given_targets(config.targets, config.m, np.random.default_rng(config.seed))
    require_distinct([*generated, *given], taken=(TRAIN,))
    targets = {t.name: _repeated(t.images.images, config.m) for t in generated}
    targets |= {t.name: _repeated(t.images.images, len(t.images)) for t in given}
    sets = as_sets(_repeated(splits.train.images, config.n), targets)
    models = [
        load_network(config.architecture, RANDOM, num_outputs=1, seed=config.seed + head).model
        for head in range(config.heads)
    ]
    engine = Engine(models, sets[TRAIN], kernel, prepare=ImageNetInput(config.size))
    return Planned(plan_kernels(engine, sets), Parcel(engine.network_bytes, sets[TRAIN][:1].nbytes))


def _repeated(images: np.ndarray, count: int) -> torch.Tensor:
    """So many images that are all the first, which is in memory once."""
    return torch.from_numpy(images[:1].copy()).expand(count, *images.shape[1:])
