"""The comparison: fine-tune a network, score every target with every method, keep a ledger and a record."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from projnorm.errors import ChangedInputError
from torch import nn

from deep.config import RunConfig
from deep.domain import config_of, kind_of
from deep.estimators.projnorm import ProjNorm
from deep.forward import forward
from deep.ledger import Ledger, Row, Scores
from deep.methods import estimator_of
from deep.outputs import Outputs
from deep.samples import Target
from deep.stages import REFERENCE, Workplace, forget_stages, has_stages, outputs_of, run_stage, stages_of
from deep.training import Hardware, one_thread, require_precision
from projnorm.device import choose_device, on_device
from projnorm.files import read_file
from projnorm.progress import watched
from projnorm.runs import (
    ONE_PROCESS,
    Backend,
    Record,
    find,
    from_sealed_json,
    in_order,
    keep,
    kept,
    new_record,
    notice,
    record_id,
    require_shared,
    run_each,
    save,
    sealed_json,
    sole_writer,
    write_atomically,
)

T = TypeVar("T")
R = TypeVar("R")

LEDGER = "ledger.jsonl"
_RUN = "run.json"
_RUN_ENTRIES = ("config", "inputs")
_REMEDY = "the command that made it writes it anew"
_OWN = ("progress", LEDGER, _RUN)
# A forward pass costs about so much of a step of training, a sample.
_FORWARD = 0.15
_MEANINGS = {
    "targets": "name of each target set",
    "families": "shift that made it; 'clean' for the test set, 'given' for a set from a file",
    "severities": "1 to 5; 0 where there is none",
    "origins": "'generated' here, 'official' files of CIFAR-C, 'clean', 'given', 'part' of a set, 'made' of templates",
    "sizes": "samples in it",
    "errors": "true error of the evaluated network on it",
    "methods": "name of each method",
    "scores": "score of each method on each target, a column a method",
    "layers": "name of each parameter of the network",
    "layer_contributions": "squared distance from the reference by parameter, a row a target; empty without ProjNorm",
    "trajectory_steps": "steps after which the distance was kept",
    "trajectory": "distance from the reference after them, a row a target",
}


def run_comparison(
    config: RunConfig,
    *,
    root: Path,
    backend: Backend = ONE_PROCESS,
    device: str = "auto",
    compiled: bool = False,
    fresh: bool = False,
    kind: str | None = None,
) -> Record:
    """The record of this comparison: read if it is there, else gone on with from wherever it stopped.

    Args:
        config: What is asked.
        root: Folder of the records.
        backend: Where stages and targets are computed; the numbers do not depend on it. Workers of a cluster must see
            `root`, and the data and weights under the same names as this process.
        device: "auto", or a device that torch knows.
        compiled: Train through `torch.compile`.
        fresh: Forget what is there.
        kind: Of the record, that of a run by default; the settings of a sweep have one of their own, so as not to
            stand among the runs.

    Raises:
        ValueError: If something asked for is not there or does not fit, or what is there is of other inputs.
        OSError: If something cannot be read or written. What was finished before stays.
    """
    place, kind = str(choose_device(device)), kind or kind_of(config)
    folder = root.absolute() / record_id(kind, asdict(config))
    work = Workplace(config, folder, Hardware(place, compiled))
    require_precision(config.precision, work.hardware)
    facts = _facts(work)
    with sole_writer(folder):
        require_shared(folder, backend)
        return _compared(work, root, kind, facts, backend=on_device(backend, place), fresh=fresh)


def _compared(
    work: Workplace, root: Path, kind: str, facts: dict[str, Any], *, backend: Backend, fresh: bool
) -> Record:
    config = work.config
    if fresh:  # not before the inputs were found good
        _forget(work)
    _require_same_inputs(work, facts["inputs"])
    ledger = Ledger(work.folder / LEDGER)
    stages, tasks = stages_of(config), _tasks(work, ledger)
    found = None if fresh else find(root, kind, asdict(config))
    # A run begun afresh and interrupted still has the record of the one before.
    if found is not None and not tasks and found.facts["inputs"] == facts["inputs"] and has_stages(work):
        return found
    start = time.perf_counter()
    total = sum(_stage_units(work, stage) for stage in stages) + sum(_task_units(work, task) for task in tasks)
    with watched(work.meters, description="training", total=total) as count:
        with _each(run_stage, work, stages, backend) as trained:
            for stage, _ in trained:
                count(f"trained {stage}", _stage_units(work, stage))
        # What a method trains besides, before every worker would.
        with _each(_make_ready, work, config.methods, backend) as ready:
            list(ready)
        with _each(_score, work, tasks, backend) as scored:
            for task, rows in scored:
                ledger.append(rows)
                count(work.data.targets[task.target].name, _task_units(work, task))
        with _each(_validation_error, work, [None], backend) as validated:
            ((_, facts["validation_error"]),) = validated
    record = new_record(kind, asdict(config), _arrays(work, ledger), _MEANINGS, time.perf_counter() - start, facts)
    save(record, root)
    return record


def open_run(folder: Path) -> tuple[RunConfig, Ledger]:
    """The configuration and the ledger of a run, finished or not.

    Raises:
        ValueError: If there is no run in this folder.
        OSError: If it cannot be read.
    """
    document = _begun(folder)
    try:
        config = config_of(folder.name.rpartition("-")[0]).from_json(document["config"])
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ValueError(f"{folder / _RUN}: not the description of a run; {_REMEDY}.") from None
    return config, Ledger(folder / LEDGER)


def finished_run(folder: Path, device: str) -> tuple[Workplace, Ledger]:
    """Where a finished run works, and its ledger.

    Raises:
        ValueError: If there is none, it is not finished, or its images or weights have changed.
        OSError: If it cannot be read.
    """
    config, ledger = open_run(folder)
    work = Workplace(config, folder, Hardware(str(choose_device(device))))
    _require_inputs_of_run(work)
    if _tasks(work, ledger) or not has_stages(work):
        raise ValueError(f"{folder} is not finished; the command that began it goes on with it.")
    return work, ledger


def _facts(work: Workplace) -> dict[str, Any]:
    """What a reader of the record needs to know besides the configuration."""
    network = work.initial()
    _require_fitting_samples(work, network.model)
    inputs = {
        "data_sha256": work.data.sha256,
        "weights_sha256": network.sha256,
        "torch": torch.__version__,
        "device": work.hardware.device,
        **work.domain.software,
    }
    return {
        "inputs": inputs,
        "weights": "random: the network was never trained before" if network.is_random else network.weights,
        "train_samples": f"{len(work.data.train):,} of {work.data.train.name}",
        "reference_samples": work.reference_samples,
        **work.data.facts,
        "classes": work.data.classes,
        "parameters": sum(parameter.numel() for parameter in network.model.parameters()),
        "compiled": work.hardware.compiled,
    }


def _require_fitting_samples(work: Workplace, model: nn.Module) -> None:
    """Look at two samples, before anything is trained."""
    try:
        forward(model, work.last, work.data.train.inputs[:2], prepare=work.prepare)
    except (RuntimeError, IndexError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise ValueError(f"{work.domain.network} cannot see {work.domain.sees}: {reason}.") from None


def _require_inputs_of_run(work: Workplace) -> None:
    """Check that images and weights are still those that a run was computed with.

    Raises:
        ChangedInputError: If they are not.
    """
    if _begun(work.folder)["inputs"] != _facts(work)["inputs"]:
        raise ChangedInputError(
            f"{work.folder} was computed with other data, weights, torch or device; run it again with --fresh."
        )


def _require_same_inputs(work: Workplace, inputs: dict[str, Any]) -> None:
    """Begin a run, or check that the one that is there was begun with the same inputs."""
    path = work.folder / _RUN
    document = json.loads(json.dumps({"config": asdict(work.config), "inputs": inputs}))
    if path.exists():
        try:
            begun = from_sealed_json(read_file(path), keys=_RUN_ENTRIES)
        except ValueError as damage:
            # The ledger may be of other inputs then. Networks, outputs and ProjNorm are kept under names that say.
            (work.folder / LEDGER).unlink(missing_ok=True)
            notice(f"{path} is damaged ({damage}); it is written anew, and the ledger made again.")
        else:
            if begun != document:
                raise ChangedInputError(
                    f"{work.folder} was computed with other data, weights, torch or device; pass --fresh to compute it "
                    "again, or use another folder."
                )
            return
    write_atomically(path, sealed_json(document))


def _begun(folder: Path) -> dict[str, Any]:
    """What a run was begun with."""
    path = folder / _RUN
    try:
        document = from_sealed_json(read_file(path), keys=_RUN_ENTRIES)
    except FileNotFoundError:
        raise ValueError(f"there is no run in {folder}; `projnorm deep run` and `deep text` make them.") from None
    except ValueError as damage:
        raise ValueError(f"{path} is damaged ({damage}); {_REMEDY}.") from None
    if not all(isinstance(document.get(key), dict) for key in _RUN_ENTRIES):
        raise ValueError(f"{path}: not the description of a run; {_REMEDY}.")
    return document


def _forget(work: Workplace) -> None:
    forget_stages(work)
    for name in _OWN:
        path = work.folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def _each(
    function: Callable[[Workplace, T], R], work: Workplace, items: Sequence[T], backend: Backend
) -> Iterator[Iterator[tuple[T, R]]]:
    """Results in the order of the items, so that a ledger does not depend on which worker was faster."""
    task = partial(_on_own_threads, function, work)
    with run_each(task, items, backend=backend.for_tasks(len(items))) as running:
        yield zip(items, in_order(running), strict=True)


def _on_own_threads(function: Callable[[Workplace, T], R], work: Workplace, item: T) -> R:
    with one_thread(work.hardware):
        return function(work, item)


@dataclass(frozen=True, slots=True)
class _Task:
    """Methods to run on a target: all that need outputs only, or the one that trains."""

    target: int
    methods: tuple[str, ...]


def _tasks(work: Workplace, ledger: Ledger) -> list[_Task]:
    """Outputs of all targets first, so that a table of five methods is there early."""
    methods = work.config.methods
    groups = [tuple(m for m in methods if m != ProjNorm.name), tuple(m for m in methods if m == ProjNorm.name)]
    return [
        _Task(index, group)
        for group in groups
        for index, target in enumerate(work.data.targets)
        if not all(ledger.has(target.name, method) for method in group)
        or (ProjNorm.name in group and _parts(work, target) is None)
    ]


def _score(work: Workplace, task: _Task) -> list[Row]:
    target = work.data.targets[task.target]
    outputs = outputs_of(work, target.samples)
    error = target.error(outputs.predicted)
    rows = []
    for method in task.methods:
        estimator = estimator_of(work, method)
        if isinstance(estimator, ProjNorm):
            score = _projnorm(work, estimator, target, outputs)
        else:
            score = estimator.score(outputs)
        rows.append(Row.of(target, error, method, score))
    return rows


def _projnorm(work: Workplace, estimator: ProjNorm, target: Target, outputs: Outputs) -> float:
    """The value, from its parts; they are computed unless another run with the same training has."""
    if (parts := _parts(work, target)) is None:
        meter, batch = work.meter(target.name), work.projnorm_recipe.batch
        found = estimator.measure(outputs, watch=lambda step, _: meter.at(step * batch))
        meter.close()
        parts = {
            "value": np.array(found.value),
            "layers": np.array(list(found.layers)),
            "contributions": np.array(list(found.layers.values())),
            "trajectory": np.array([found.trajectory[step] for step in work.config.trajectory]),
        }
        keep(_parts_file(work, target), parts)
    return float(parts["value"])


def _parts(work: Workplace, target: Target) -> dict[str, np.ndarray] | None:
    """What ProjNorm on a target is made of; None where it is not known, or damaged."""
    return kept(_parts_file(work, target))


def _parts_file(work: Workplace, target: Target) -> Path:
    return work.projnorms / f"{target.samples.sha256[:24]}.npz"


def _make_ready(work: Workplace, method: str) -> None:
    estimator_of(work, method)


def _validation_error(work: Workplace, _: None) -> float:
    return outputs_of(work, work.data.validation).error


def _arrays(work: Workplace, ledger: Ledger) -> dict[str, np.ndarray]:
    # In the order of the run, which that of a ledger need not be: a damaged row is appended again.
    places = {target.name: place for place, target in enumerate(work.data.targets)}
    methods = list(work.config.methods)
    rows = [row for row in ledger.rows if row.method in methods and row.target in places]
    scores = Scores.of(sorted(rows, key=lambda row: (places[row.target], methods.index(row.method))))
    found = [_parts(work, target) for target in work.data.targets] if ProjNorm.name in work.config.methods else []
    parts = [part for part in found if part is not None]
    return {
        "targets": scores.targets,
        "families": scores.families,
        "severities": scores.severities,
        "origins": scores.origins,
        "sizes": scores.sizes,
        "errors": scores.errors,
        "methods": np.array(scores.methods),
        "scores": scores.values,
        "layers": parts[0]["layers"] if parts else np.array([], dtype=str),
        "layer_contributions": np.array([part["contributions"] for part in parts]),
        "trajectory_steps": np.array(work.config.trajectory, dtype=int),
        "trajectory": np.array([part["trajectory"] for part in parts]),
    }


def _stage_units(work: Workplace, stage: str) -> int:
    recipe = work.projnorm_recipe if stage == REFERENCE else work.finetuning_recipe
    return recipe.steps * recipe.batch


def _task_units(work: Workplace, task: _Task) -> int:
    if ProjNorm.name in task.methods:
        return work.projnorm_recipe.steps * work.projnorm_recipe.batch
    passes = 1 + ("AgreeScore" in task.methods) + 3 * ("Rotation" in task.methods)
    return int(_FORWARD * passes * work.config.m)
