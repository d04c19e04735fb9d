"""The paper's Section 3.2 and appendix B: ProjNorm under other settings, on the network and targets of one run.

Settings share networks, outputs and pseudo-labels with the run. What cannot be shared is the training on pseudo-labels:
the learning rate falls to zero over all T steps, so the first steps of a long training are not a short one, and fewer
samples make other batches.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deep.config import RunConfig, image_config
from deep.estimators.projnorm import ProjNorm
from deep.experiments.comparison import each, finished_run, projnorm_parts, projnorm_units
from deep.experiments.config import SweepConfig
from deep.runs import Run
from deep.scores import MEANINGS, Scores
from deep.stages import (
    REFERENCE,
    data_of,
    network_hash,
    projnorm_identity,
    require_known_layers,
    run_stage,
    stage_key,
    stage_samples,
)
from projnorm.backends import require_shared
from projnorm.errors import InputError
from projnorm.progress import watched
from projnorm.records import Record, RunContext, begin_run, existing_record, finish_record, record_id

SWEEP_KIND = "deep-sweep"
AS_RUN = "as in the run"
_MEANINGS = {name: MEANINGS[name] for name in MEANINGS if name != "methods"} | {
    "settings": "what was varied and to what; the first as in the run",
    "varied": "which number was varied: T, m, lr, reference, labels, batch norm or layers",
    "values": "its value, as text",
    "scores": "ProjNorm on each target, one column for each setting",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One column of the table.

    Attributes:
        varied: Name of the number that is varied; empty for the run as it is.
        value: Its value, as text.
        config: Configuration of the run with it.
    """

    varied: str
    value: str
    config: RunConfig

    def __str__(self) -> str:
        return f"{self.varied} = {self.value}" if self.varied else AS_RUN


def settings_of(sweep: SweepConfig, base: RunConfig) -> list[Setting]:
    """Every setting, the run's own first."""
    if ProjNorm.name not in base.methods:
        raise InputError(f"{sweep.run} did not compute ProjNorm; there is nothing to vary.")
    if not base.projnorm.steps:
        raise InputError(f"{sweep.run} trains ProjNorm for a number of epochs; a sweep needs a number of steps.")
    seen = base.projnorm.samples or base.data.m
    settings = [Setting("", "", base)]

    def add(varied: str, value: object, **changes: Any) -> None:
        steps = changes.get("steps", base.projnorm.steps)
        changes["trajectory"] = tuple(step for step in base.projnorm.trajectory if step <= steps)
        config = base.updated({"methods": (ProjNorm.name,), "projnorm": changes})
        settings.append(Setting(varied, str(value), config))

    for steps in sweep.steps:
        add("T", steps, steps=steps)
    for samples in sweep.samples:
        add("m", samples, samples=samples, steps=max(1, round(base.projnorm.steps * samples / seen)))
    for lr in sweep.lr:
        add("lr", f"{lr:g}", lr=lr)
    for reference in sweep.reference:
        add("reference", reference, reference=reference)
    for labels in sweep.labels:
        add("labels", labels, labels=labels)
    for batch_norm in sweep.batch_norm:
        image_config(base)
        add("batch norm", batch_norm, batch_norm=batch_norm)
    for layers in sweep.layers:
        add("layers", layers, layers=tuple(layers.split("+")))
    if len({str(one) for one in settings}) < len(settings):
        raise InputError(f"a sweep must name each setting once; got {', '.join(map(str, settings))}.")
    return settings


def run_sweep(config: SweepConfig, context: RunContext) -> Record:
    """ProjNorm under every setting, beside that of the run; values that another sweep computed are found.

    With ``fresh``, values are computed again; networks and the run itself stay.

    Raises:
        InputError: If there is no such finished run, a setting is not allowed, or the run's inputs have changed.
        OSError: If something cannot be read or written.
    """
    run = finished_run(config.run, context)
    config = replace(config, run=run.name)
    if config.is_empty:
        config = SweepConfig.like_the_paper(run.name, run.config)
    settings = settings_of(config, run.config)
    varied = [replace(run, config=one.config, name=record_id(SWEEP_KIND, config)) for one in settings[1:]]
    for one in varied:  # before any is computed
        require_known_layers(one.config)
        if one.config.projnorm.labels == "true":
            data_of(one)
    inputs = {"network_sha256": network_hash(run)}
    with context.store("").lock(varied[0].name):
        if (record := existing_record(SWEEP_KIND, config, context, inputs)) is not None:
            return record
        require_shared(context.root, context.backend)
        started = time.perf_counter()
        begin_run(SWEEP_KIND, config, context)
        if context.fresh:
            for one in varied:
                store = context.store("projnorm")
                for key in store.keys(f"{projnorm_identity(one)}/"):
                    store.remove(key)
        scores = run.scores().only((ProjNorm.name,))
        values = _values(run, varied, [str(one) for one in settings[1:]])
        arrays = scores.to_arrays() | {
            "settings": np.array([str(one) for one in settings]),
            "varied": np.array([one.varied for one in settings]),
            "values": np.array([one.value for one in settings]),
            "scores": np.column_stack([scores.values, values]),
        }
        del arrays["methods"]
        facts = {"run_config": run.config.to_json(), "inputs": inputs}
        return finish_record(SWEEP_KIND, config, context, arrays, _MEANINGS, started=started, facts=facts)


def sweep_scores(record: Record) -> Scores:
    """The settings as if each were a method."""
    return Scores.of_arrays(record.arrays, methods="settings")


def _values(run: Run, varied: Sequence[Run], names: Sequence[str]) -> np.ndarray:
    """ProjNorm, a row for each target and a column for each setting; references are trained first."""
    references = {stage_key(one, REFERENCE): one for one in varied if one.config.projnorm.reference == "trained"}
    tasks = [(number, target) for number in range(len(varied)) for target in range(len(data_of(run).targets))]
    total = sum(stage_samples(one, REFERENCE) for one in references.values())
    total += sum(projnorm_units(varied[number]) for number, _ in tasks)
    values = np.empty((len(data_of(run).targets), len(varied)))
    with watched(varied[0].folder / "progress", description="training references", total=total) as count:
        with each(_train_reference, run, list(references.values())) as trained:
            for one, _ in trained:
                count("training references", stage_samples(one, REFERENCE))
        with each(_value, run, [(varied[number], target) for number, target in tasks]) as computed:
            for (number, target), (_, value) in zip(tasks, computed, strict=True):
                values[target, number] = value
                count(f"ProjNorm with {names[number]}", projnorm_units(varied[number]))
    return values


def _train_reference(_: Run, varied: Run) -> None:
    run_stage(varied, REFERENCE)


def _value(_: Run, task: tuple[Run, int]) -> float:
    varied, target = task
    return float(projnorm_parts(varied, data_of(varied).targets[target])["value"])
