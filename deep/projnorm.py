r"""The Projection Norm of a network: Algorithm 1 of the paper, Yu et al. (ICML 2022).

.. math:: \mathrm{ProjNorm} = \|\hat\theta_{\mathrm{ref}} - \tilde\theta\|_2

From the same initial weights, :math:`\tilde\theta` is trained on the target's images with the labels the evaluated
network gives them, and the reference on training images with their own.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deep.estimators.evidence import Evidence
from deep.samples import few_indices
from deep.training import Hardware, Prepare, Recipe, train

Parameters = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class ProjNormValue:
    """The distance and where it comes from.

    Attributes:
        value: The Euclidean distance over all parameters; buffers of batch norm are none.
        layers: Its square by parameter, which adds up to the square of `value`.
        trajectory: The distance from the reference after so many steps.
        steps: Steps taken.
    """

    value: float
    layers: dict[str, float]
    trajectory: dict[int, float]
    steps: int


@dataclass(frozen=True, slots=True, eq=False)
class ProjNorm:
    """A predictor that trains: larger means more error.

    Attributes:
        initial: The weights every training starts from; they are left as they are.
        reference: Parameters by name, from `train_reference` or of the evaluated network.
        recipe: Of the training on pseudo-labels.
        seed: The batches of every target are drawn with it, as those of the reference.
        prepare: Applied to every batch of images before the network.
        hardware: Where.
        labels: "pseudo", or "true" for the ablation.
        trajectory: Steps after which the distance is kept too.
        samples: Images of a target it trains on, drawn where there are more; 0 for all.
    """

    initial: nn.Module
    reference: Parameters
    recipe: Recipe
    seed: int
    prepare: Prepare | None = None
    hardware: Hardware | None = None
    labels: str = "pseudo"
    trajectory: tuple[int, ...] = ()
    samples: int = 0

    name = "ProjNorm"
    direction = "up"
    is_error = False
    needs = ("outputs", "initial weights", "training")

    def measure(
        self,
        images: NDArray[np.generic],
        labels: NDArray[np.int64],
        *,
        watch: Callable[[int, nn.Module], None] | None = None,
    ) -> ProjNormValue:
        """Train on these images and labels, and compare with the reference; `watch` as in `deep.training.train`."""
        found: dict[int, float] = {}
        wanted = set(self.trajectory)

        def watched(step: int, model: nn.Module) -> None:
            if watch is not None:
                watch(step, model)
            if step in wanted:
                found[step] = _total(squared_distances(model, self.reference))

        model = train(
            copy.deepcopy(self.initial),
            images,
            labels,
            self.recipe,
            seed=self.seed,
            prepare=self.prepare,
            hardware=self.hardware,
            watch=watched,
        )
        layers = squared_distances(model, self.reference)
        return ProjNormValue(_total(layers), layers, found, self.recipe.steps)

    def score(self, evidence: Evidence) -> float:
        """The value on a target."""
        return self.measure_on(evidence).value

    def measure_on(self, evidence: Evidence, *, watch: Callable[[int, nn.Module], None] | None = None) -> ProjNormValue:
        """As `measure`, on so many images of a target as are asked for."""
        labels = self.labels_of(evidence)
        few = few_indices(len(labels), self.samples or len(labels), self.seed)
        return self.measure(evidence.inputs[few], labels[few], watch=watch)

    def labels_of(self, evidence: Evidence) -> NDArray[np.int64]:
        """What is trained on: the evaluated network's own labels, already in its outputs.

        Raises:
            ValueError: If true labels are asked for and there are none.
        """
        if self.labels == "pseudo":
            return evidence.outputs.predicted
        if evidence.labels is None:
            raise ValueError("`labels` true needs the labels of the target.")
        return evidence.labels


def train_reference(
    initial: nn.Module,
    images: NDArray[np.generic],
    labels: NDArray[np.int64],
    recipe: Recipe,
    *,
    seed: int,
    prepare: Prepare | None = None,
    hardware: Hardware | None = None,
    watch: Callable[[int, nn.Module], None] | None = None,
    checkpoint: Path | None = None,
) -> dict[str, Tensor]:
    """Parameters of the reference: the same training on in-distribution images with their true labels.

    `initial` is left as it is; the other arguments are those of `deep.training.train`.
    """
    model = train(
        copy.deepcopy(initial),
        images,
        labels,
        recipe,
        seed=seed,
        prepare=prepare,
        hardware=hardware,
        watch=watch,
        checkpoint=checkpoint,
    )
    return parameters_of(model)


def parameters_of(model: nn.Module) -> dict[str, Tensor]:
    """The parameters by name, without buffers."""
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def squared_distances(model: nn.Module, reference: Parameters) -> dict[str, float]:
    """Squared Euclidean distance of every parameter from the reference's, summed in float64.

    Raises:
        ValueError: If the two do not have the same parameters.
    """
    parameters = dict(model.named_parameters())
    if set(parameters) != set(reference):
        raise ValueError("`reference` must have the parameters of the network, by name.")
    return {
        name: float(torch.sum((parameter.detach().cpu().double() - reference[name].cpu().double()) ** 2))
        for name, parameter in parameters.items()
    }


def _total(layers: Mapping[str, float]) -> float:
    return math.sqrt(math.fsum(layers.values()))
