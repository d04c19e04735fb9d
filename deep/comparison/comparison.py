"""The comparison: fine-tune a network, score every target with every method, and make a record."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from deep.comparison.config import PROJNORM_METHODS, OnRunConfig, RunConfig, kind_of
from deep.comparison.methods import methods_of
from deep.comparison.runs import Run, open_run
from deep.comparison.scores import MEANINGS, Scores, TargetScores
from deep.comparison.stages import STAGE_NAMES, reference_samples, stage_samples, stages_of
from deep.comparison.tasks import (
    ScoringTask,
    build_method,
    on_own_threads,
    score_target,
    scoring_tasks,
    train_stage,
    unfinished_tasks,
    validation_error,
)
from deep.comparison.trained_networks import TrainedNetworks, for_workers, networks_of, require_network
from deep.training.loop import require_precision
from projnorm.core.backends import in_order, require_shared, run_each
from projnorm.core.errors import ChangedInputError, InputError
from projnorm.core.files import reason
from projnorm.core.progress import watched
from projnorm.core.records import Record, RunContext, begin_run, find_record, finish_record, record_id
from projnorm.models.forward import forward

T = TypeVar("T")
R = TypeVar("R")
C = TypeVar("C", bound=OnRunConfig)

_MEANINGS = MEANINGS | {
    "layers": "name of each parameter of the network",
    "layer_contributions": "squared distance from the reference by parameter, a row for each target; empty without "
    "ProjNorm",
    "trajectory_steps": "steps after which the distance was recorded",
    "trajectory": "distance from the reference after them, a row for each target",
}


def run_comparison(config: RunConfig, context: RunContext) -> Record:
    """The record of a comparison: read if it is finished, else computed from where it was interrupted.

    Args:
        config: Data, network, trainings and methods.
        context: Folder, workers and device. Workers of a cluster must see the folder, and the data and weights under
            the same names as this process.

    Raises:
        InputError: If data or weights are missing or do not fit, or results in the folder are of other inputs.
        OSError: If something cannot be read or written. What was finished before stays.
    """
    kind = kind_of(config)
    run = Run(config, for_workers(context), record_id(kind, config))
    require_shared(context.root, context.backend)
    facts = checked_facts(run)
    with context.store("").lock(run.name):
        if context.fresh:  # not before the inputs were found good
            networks_of(run).forget()
            run.forget()
            shutil.rmtree(run.folder / "progress", ignore_errors=True)
        recorded = run.recorded_inputs()
        if recorded is None:
            begin_run(kind, config, context)
            run.begin(facts["inputs"])
        elif recorded != facts["inputs"]:
            raise _changed(run)
        tasks = unfinished_tasks(run)
        # A run begun afresh and interrupted still has the record of the one before.
        record = None if context.fresh else find_record(context.root, kind, config)
        if (
            record is not None
            and not tasks
            and record.facts["inputs"] == facts["inputs"]
            and networks_of(run).has_stages()
        ):
            return record
        started = time.perf_counter()
        scored = _score_targets(run, tasks)
        with _each(validation_error, run, [None]) as validated:
            ((_, facts["validation_error"]),) = validated
        return finish_record(kind, config, context, _arrays(run, scored), _MEANINGS, started=started, facts=facts)


def finished_run(config: C, context: RunContext) -> tuple[Run, C]:
    """The finished run that an experiment is about, and its configuration with the whole name of the run."""
    run = replace(open_run(context.root, config.run), context=for_workers(context))
    if run.recorded_inputs() != checked_facts(run)["inputs"]:
        raise _changed(run)
    if unfinished_tasks(run) or not networks_of(run).has_stages():
        raise InputError(f"{run.folder} is not finished; run it again to go on with it.")
    return run, replace(config, run=run.name)


def checked_facts(run: Run) -> dict[str, Any]:
    """Facts about weights and samples for the record, which are checked before anything is trained."""
    config = run.config
    for recipe in (config.finetune, config.projnorm):
        require_precision(recipe, run.context.device)
    require_network(config)
    networks = networks_of(run)
    data, network = networks.data, networks.initial()
    _require_fitting_samples(networks, network.model)
    inputs = {
        "data_sha256": data.sha256,
        "weights_sha256": network.sha256,
        "torch": torch.__version__,
        "device": run.context.device,
        **networks.modality.software,
    }
    return {
        "inputs": inputs,
        "weights": "random (the network was never trained before)" if network.is_random else network.weights,
        "train_samples": f"{len(data.train):,} of {data.train.name}",
        "reference_samples": reference_samples(config, len(data.train)),
        **data.facts,
        "classes": data.classes,
        "parameters": sum(parameter.numel() for parameter in network.model.parameters()),
    }


def _require_fitting_samples(networks: TrainedNetworks, model: nn.Module) -> None:
    """Refuse samples on which the network fails, before anything is trained."""
    modality = networks.modality
    try:
        forward(model, modality.last, networks.data.train.inputs[:2], prepare=modality.prepare)
    except (RuntimeError, IndexError) as error:
        raise InputError(f"{modality.network} cannot see {modality.sees}: {reason(error)}.") from None


def _changed(run: Run) -> ChangedInputError:
    return ChangedInputError(
        f"{run.folder} was computed with other data, weights, torch or device; compute it again with fresh=True, or "
        "use another folder."
    )


@contextmanager
def _each(function: Callable[[Run, T], R], run: Run, items: Sequence[T]) -> Iterator[Iterator[tuple[T, R]]]:
    """Results of `function` in the order of the items, so that what is written does not depend on the workers."""
    task = partial(on_own_threads, function, run)
    with run_each(task, items, backend=run.context.backend.for_tasks(len(items))) as running:
        yield zip(items, in_order(running), strict=True)


def _score_targets(run: Run, tasks: Sequence[ScoringTask]) -> dict[str, TargetScores]:
    """Train what is not trained and score what is not scored; returns the new scores by group."""
    names, data, scores = stages_of(run.config), networks_of(run).data, {}
    samples = {name: stage_samples(run.config, name, len(data.train)) for name in names}
    total = sum(samples.values()) + sum(task.units(run) for task in tasks)
    with watched(run.folder / "progress", description="training the networks", total=total) as count:
        with _each(train_stage, run, names) as trained:
            for name, _ in trained:
                count(f"trained the {STAGE_NAMES[name]}", samples[name])
        # What a method trains besides, before every worker would.
        with _each(build_method, run, run.config.methods) as built:
            list(built)
        with _each(score_target, run, tasks) as scored:
            for task, part in scored:
                run.put_scores(task.group, [part])
                scores[task.group] = part
                count(f"scored {part.target}", task.units(run))
    return scores


def _arrays(run: Run, scored: Mapping[str, TargetScores]) -> dict[str, np.ndarray]:
    """The arrays of the record; scores that are not among those just computed are read."""
    groups = [task.group for task in scoring_tasks(run)]
    parts = [part for group in groups for part in ([scored[group]] if group in scored else run.target_scores(group))]
    scores = Scores.from_targets(parts).only(run.config.methods)
    method = next((name for name in PROJNORM_METHODS if name in run.config.methods), "")
    targets = networks_of(run).data.targets if method else ()
    distances = [methods_of(run).distances(target)[method] for target in targets]
    return scores.to_arrays() | {
        "layers": distances[0]["layers"] if distances else np.array([], dtype=str),
        "layer_contributions": np.array([distance["contributions"] for distance in distances]),
        "trajectory_steps": np.array(run.config.projnorm.trajectory, dtype=int),
        "trajectory": np.array([distance["trajectory"] for distance in distances]),
    }
