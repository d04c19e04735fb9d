"""Which methods can be run on what is there, and how each is built."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import numpy as np
from torch import nn

from deep.estimators.catalogue import FROM_OUTPUTS, NEEDS_FEATURES, NEEDS_SECOND, NEEDS_THREE
from deep.estimators.evidence import Estimator
from deep.estimators.rotation import Rotation, train_rotation_head
from deep.predict.models import TorchClassifier
from deep.predict.sets import OutputSet
from deep.predict.shifts import is_images
from deep.projnorm import ProjNorm, train_reference
from deep.samples import few_indices
from deep.training import Recipe

ALL_METHODS = (*FROM_OUTPUTS, Rotation.name, ProjNorm.name)
# Those that train on every set they see, or pass it through the network again; run when they are asked for.
COSTLY = ("Dis2", Rotation.name, ProjNorm.name)
# Those that look at inputs, not at outputs only.
NEED_INPUTS = (Rotation.name, ProjNorm.name)
# The default, with labelled shifted sets and without; both were chosen by held-out error, see docs/which-method.md.
CALIBRATED = ("COT", "COTT", "MI", "FeatureShift")
UNCALIBRATED = ("COTT", "DoC")
# Steps of ProjNorm, unless a recipe is given: each sample is seen about twice, and no fewer steps than ten.
_PASSES, _FEWEST_STEPS, _BATCH, _LR = 2, 10, 100, 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """What a network gives besides its outputs.

    Attributes:
        classifier: The network.
        initial: The same network with the weights that fine-tuning began with; None where they are not known.
        recipe: Of ProjNorm; chosen after the number of samples by default.
    """

    classifier: TorchClassifier
    initial: nn.Module | None = None
    recipe: Recipe | None = None


def lacking(method: str, source: OutputSet, network: Network | None) -> str:
    """What a method needs that is not there; empty if it can be run."""
    if method in NEEDS_FEATURES and not source.outputs.features.shape[1]:
        return "features, the inputs of the last layer"
    if method in NEEDS_SECOND and not source.outputs.others:
        return "outputs of a second model"
    if method in NEEDS_THREE and len(source.outputs.others) < 2:
        return "outputs of two more models"
    if method == Rotation.name and (network is None or network.classifier.last is None or not _turnable(source)):
        return "the network, with a linear last layer, and square images"
    if method == ProjNorm.name:
        if network is None or network.initial is None:
            return "the network and its initial weights"
        if source.inputs is None:
            return "inputs of one shape"
    return ""


def build(method: str, source: OutputSet, network: Network | None, *, m: int, seed: int) -> Estimator:
    """A method that lacks nothing, learnt from labelled samples; `m` is the size of the sets it will see."""
    if method in FROM_OUTPUTS:
        return FROM_OUTPUTS[method](source.outputs, source.known_labels, seed)
    assert network is not None
    assert source.inputs is not None
    own = network.classifier
    if method == Rotation.name:
        assert own.last is not None
        head = train_rotation_head(
            own.model, own.last, source.inputs, seed=seed, prepare=own.prepare, hardware=own.hardware
        )
        return Rotation(own.model, own.last, head, own.prepare, own.hardware)
    assert network.initial is not None
    recipe = network.recipe or Recipe(
        max(_FEWEST_STEPS, _PASSES * math.ceil(m / _BATCH)), _LR, _BATCH, batch_norm="frozen"
    )
    few = few_indices(len(source), m, seed)
    reference = train_reference(
        copy.deepcopy(network.initial),
        source.inputs[few],
        source.known_labels[few],
        recipe,
        seed=seed,
        prepare=own.prepare,
        hardware=own.hardware,
    )
    return ProjNorm(network.initial, reference, recipe, seed, own.prepare, own.hardware, samples=m)


def _turnable(source: OutputSet) -> bool:
    x = source.inputs
    return x is not None and is_images(x) and x.dtype == np.uint8 and x.shape[1] == x.shape[2]
