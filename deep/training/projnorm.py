r"""The Projection Norm of a network: Algorithm 1 of the paper, Yu et al. (ICML 2022).

.. math:: \mathrm{ProjNorm} = \|\hat\theta_{\mathrm{ref}} - \tilde\theta\|_2

From the same initial weights, :math:`\tilde\theta` is trained on the target's images with the labels the evaluated
network gives them, and the reference on training images with their own.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deep.training.loop import train
from projnorm.core.errors import InputError
from projnorm.models.preparation import Prepare
from projnorm.models.recipe import Recipe

Parameters = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class ProjNormValue:
    """The Euclidean distance over all parameters, without buffers of batch norm, and where it comes from.

    `layers` has the squared distance of each parameter, which add up to the square of `value`; `trajectory` the
    distance after each of the steps asked for.
    """

    value: float
    layers: dict[str, float]
    trajectory: dict[int, float]
    steps: int


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
