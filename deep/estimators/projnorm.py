"""ProjNorm: Algorithm 1 of the paper, Yu et al. (ICML 2022), as an estimator."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deep.estimators.base import LEARNT, Estimator, register
from deep.outputs import Outputs
from deep.samples import few_indices
from projnorm.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from deep.projnorm import ProjNormValue
    from deep.recipe import Recipe
    from deep.training import Prepare, Watch

# Training unless a recipe is given: each sample is seen about twice, and there are no fewer than ten steps.
_PASSES, _FEWEST_STEPS, _BATCH, _LR = 2, 10, 100, 1e-3


@register
@dataclass(frozen=True, eq=False)
class ProjNorm(Estimator):
    """The distance of the weights that a target's pseudo-labels teach from those of a reference.

    Attributes:
        initial: Network whose weights every training starts from; they are left as they are.
        reference: Parameters by name to compare with, from `deep.projnorm.train_reference` or of the evaluated network;
            trained on the source where there are none.
        recipe: Training on pseudo-labels; chosen after the number of samples by default.
        seed: Seed of the batches of every target, and of those of the reference.
        prepare: Function applied to every batch before the network.
        device: Device that the network runs on.
        labels: Labels to train on: "pseudo", or "true" for the ablation.
        trajectory: Steps after which the distance is recorded too.
        samples: Number of samples of a target that it trains on, drawn where there are more; 0 for all.
    """

    initial: nn.Module
    reference: Mapping[str, Tensor] = LEARNT
    recipe: Recipe | None = None
    seed: int = 0
    prepare: Prepare | None = None
    device: str = "cpu"
    labels: str = "pseudo"
    trajectory: tuple[int, ...] = ()
    samples: int = 0

    name = "ProjNorm"
    needs = frozenset({"torch", "initial", "labels", "inputs"})
    costly = True

    def measure(self, target: Outputs, *, watch: Watch | None = None) -> ProjNormValue:
        """Train on a target and compare with the reference; `watch` is called after every step.

        Raises:
            InputError: If true labels are asked for and there are none.
        """
        from deep.projnorm import ProjNormValue, squared_distances, total_distance
        from deep.training import train

        assert target.inputs is not None
        labels = self.labels_of(target)
        few = self._few(labels)
        recipe = self._recipe(len(few))
        distances: dict[int, float] = {}

        def watched(step: int, model: nn.Module) -> None:
            if watch is not None:
                watch(step, model)
            if step in self.trajectory:
                distances[step] = total_distance(squared_distances(model, self.reference))

        model = train(
            copy.deepcopy(self.initial),
            target.inputs[few],
            labels[few],
            recipe,
            seed=self.seed,
            prepare=self.prepare,
            device=self.device,
            watch=watched,
        )
        layers = squared_distances(model, self.reference)
        return ProjNormValue(total_distance(layers), layers, distances, recipe.count_steps(len(few)))

    def labels_of(self, target: Outputs) -> NDArray[np.int64]:
        """What is trained on: the evaluated network's own labels, already in its outputs, or true ones."""
        if self.labels == "pseudo":
            return target.predicted
        if target.labels is None:
            raise InputError("`labels` true needs the labels of the target.")
        return target.labels

    def _fit(self, source: Outputs) -> ProjNorm:
        if self._has_learnt("reference"):
            return self
        from deep.projnorm import train_reference

        assert source.inputs is not None
        few = self._few(source.known_labels)
        recipe = self._recipe(len(few))
        reference = train_reference(
            self.initial,
            source.inputs[few],
            source.known_labels[few],
            recipe,
            seed=self.seed,
            prepare=self.prepare,
            device=self.device,
        )
        return replace(self, recipe=recipe, reference=reference)

    def _score(self, target: Outputs) -> float:
        """The distance."""
        return self.measure(target).value

    def _few(self, labels: NDArray[np.int64]) -> NDArray[np.intp]:
        return few_indices(len(labels), self.samples or len(labels), self.seed)

    def _recipe(self, count: int) -> Recipe:
        from deep.recipe import Recipe

        steps = max(_FEWEST_STEPS, _PASSES * math.ceil((self.samples or count) / _BATCH))
        return self.recipe or Recipe(steps, _LR, _BATCH, batch_norm="frozen")
