"""The methods of a run, built from what it trained; and ProjNorm of a target, computed once for all references."""

from __future__ import annotations

from functools import cached_property, lru_cache, partial

import numpy as np

from deep.comparison.config import FINE_TUNED, MATCHED, PROJNORM, PROJNORM_MATCHED, references_of
from deep.comparison.run_data import Samples
from deep.comparison.runs import Run
from deep.comparison.stages import SECOND, projnorm_samples
from deep.comparison.trained_networks import TrainedNetworks, networks_of
from deep.estimators.projnorm import WeightDistance
from deep.training.loop import Watch
from deep.training.projnorm import Parameters, ProjNormValue
from projnorm.core.arrays import Arrays
from projnorm.data.targets import Target
from projnorm.estimators.base import Estimator, Resources
from projnorm.estimators.registry import build
from projnorm.outputs.outputs import Outputs


class RunMethods:
    """The methods of a run, each built once.

    Attributes:
        networks: What the run trained.
    """

    def __init__(self, networks: TrainedNetworks) -> None:
        """Keep the run; methods are built at their first use."""
        self.networks, self._config = networks, networks.config
        self._store = networks.run.context.store("projnorm")
        self._built: dict[str, Estimator] = {}

    def estimator(self, method: str) -> Estimator:
        """A method, fitted to the held-out samples of the run."""
        if method not in self._built:
            self._built[method] = self.fitted(method, self.networks.outputs(self.networks.data.validation))
        return self._built[method]

    def fitted(self, method: str, source: Outputs) -> Estimator:
        """A method fitted to this source; ProjNorm with the reference that the run asks for."""
        is_matched = method == PROJNORM and self._config.projnorm.reference == MATCHED
        return build(PROJNORM_MATCHED if is_matched else method, self._resources, source)

    def scores(self, target: Outputs) -> list[float]:
        """The score of a target with every method of the run."""
        references = references_of(self._config)
        measured = self._measured(target, set(references.values())) if references else {}
        return [
            measured[references[method]].value if method in references else self.estimator(method).score(target)
            for method in self._config.methods
        ]

    def distances(self, target: Target[Samples]) -> dict[str, Arrays]:
        """The distance of each method of the run that trains on a target, with its layers and trajectory.

        One training serves every reference. What another run has computed is read; the distance from the fine-tuned
        network, which costs nothing more, is stored too.
        """
        kinds = references_of(self._config)
        with self._store.lock(f"training/{self._key(target, '')}"):
            distances = self._stored(target)
            if distances is None:
                distances = self._computed(target, {*kinds.values(), FINE_TUNED})
        return {method: distances[kind] for method, kind in kinds.items()}

    def has_distances(self, target: Target[Samples]) -> bool:
        """Whether the distances of a target are stored and undamaged."""
        return self._stored(target) is not None

    def _stored(self, target: Target[Samples]) -> dict[str, Arrays] | None:
        """The distances of a target by kind of reference; None if one that the run needs is missing or damaged."""
        distances = {}
        for kind in dict.fromkeys(references_of(self._config).values()):
            if (entry := self._store.get(self._key(target, kind))) is None:
                return None
            distances[kind] = entry.arrays
        return distances

    def _computed(self, target: Target[Samples], kinds: set[str]) -> dict[str, Arrays]:
        projnorm = self._config.projnorm
        meter = self.networks.meter(target.name, samples=projnorm.batch)
        measured = self._measured(self.networks.outputs(target.samples), kinds, meter.at_step)
        distances = {kind: _arrays(value, projnorm.trajectory) for kind, value in measured.items()}
        for kind, arrays in distances.items():
            self._store.put(self._key(target, kind), arrays)
        meter.close()
        return distances

    def _measured(self, target: Outputs, kinds: set[str], watch: Watch | None = None) -> dict[str, ProjNormValue]:
        """Distances of one training on a target from the references of these kinds."""
        estimator = self.estimator(PROJNORM_MATCHED if MATCHED in kinds else PROJNORM)
        assert isinstance(estimator, WeightDistance)
        references: dict[str, Parameters] = {
            kind: estimator.reference_for(target) if kind == MATCHED else self.networks.reference(kind)
            for kind in kinds
        }
        return estimator.measure_from(target, references, watch=watch)

    @cached_property
    def _resources(self) -> Resources:
        """The trained networks for an estimator; each is loaded at its first use."""
        config, networks = self._config, self.networks
        return Resources(
            seed=config.seed,
            samples=projnorm_samples(config),
            network=networks.network(),
            last=networks.modality.last,
            initial=networks.initial().model,
            prepare=networks.modality.prepare,
            device=networks.device,
            recipe=config.projnorm,
            labels=config.projnorm.labels,
            trajectory=config.projnorm.trajectory,
            trained={
                "second": partial(networks.network, SECOND),
                "head": networks.rotation_head,
                "reference": partial(networks.reference, config.projnorm.reference),
                # There are more training samples than held-out ones, and the network's own labels need none held out.
                "pool": self._training_outputs,
            },
        )

    def _training_outputs(self) -> Outputs:
        return self.networks.outputs(self.networks.data.train)

    def _key(self, target: Target[Samples], kind: str) -> str:
        return f"{self.networks.projnorm_identity(kind)}/{target.samples.sha256[:24]}"


@lru_cache(maxsize=16)
def methods_of(run: Run) -> RunMethods:
    """The methods of a run, the same object for every task of a process."""
    return RunMethods(networks_of(run))


def _arrays(value: ProjNormValue, trajectory: tuple[int, ...]) -> Arrays:
    return {
        "value": np.array(value.value),
        "layers": np.array(list(value.layers)),
        "contributions": np.array(list(value.layers.values())),
        "trajectory": np.array([value.trajectory[step] for step in trajectory]),
    }
