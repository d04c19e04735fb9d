"""ProjNorm as an estimator: Algorithm 1 of Yu et al. (ICML 2022), and with a reference that has a target's classes."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from projnorm.core.errors import InputError
from projnorm.core.statistics import subsample_indices
from projnorm.estimators.base import LEARNT, Estimator, register
from projnorm.outputs.outputs import Outputs

if TYPE_CHECKING:
    from torch import Tensor, nn

    from deep.training.loop import Watch
    from deep.training.projnorm import Parameters, ProjNormValue
    from projnorm.models.preparation import Prepare
    from projnorm.models.recipe import Recipe

# Training unless a recipe is given: each sample is seen about twice, and there are no fewer than ten steps.
_PASSES, _FEWEST_STEPS, _BATCH, _LR = 2, 10, 100, 1e-3


@dataclass(frozen=True, eq=False)
class WeightDistance(Estimator):
    """A distance of the weights that a target's pseudo-labels teach from those of a reference.

    Attributes:
        initial: Network whose weights every training starts from; they are left as they are.
        recipe: Training on pseudo-labels; chosen after the number of samples by default.
        seed: Seed of the batches of every target, and of those of the reference.
        prepare: Function applied to every batch before the network.
        device: Device that the network runs on.
        labels: Labels to train on: "pseudo", or "true" for the ablation.
        trajectory: Steps after which the distance is recorded too.
        samples: Number of samples of a target that it trains on, drawn where there are more; 0 for all.
    """

    initial: nn.Module
    _: KW_ONLY
    recipe: Recipe | None = None
    seed: int = 0
    prepare: Prepare | None = None
    device: str = "cpu"
    labels: str = "pseudo"
    trajectory: tuple[int, ...] = ()
    samples: int = 0

    costly = True

    def reference_for(self, target: Outputs) -> Parameters:
        """Parameters by name that those trained on a target are compared with."""
        raise NotImplementedError

    def measure(self, target: Outputs, *, watch: Watch | None = None) -> ProjNormValue:
        """The distance after training on a target, with its trajectory.

        Args:
            target: Outputs on the target, with its inputs.
            watch: Called after every step with its number and the network.
        """
        return self.measure_from(target, {self.name: self.reference_for(target)}, watch=watch)[self.name]

    def measure_from(
        self, target: Outputs, references: Mapping[str, Parameters], *, watch: Watch | None = None
    ) -> dict[str, ProjNormValue]:
        """The distances from several references after one training on a target, by the names of the references.

        Args:
            target: Outputs on the target, with its inputs.
            references: Parameters to compare with, by the name of each reference.
            watch: Called after every step with its number and the network.
        """
        from deep.training.projnorm import DistanceRecorder

        recorder, recipe = DistanceRecorder(references, self.trajectory, watch), self._recipe(len(target))
        model = self._trained(target, self.labels_of(target), recipe, recorder.after_step)
        return recorder.values(model, recipe.count_steps(min(self.samples or len(target), len(target))))

    def labels_of(self, target: Outputs) -> NDArray[np.int64]:
        """The labels of a `target` that are trained on: those that the network predicts, or the true ones."""
        if self.labels == "pseudo":
            return target.predicted
        if target.labels is None:
            raise InputError("`labels` true needs the labels of the target.")
        return target.labels

    def _score(self, target: Outputs) -> float:
        return self.measure(target).value

    def _trained(
        self, outputs: Outputs, labels: NDArray[np.int64], recipe: Recipe, watch: Watch | None = None
    ) -> nn.Module:
        """A copy of the initial network, trained on the inputs or on a few of them."""
        from deep.training.loop import train

        assert outputs.inputs is not None
        few = subsample_indices(len(labels), self.samples or len(labels), self.seed)
        options: dict[str, Any] = {"prepare": self.prepare, "device": self.device, "watch": watch}
        return train(copy.deepcopy(self.initial), outputs.inputs[few], labels[few], recipe, seed=self.seed, **options)

    def _recipe(self, count: int) -> Recipe:
        from projnorm.models.recipe import Recipe

        steps = max(_FEWEST_STEPS, _PASSES * math.ceil((self.samples or count) / _BATCH))
        return self.recipe or Recipe(steps, _LR, _BATCH, batch_norm="frozen")


@register
class ProjNorm(WeightDistance):
    """The distance of the weights that a target's pseudo-labels teach from those of a reference.

    Attributes:
        reference: Parameters by name to compare with, from `deep.training.projnorm.train_reference` or of the
            evaluated network; trained on the source where there are none.

    Examples:
        >>> import numpy as np
        >>> import projnorm as pn
        >>> import torch
        >>> inputs = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
        >>> labels = (inputs[:, 0] > 0).astype(np.int64)
        >>> source = pn.Outputs(np.eye(2)[labels], labels=labels, inputs=inputs)
        >>> target = pn.Outputs(np.eye(2)[1 - labels], inputs=inputs)  # predictions of the other class
        >>> projnorm = pn.ProjNorm(initial=torch.nn.Linear(2, 2), recipe=pn.Recipe(steps=2, batch=20)).fit(source)
        >>> bool(projnorm.score(target) > projnorm.score(source.take(range(40))))
        True
    """

    reference: Mapping[str, Tensor] = LEARNT

    name = "ProjNorm"
    needs = frozenset({"torch", "initial", "labels", "inputs"})

    def reference_for(self, target: Outputs) -> Parameters:  # noqa: ARG002 - the same for every target
        """The parameters that any `target` is compared with."""
        return self.reference

    def _fit(self, source: Outputs) -> ProjNorm:
        if self._has_learnt("reference"):
            return self
        from deep.training.projnorm import parameters_of

        recipe = self._recipe(len(source))
        return replace(self, recipe=recipe, reference=parameters_of(self._trained(source, source.known_labels, recipe)))


@register
class ProjNormMatched(WeightDistance):
    """ProjNorm with a reference that has the class shares of the target, for targets with other class shares.

    The reference of a target is trained on as many in-distribution samples, drawn so that the evaluated network's own
    labels have the shares that they have on the target, and with these labels. The samples are in the order of the
    target's labels, so that every step of the two trainings sees the same labels. A class that the network never
    predicts in distribution cannot be matched; samples of the other classes stand in its place.

    Attributes:
        pool: Outputs in distribution, with inputs, that references are drawn from; those of the source by default.
    """

    pool: Outputs = LEARNT

    name = "ProjNorm-matched"
    needs = frozenset({"torch", "initial", "inputs"})

    def reference_for(self, target: Outputs) -> Parameters:
        """The parameters that a `target` is compared with, trained on samples with its class shares."""
        from deep.training.projnorm import parameters_of

        labels = self.labels_of(target)
        few = subsample_indices(len(labels), self.samples or len(labels), self.seed)
        drawn = self.pool.take(self.drawn(labels[few]))
        return parameters_of(self._trained(drawn, drawn.predicted, self._recipe(len(target))))

    def drawn(self, labels: NDArray[np.int64]) -> NDArray[np.intp]:
        """Indices of samples of the pool that the network gives these labels, one for each.

        A class with fewer samples gives them several times, and a label that the pool does not have any sample.
        """
        predicted, rng = self.pool.predicted, np.random.default_rng(self.seed)
        chosen = rng.choice(len(predicted), size=len(labels))
        for label in np.unique(predicted):
            places = np.flatnonzero(labels == label)
            chosen[places] = np.resize(rng.permutation(np.flatnonzero(predicted == label)), len(places))
        return chosen

    def _fit(self, source: Outputs) -> ProjNormMatched:
        return self if self._has_learnt("pool") else replace(self, pool=source)
