r"""The Projection Norm of a network: Algorithm 1 of the paper, Yu et al. (ICML 2022).

.. math:: \mathrm{ProjNorm} = \|\hat\theta_{\mathrm{ref}} - \tilde\theta\|_2

From the same initial weights, :math:`\tilde\theta` is trained on the target's images with the labels the evaluated
network gives them, and the reference on training images with their own.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deep.training.loop import Watch, train
from projnorm.core.errors import InputError
from projnorm.models.preparation import Prepare
from projnorm.models.recipe import Recipe

Parameters = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class ProjNormValue:
    """The Euclidean distance over all parameters, without buffers of batch norm, and where it comes from.

    Attributes:
        value: The distance.
        layers: Squared distance of each parameter; they add up to the square of `value`.
        trajectory: Distance after each of the steps that it was recorded for.
        steps: Number of training steps.
    """

    value: float
    layers: dict[str, float]
    trajectory: dict[int, float]
    steps: int


class DistanceRecorder:
    """Records, after some of the steps of a training, how far its weights are from references.

    Attributes:
        references: Parameters by name, for each reference.
        distances: Distance by step, for each reference.
    """

    def __init__(self, references: Mapping[str, Parameters], steps: Sequence[int], watch: Watch | None = None) -> None:
        """Distances are recorded after these `steps`; `watch` is called after every step."""
        self.references, self._steps, self._watch = references, frozenset(steps), watch
        self.distances: dict[str, dict[int, float]] = {name: {} for name in references}

    def after_step(self, step: int, model: nn.Module) -> None:
        """What `deep.training.loop.train` calls."""
        if self._watch is not None:
            self._watch(step, model)
        if step in self._steps:
            for name, reference in self.references.items():
                self.distances[name][step] = total_distance(squared_distances(model, reference))

    def values(self, model: nn.Module, steps: int) -> dict[str, ProjNormValue]:
        """The distances of the network that the training gave after `steps` steps."""
        layers = {name: squared_distances(model, reference) for name, reference in self.references.items()}
        return {
            name: ProjNormValue(total_distance(layers[name]), layers[name], self.distances[name], steps)
            for name in self.references
        }


def train_reference(
    initial: nn.Module,
    inputs: NDArray[np.generic],
    labels: NDArray[np.int64],
    recipe: Recipe,
    *,
    seed: int,
    prepare: Prepare | None = None,
    device: str = "cpu",
) -> dict[str, Tensor]:
    """Parameters of the reference: the same training on in-distribution samples with their true labels.

    `initial` is left as it is; the other arguments are those of `deep.training.loop.train`.

    Examples:
        >>> from projnorm.models.recipe import Recipe
        >>> inputs, labels = np.eye(4, dtype=np.float32), np.array([0, 1, 0, 1])
        >>> recipe = Recipe(steps=5, batch=4)
        >>> reference = train_reference(torch.nn.Linear(4, 2), inputs, labels, recipe, seed=0)
        >>> {name: tuple(tensor.shape) for name, tensor in reference.items()}
        {'weight': (2, 4), 'bias': (2,)}
    """
    model = copy.deepcopy(initial)
    return parameters_of(train(model, inputs, labels, recipe, seed=seed, prepare=prepare, device=device))


def parameters_of(model: nn.Module) -> dict[str, Tensor]:
    """The parameters by name, without buffers."""
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def squared_distances(model: nn.Module, reference: Parameters) -> dict[str, float]:
    """Squared Euclidean distance of every parameter from the reference's, summed in float64."""
    parameters = dict(model.named_parameters())
    if set(parameters) != set(reference):
        raise InputError("`reference` must have the parameters of the network, by name.")
    return {
        name: float(torch.sum((parameter.detach().cpu().double() - reference[name].cpu().double()) ** 2))
        for name, parameter in parameters.items()
    }


def total_distance(layers: Mapping[str, float]) -> float:
    """The distance over all parameters, from the squared distances."""
    return math.sqrt(math.fsum(layers.values()))
