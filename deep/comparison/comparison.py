"""The comparison: fine-tune a network, score every target with every method, and make a record."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from deep.comparison import trained_networks
from deep.comparison.analysis_config import OnRunConfig
from deep.comparison.config import MATCHED, PROJNORM_METHODS, RunConfig, kind_of, references_of
from deep.comparison.modality import domain_of
from deep.comparison.run_methods import estimator_of, has_projnorm_parts, projnorm_parts
from deep.comparison.runs import Run, open_run
from deep.comparison.scores import MEANINGS, Row, Scores
from deep.training.loop import require_precision
from projnorm.core.backends import in_order, require_shared, run_each
from projnorm.core.errors import ChangedInputError, InputError
from projnorm.core.files import reason
from projnorm.core.progress import watched
from projnorm.core.records import Record, RunContext, begin_run, find_record, finish_record, record_id
from projnorm.models.forward import forward
from projnorm.models.preparation import one_thread

T = TypeVar("T")
R = TypeVar("R")
C = TypeVar("C", bound=OnRunConfig)

# Cost of a forward pass, as a share of a training step, per sample.
_FORWARD = 0.15
_MEANINGS = MEANINGS | {
    "layers": "name of each parameter of the network",
    "layer_contributions": "squared distance from the reference by parameter, a row for each target; empty without "
    "ProjNorm",
    "trajectory_steps": "steps after which the distance was recorded",
    "trajectory": "distance from the reference after them, a row for each target",
}


def run_comparison(config: RunConfig, context: RunContext) -> Record:
    """The record of this comparison: read if it is there, else resumed from wherever it stopped.

    Args:
        config: Data, network, trainings and methods.
        context: Folder, workers and device. Workers of a cluster must see the folder, and the data and weights under
            the same names as this process.

    Raises:
        InputError: If something asked for is not there or does not fit, or what is there is of other inputs.
        OSError: If something cannot be read or written. What was finished before stays.
    """
    kind = kind_of(config)
    run = Run(config, trained_networks.for_workers(context), record_id(kind, config))
    require_shared(context.root, context.backend)
    facts = checked_facts(run)
    with context.store("").lock(run.name):
        if context.fresh:  # not before the inputs were found good
            trained_networks.forget_stages(run)
            run.forget()
            shutil.rmtree(run.folder / "progress", ignore_errors=True)
        begun = run.begun_with()
        if begun is None:
            begin_run(kind, config, context)
            run.begin(facts["inputs"])
        elif begun != facts["inputs"]:
            raise _changed(run)
        tasks = _tasks(run)
        # A run begun afresh and interrupted still has the record of the one before.
        record = None if context.fresh else find_record(context.root, kind, config)
        if (
            record is not None
            and not tasks
            and record.facts["inputs"] == facts["inputs"]
            and trained_networks.has_stages(run)
        ):
            return record
        started = time.perf_counter()
        _score_targets(run, tasks)
        with each(_validation_error, run, [None]) as validated:
            ((_, facts["validation_error"]),) = validated
        return finish_record(kind, config, context, _arrays(run), _MEANINGS, started=started, facts=facts)


def finished_run(config: C, context: RunContext) -> tuple[Run, C]:
    """The finished run that an experiment is about, and its configuration with the whole name of the run."""
    run = replace(open_run(context.root, config.run), context=trained_networks.for_workers(context))
    if run.begun_with() != checked_facts(run)["inputs"]:
        raise _changed(run)
    if _tasks(run) or not trained_networks.has_stages(run):
        raise InputError(f"{run.folder} is not finished; run it again to go on with it.")
    return run, replace(config, run=run.name)


def checked_facts(run: Run) -> dict[str, Any]:
    """What a reader of the record needs to know besides the configuration; nothing is trained or written."""
    config, domain = run.config, domain_of(run.config)
    for recipe in (config.finetune, config.projnorm):
        require_precision(recipe, run.context.device)
    trained_networks.require_network(config)
    data, network = trained_networks.data_of(run), trained_networks.initial_of(run)
    _require_fitting_samples(run, network.model)
    inputs = {
        "data_sha256": data.sha256,
        "weights_sha256": network.sha256,
        "torch": torch.__version__,
        "device": run.context.device,
        **domain.software,
    }
    return {
        "inputs": inputs,
        "weights": "random (the network was never trained before)" if network.is_random else network.weights,
        "train_samples": f"{len(data.train):,} of {data.train.name}",
        "reference_samples": trained_networks.reference_samples(config, len(data.train)),
        **data.facts,
        "classes": data.classes,
        "parameters": sum(parameter.numel() for parameter in network.model.parameters()),
    }


@contextmanager
def each(function: Callable[[Run, T], R], run: Run, items: Sequence[T]) -> Iterator[Iterator[tuple[T, R]]]:
    """Results of `function` in the order of the items, so that what is written does not depend on the workers."""
    task = partial(_on_own_threads, function, run)
    with run_each(task, items, backend=run.context.backend.for_tasks(len(items))) as running:
        yield zip(items, in_order(running), strict=True)


def _require_fitting_samples(run: Run, model: nn.Module) -> None:
    """Look at two samples, before anything is trained."""
    domain = domain_of(run.config)
    try:
        forward(model, domain.last, trained_networks.data_of(run).train.inputs[:2], prepare=domain.prepare)
    except (RuntimeError, IndexError) as error:
        raise InputError(f"{domain.network} cannot see {domain.sees}: {reason(error)}.") from None


def _changed(run: Run) -> ChangedInputError:
    return ChangedInputError(
        f"{run.folder} was computed with other data, weights, torch or device; compute it again with fresh=True, or "
        "use another folder."
    )


def _on_own_threads(function: Callable[[Run, T], R], run: Run, item: T) -> R:
    with one_thread(run.context.device):
        return function(run, item)


@dataclass(frozen=True, slots=True)
class _Task:
    """Methods to run on a target: all that need outputs only, or those that train on it."""

    target: int
    methods: tuple[str, ...]

    @property
    def group(self) -> str:
        """Name of their entry; groups of outputs come first, so that a table without ProjNorm is there early."""
        return f"{'projnorm' if self.trains else 'outputs'}-{self.target:04d}"

    @property
    def trains(self) -> bool:
        """Whether the methods train on the target."""
        return self.methods[0] in PROJNORM_METHODS


def _all_tasks(run: Run) -> list[_Task]:
    methods = run.config.methods
    groups = [tuple(m for m in methods if (m in PROJNORM_METHODS) == trains) for trains in (False, True)]
    return [
        _Task(index, group) for group in groups if group for index in range(len(trained_networks.data_of(run).targets))
    ]


def _tasks(run: Run) -> list[_Task]:
    """What is left to do; a value of ProjNorm that was lost is computed again with what it is made of."""
    targets = trained_networks.data_of(run).targets
    return [
        task
        for task in _all_tasks(run)
        if not run.rows(task.group) or (task.trains and not has_projnorm_parts(run, targets[task.target]))
    ]


def _score_targets(run: Run, tasks: Sequence[_Task]) -> None:
    names = trained_networks.stages_of(run.config)
    total = sum(trained_networks.stage_samples(run, name) for name in names) + sum(
        _task_units(run, task) for task in tasks
    )
    with watched(run.folder / "progress", description="training the networks", total=total) as count:
        with each(trained_networks.run_stage, run, names) as trained:
            for name, _ in trained:
                count(f"trained the {trained_networks.STAGE_NAMES[name]}", trained_networks.stage_samples(run, name))
        # What a method trains besides, before every worker would.
        with each(_make_ready, run, run.config.methods) as ready:
            list(ready)
        with each(_score, run, tasks) as scored:
            for task, rows in scored:
                run.put_rows(task.group, rows)
                count(f"scored {trained_networks.data_of(run).targets[task.target].name}", _task_units(run, task))


def _score(run: Run, task: _Task) -> list[Row]:
    target = trained_networks.data_of(run).targets[task.target]
    outputs = trained_networks.outputs_of(run, target.samples)
    error = target.error(outputs.predicted)
    if task.trains:
        parts = projnorm_parts(run, target)
        return [Row.of(target, error, method, float(parts[method]["value"])) for method in task.methods]
    return [Row.of(target, error, method, estimator_of(run, method).score(outputs)) for method in task.methods]


def _make_ready(run: Run, method: str) -> None:
    estimator_of(run, method)


def _validation_error(run: Run, _: None) -> float:
    return trained_networks.outputs_of(run, trained_networks.data_of(run).validation).error


def _arrays(run: Run) -> dict[str, np.ndarray]:
    rows = [row for task in _all_tasks(run) for row in run.rows(task.group)]
    scores = Scores.of(rows).only(run.config.methods)
    method = next((one for one in PROJNORM_METHODS if one in run.config.methods), "")
    parts = [projnorm_parts(run, target)[method] for target in trained_networks.data_of(run).targets] if method else []
    return scores.to_arrays() | {
        "layers": parts[0]["layers"] if parts else np.array([], dtype=str),
        "layer_contributions": np.array([part["contributions"] for part in parts]),
        "trajectory_steps": np.array(run.config.projnorm.trajectory, dtype=int),
        "trajectory": np.array([part["trajectory"] for part in parts]),
    }


def _task_units(run: Run, task: _Task) -> int:
    """Number of samples that pass through a training, each as often as it is seen, or as many as cost the same."""
    if task.trains:
        projnorm = run.config.projnorm
        trainings = 1 + (MATCHED in references_of(run.config).values())
        return trainings * projnorm.count_steps(trained_networks.projnorm_samples(run.config)) * projnorm.batch
    passes = 1 + ("AgreeScore" in task.methods) + 3 * ("Rotation" in task.methods)
    return int(_FORWARD * passes * run.config.data.m)
