"""Every method on few samples of each target, drawn many times: which method to use, and how many samples it needs.

The truth is the error on the whole target. What turns scores into errors is fitted to the other families, at the same
number of samples and in the same draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from deep.checkpoints import checkpoint_hash
from deep.estimators import ESTIMATORS, Estimator, build
from deep.estimators.projnorm import ProjNorm
from deep.experiments.comparison import finished_run
from deep.forward import forward
from deep.methods import estimator_of, resources_of
from deep.outputs import Outputs
from deep.samples import Samples, few_indices
from deep.stages import (
    NETWORK,
    REFERENCE,
    SECOND,
    Workplace,
    has_stages,
    network_of,
    outputs_of,
    run_stage,
)
from deep.training import one_thread
from projnorm.device import on_device
from projnorm.runs import ONE_PROCESS, Arrays, Backend, Record, recorded, require_shared, stacked

SMALL_SAMPLES_KIND = "deep-small-samples"
_MEANINGS = {
    "targets": "name of each target set",
    "families": "shift that made it",
    "errors": "true error of the evaluated network on the whole of it",
    "sizes": "samples drawn",
    "methods": "name of each method",
    "scores": "score of each method: target, size, draw, method; nan where it was not computed",
}


@dataclass(frozen=True, slots=True)
class SmallSamplesConfig:
    """What is drawn.

    Attributes:
        run: Name of a finished comparison on images.
        sizes: Samples of each target.
        draws: Of each size.
        projnorm_size: The size at which ProjNorm is computed too; 0 for none, as it trains on every draw.
        projnorm_steps: Its steps there.
        seed: Of the draws.
    """

    run: str
    sizes: tuple[int, ...] = (50, 100, 200, 500)
    draws: int = 20
    projnorm_size: int = 0
    projnorm_steps: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn."""
        if not self.sizes or min(self.sizes) < 2 or len(set(self.sizes)) < len(self.sizes):
            raise ValueError(f"`sizes` must be different numbers of samples from 2; got {self.sizes}.")
        if self.draws < 1:
            raise ValueError(f"`draws` must be at least 1; got {self.draws}.")
        if self.projnorm_size and self.projnorm_size not in self.sizes:
            raise ValueError(f"`projnorm_size` must be one of {self.sizes}; got {self.projnorm_size}.")
        if self.projnorm_steps < 1:
            raise ValueError(f"`projnorm_steps` must be at least 1; got {self.projnorm_steps}.")


def run_small_samples(
    config: SmallSamplesConfig, *, root: Path, backend: Backend = ONE_PROCESS, device: str = "auto", fresh: bool = False
) -> Record:
    """Draw from every target and score with every method; a target is a task, kept when it is done.

    Raises:
        ValueError: If there is no such run, it is not finished, or its targets are too small.
        OSError: If something cannot be read or written.
    """
    require_shared(root, backend)
    work, _ = finished_run(root.absolute() / config.run, device)
    smallest = min(len(target.samples) for target in work.data.targets)
    if max(config.sizes) > smallest:
        raise ValueError(f"`sizes` must be at most {smallest:,}, the samples of the smallest target of {config.run}.")
    methods = methods_of(config, work)
    few = _few(work, config) if config.projnorm_size else None
    if few is not None and not has_stages(few):
        with one_thread(few.hardware):
            run_stage(few, REFERENCE)
    targets = work.data.targets
    errors = [target.error(outputs_of(work, target.samples).predicted) for target in targets]
    facts = {
        "targets": np.array([target.name for target in targets]),
        "families": np.array([target.family for target in targets]),
        "errors": np.array(errors),
        "sizes": np.array(config.sizes),
        "methods": np.array(methods),
    }
    asked: dict[str, Any] = {
        "small_samples": asdict(config),
        "methods": methods,
        "network_sha256": checkpoint_hash(work.stage(NETWORK)),
        "run_config": asdict(work.config),
    }
    return recorded(
        SMALL_SAMPLES_KIND,
        asked,
        root=root,
        items=range(len(targets)),
        work=partial(_task, config, work, few, methods),
        assemble=partial(_assembled, facts),
        meanings=_MEANINGS,
        backend=on_device(backend, work.hardware.device),
        fresh=fresh,
        facts={"run": work.folder.name, "targets": len(targets)},
    )


def methods_of(config: SmallSamplesConfig, work: Workplace) -> tuple[str, ...]:
    """Those that need outputs only, GDE if there is a second network, and ProjNorm if it is asked for."""
    left_out = {"others"} if _has_second(work) else {"second", "others"}
    cheap = tuple(name for name, one in ESTIMATORS.items() if not one.costly and not one.needs & left_out)
    return (*cheap, ProjNorm.name) if config.projnorm_size else cheap


def _has_second(work: Workplace) -> bool:
    return "AgreeScore" in work.config.methods


def _few(work: Workplace, config: SmallSamplesConfig) -> Workplace:
    """Where ProjNorm on few samples works: its reference sees as few."""
    changed = replace(
        work.config,
        methods=(ProjNorm.name,),
        projnorm_samples=config.projnorm_size,
        steps=config.projnorm_steps,
        trajectory=(),
    )
    return replace(work, config=changed)


def _task(
    config: SmallSamplesConfig, work: Workplace, few: Workplace | None, methods: tuple[str, ...], index: int
) -> Arrays:
    with one_thread(work.hardware):
        samples = work.data.targets[index].samples
        outputs, estimators = _with_second(work, samples), _estimators(work, methods)
        trained = None if few is None else estimator_of(few, ProjNorm.name)
        scores = np.full((len(config.sizes), config.draws, len(methods)), np.nan)
        for row, size in enumerate(config.sizes):
            for draw in range(config.draws):
                if draw and size == len(samples):  # there is only one way to draw all
                    scores[row, draw] = scores[row, 0]
                    continue
                chosen = few_indices(len(samples), size, _seed(config.seed, index, draw))
                drawn = outputs.take(chosen)
                for column, method in enumerate(methods):
                    if method in estimators:
                        scores[row, draw, column] = estimators[method].score(drawn)
                    elif trained is not None and size == config.projnorm_size:
                        scores[row, draw, column] = trained.score(drawn)
    return {"scores": scores}


@lru_cache(maxsize=1)
def _estimators(work: Workplace, methods: tuple[str, ...]) -> dict[str, Estimator]:
    """Those that need outputs only, learnt once in every process."""
    source, resources = _with_second(work, work.data.validation), resources_of(work)
    return {method: build(method, resources, source) for method in methods if method != ProjNorm.name}


def _seed(seed: int, target: int, draw: int) -> int:
    """Of a draw; the smaller sizes are parts of the larger."""
    return int(np.random.SeedSequence((seed, target, draw)).generate_state(1)[0])


def _with_second(work: Workplace, samples: Samples) -> Outputs:
    """Outputs of the evaluated network, and of the second beside it."""
    own = outputs_of(work, samples)
    if not _has_second(work):
        return own
    second = forward(network_of(work, SECOND), work.last, samples.inputs, prepare=work.prepare, hardware=work.hardware)
    return replace(own, others=(second.logits,))


def _assembled(facts: Arrays, results: Sequence[Arrays]) -> Arrays:
    return {**facts, **stacked(results)}
