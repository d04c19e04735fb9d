"""Every method on few samples of each target, drawn many times: which method to use, and how many samples it needs.

The truth is the error on the whole target. What turns scores into errors is fitted to the other families, at the same
number of samples and in the same draw.

    python -m benchmarks.studies.small_samples [RUN] [OPTIONS]

on a finished run of `projnorm deep run`; its options are those of `projnorm` commands that are experiments.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from deep.comparison.comparison import finished_run
from deep.comparison.config import TRAINED, OnRunConfig
from deep.comparison.methods import methods_of
from deep.comparison.run_data import Samples
from deep.comparison.runs import Run
from deep.comparison.stages import REFERENCE, SECOND
from deep.comparison.trained_networks import networks_of
from deep.estimators.projnorm import ProjNorm
from projnorm.cli.app import run_alone
from projnorm.core.arrays import Arrays
from projnorm.core.backends import require_shared
from projnorm.core.config import seed_setting, setting
from projnorm.core.errors import InputError
from projnorm.core.experiments import Experiment
from projnorm.core.records import Record, RunContext, recorded
from projnorm.core.statistics import subsample_indices
from projnorm.core.tasks import stacked
from projnorm.estimators.base import Estimator
from projnorm.estimators.registry import ESTIMATORS
from projnorm.models.preparation import one_thread
from projnorm.outputs.outputs import Outputs

EXPERIMENT = Experiment(
    "deep-small-samples",
    "",
    "How many samples each estimator needs.",
    "benchmarks.studies.small_samples:SmallSamplesConfig",
    "benchmarks.studies.small_samples:run_small_samples",
    "benchmarks.studies.small_samples_figure:show",
    device=True,
    module="benchmarks.studies.small_samples",
)
_MEANINGS = {
    "targets": "name of each target set",
    "families": "shift that made it",
    "errors": "true error of the evaluated network on the whole of it",
    "sizes": "number of samples drawn",
    "methods": "name of each method",
    "scores": "score of each method: target, size, draw, method; nan where it was not computed",
}


@dataclass(frozen=True)
class SmallSamplesConfig(OnRunConfig):
    """Draws of few samples from the targets of a run."""

    sizes: tuple[int, ...] = setting(
        (50, 100, 200, 500), "Numbers of samples drawn from each target.", least=2, nonempty=True, distinct=True
    )
    draws: int = setting(20, "Number of draws of each size.", least=1)
    projnorm_size: int = setting(
        0, "Size at which ProjNorm is computed too; 0 for none, as it trains on every draw.", least=0
    )
    projnorm_steps: int = setting(10, "Number of steps of ProjNorm there.", least=1)
    seed: int = seed_setting()

    def check(self) -> None:
        """ProjNorm is computed at one of the sizes."""
        if self.projnorm_size and self.projnorm_size not in self.sizes:
            raise InputError(f"`projnorm_size` must be one of {self.sizes}; got {self.projnorm_size}.")


def main(argv: Sequence[str]) -> int:
    """Run the study with the options of a command line; returns the exit code."""
    return run_alone(EXPERIMENT, argv)


def run_small_samples(config: SmallSamplesConfig, context: RunContext) -> Record:
    """Draw from every target and score with every method; a target is a task, stored when it is done.

    Raises:
        InputError: If there is no such run, it is not finished, or its targets are too small.
        OSError: If something cannot be read or written.
    """
    run, config = finished_run(config, context)
    require_shared(context.root, context.backend)
    networks = networks_of(run)
    targets = networks.data.targets
    smallest = min(len(target.samples) for target in targets)
    if max(config.sizes) > smallest:
        raise InputError(f"`sizes` must be at most {smallest:,}, the samples of the smallest target of {run.name}.")
    methods = study_methods(config, run)
    few = _run_on_few(run, config) if config.projnorm_size else None
    if few is not None and few.config.projnorm.reference == TRAINED:
        with one_thread(few.context.device):
            networks_of(few).train_stage(REFERENCE)
    known = {
        "targets": np.array([target.name for target in targets]),
        "families": np.array([target.family for target in targets]),
        "errors": np.array([target.error(networks.outputs(target.samples).predicted) for target in targets]),
        "sizes": np.array(config.sizes),
        "methods": np.array(methods),
    }
    return recorded(
        EXPERIMENT.kind,
        config,
        run.context,
        items=range(len(targets)),
        work=partial(_task, config, run, few, methods),
        assemble=lambda results: {**known, **stacked(results)},
        meanings=_MEANINGS,
        facts={"made_by": EXPERIMENT.program, "run_config": run.config.to_json(), "targets": len(targets)},
        inputs={"network_sha256": networks.network_hash()},
    )


def study_methods(config: SmallSamplesConfig, run: Run) -> tuple[str, ...]:
    """Methods that need outputs only, GDE if there is a second network, and ProjNorm if it is asked for."""
    lacking = {"others", "second network", *(() if _has_second(run) else ("second",))}
    names = tuple(name for name, method in ESTIMATORS.items() if not method.costly and not method.needs & lacking)
    return (*names, ProjNorm.name) if config.projnorm_size else names


def _has_second(run: Run) -> bool:
    return "AgreeScore" in run.config.methods


def _run_on_few(run: Run, config: SmallSamplesConfig) -> Run:
    """The run with ProjNorm on few samples: its reference sees as few."""
    projnorm = {"samples": config.projnorm_size, "steps": config.projnorm_steps, "epochs": 0, "trajectory": ()}
    return replace(run, config=run.config.updated({"methods": (ProjNorm.name,), "projnorm": projnorm}))


def _task(config: SmallSamplesConfig, run: Run, few: Run | None, methods: tuple[str, ...], index: int) -> Arrays:
    with one_thread(run.context.device):
        outputs, estimators = (
            _with_second(run, networks_of(run).data.targets[index].samples),
            _estimators(run, few, methods),
        )
        scores = np.full((len(config.sizes), config.draws, len(methods)), np.nan)
        for row, size in enumerate(config.sizes):
            for draw in range(config.draws):
                if draw and size == len(outputs):  # there is only one way to draw all
                    scores[row, draw] = scores[row, 0]
                    continue
                drawn = outputs.take(subsample_indices(len(outputs), size, _seed(config.seed, index, draw)))
                for column, method in enumerate(methods):
                    if method != ProjNorm.name or size == config.projnorm_size:
                        scores[row, draw, column] = estimators[method].score(drawn)
    return {"scores": scores}


@lru_cache(maxsize=1)
def _estimators(run: Run, few: Run | None, methods: tuple[str, ...]) -> dict[str, Estimator]:
    """Every method, learnt once in every process."""
    known = _with_second(run, networks_of(run).data.validation)
    return {
        method: methods_of(few if few and method == ProjNorm.name else run).fitted(method, known) for method in methods
    }


def _seed(seed: int, target: int, draw: int) -> int:
    """Seed of a draw; the smaller sizes are parts of the larger."""
    return int(np.random.SeedSequence((seed, target, draw)).generate_state(1)[0])


def _with_second(run: Run, samples: Samples) -> Outputs:
    """Outputs of the evaluated network, and of the second beside it."""
    networks = networks_of(run)
    outputs = networks.outputs(samples)
    if not _has_second(run):
        return outputs
    return replace(outputs, others=(networks.forward(networks.network(SECOND), samples.inputs).logits,))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
