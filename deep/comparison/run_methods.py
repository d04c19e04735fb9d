"""The methods of a run, built from what it trained; and ProjNorm of a target, computed once for all references."""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np

from deep.comparison import trained_networks
from deep.comparison.config import FINE_TUNED, MATCHED, PROJNORM, PROJNORM_MATCHED, references_of
from deep.comparison.modality import domain_of
from deep.comparison.run_data import Samples
from deep.comparison.runs import Run
from deep.estimators.projnorm import WeightDistance
from deep.training.loop import Watch
from deep.training.projnorm import Parameters, ProjNormValue
from projnorm.core.arrays import Arrays
from projnorm.data.targets import Target
from projnorm.estimators.base import Estimator, Resources
from projnorm.estimators.registry import ESTIMATORS, build
from projnorm.outputs.outputs import Outputs


@lru_cache(maxsize=len(ESTIMATORS))
def estimator_of(run: Run, method: str) -> Estimator:
    """A method, built once in every process."""
    return built(run, method, trained_networks.outputs_of(run, trained_networks.data_of(run).validation))


def built(run: Run, method: str, source: Outputs) -> Estimator:
    """A method of a run, fitted to this source; ProjNorm with the reference that the run asks for."""
    is_matched = method == PROJNORM and run.config.projnorm.reference == MATCHED
    return build(PROJNORM_MATCHED if is_matched else method, resources_of(run), source)


@lru_cache(maxsize=2)
def resources_of(run: Run) -> Resources:
    """What the trained_networks of a run give to an estimator; each is loaded when the estimator asks for it."""
    config, domain = run.config, domain_of(run.config)
    return Resources(
        seed=config.seed,
        samples=trained_networks.projnorm_samples(config),
        network=trained_networks.network_of(run),
        last=domain.last,
        initial=trained_networks.initial_of(run).model,
        prepare=domain.prepare,
        device=run.context.device,
        recipe=config.projnorm,
        labels=config.projnorm.labels,
        trajectory=config.projnorm.trajectory,
        trained={
            "second": partial(trained_networks.network_of, run, trained_networks.SECOND),
            "head": partial(trained_networks.rotation_head_of, run),
            "reference": partial(trained_networks.reference_of, run, config.projnorm.reference),
            # There are more training samples than held-out ones, and the network's own labels need no held-out ones.
            "pool": lambda: trained_networks.outputs_of(run, trained_networks.data_of(run).train),
        },
    )


def scores_of(run: Run, target: Outputs) -> list[float]:
    """The score of a target with every method of the run."""
    references = references_of(run.config)
    measured = _measured(run, target, set(references.values())) if references else {}
    return [
        measured[references[method]].value if method in references else estimator_of(run, method).score(target)
        for method in run.config.methods
    ]


def projnorm_parts(run: Run, target: Target[Samples]) -> dict[str, Arrays]:
    """The distance of each method of the run that trains on a target, and what it is made of.

    One training serves every reference. What another run has computed is read; the distance from the fine-tuned
    network, which costs nothing more, is stored too.
    """
    store, references = run.context.store("projnorm"), references_of(run.config)
    with store.lock(f"training/{_key(run, target, '')}"):
        if not has_projnorm_parts(run, target):
            meter, batch = trained_networks.meter_of(run, target.name), run.config.projnorm.batch
            outputs = trained_networks.outputs_of(run, target.samples)
            wanted = {*references.values(), FINE_TUNED}
            for kind, value in _measured(run, outputs, wanted, lambda step, _: meter.at(step * batch)).items():
                store.put(_key(run, target, kind), _arrays(value, run.config.projnorm.trajectory))
            meter.close()
    stored = {method: store.get(_key(run, target, kind)) for method, kind in references.items()}
    return {method: entry.arrays for method, entry in stored.items() if entry is not None}


def has_projnorm_parts(run: Run, target: Target[Samples]) -> bool:
    """Whether the distances of a target are there and whole."""
    store = run.context.store("projnorm")
    return all(store.get(_key(run, target, kind)) is not None for kind in references_of(run.config).values())


def _measured(run: Run, target: Outputs, kinds: set[str], watch: Watch | None = None) -> dict[str, ProjNormValue]:
    """Distances of one training on a target from the references of these kinds."""
    method = PROJNORM_MATCHED if MATCHED in kinds else PROJNORM
    estimator = estimator_of(run, method)
    assert isinstance(estimator, WeightDistance)
    references: dict[str, Parameters] = {
        kind: estimator.reference_for(target) if kind == MATCHED else trained_networks.reference_of(run, kind)
        for kind in kinds
    }
    return estimator.measure_from(target, references, watch=watch)


def _key(run: Run, target: Target[Samples], kind: str) -> str:
    return f"{trained_networks.projnorm_identity(run, kind)}/{target.samples.sha256[:24]}"


def _arrays(value: ProjNormValue, trajectory: tuple[int, ...]) -> Arrays:
    return {
        "value": np.array(value.value),
        "layers": np.array(list(value.layers)),
        "contributions": np.array(list(value.layers.values())),
        "trajectory": np.array([value.trajectory[step] for step in trajectory]),
    }
