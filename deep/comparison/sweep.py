"""The paper's Section 3.2 and appendix B: ProjNorm under other settings, on the network and targets of one run.

Settings share networks, outputs and pseudo-labels with the run. What cannot be shared is the training on pseudo-labels:
the learning rate falls to zero over all T steps, so the first steps of a long training are not a short one, and fewer
samples make other batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from deep.comparison.analysis_config import SweepConfig
from deep.comparison.comparison import finished_run
from deep.comparison.config import PROJNORM, TRAINED, RunConfig, image_config
from deep.comparison.run_methods import projnorm_parts
from deep.comparison.runs import Run
from deep.comparison.scores import MEANINGS, Scores
from deep.comparison.trained_networks import (
    REFERENCE,
    data_of,
    network_hash,
    projnorm_identity,
    require_network,
    run_stage,
)
from projnorm.core.arrays import Arrays
from projnorm.core.backends import require_shared
from projnorm.core.errors import InputError
from projnorm.core.records import Record, RunContext, record_id, recorded
from projnorm.models.preparation import one_thread

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
    """One column of the table: what is varied, empty for the run as it is, and the configuration with it."""

    varied: str
    value: str
    config: RunConfig

    def __str__(self) -> str:
        return f"{self.varied} = {self.value}" if self.varied else AS_RUN


def settings_of(sweep: SweepConfig, base: RunConfig) -> list[Setting]:
    """Every setting, the run's own first."""
    if PROJNORM not in base.methods:
        raise InputError(f"{sweep.run} did not compute ProjNorm; there is nothing to vary.")
    if not base.projnorm.steps:
        raise InputError(f"{sweep.run} trains ProjNorm for a number of epochs; a sweep needs a number of steps.")
    seen = base.projnorm.samples or base.data.m
    if sweep.batch_norm:
        image_config(base)
    changes: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "T": [(f"{one}", {"steps": one}) for one in sweep.steps],
        "m": [
            (f"{one}", {"samples": one, "steps": max(1, round(base.projnorm.steps * one / seen))})
            for one in sweep.samples
        ],
        "lr": [(f"{one:g}", {"lr": one}) for one in sweep.lr],
        "reference": [(one, {"reference": one}) for one in sweep.reference],
        "labels": [(one, {"labels": one}) for one in sweep.labels],
        "batch norm": [(one, {"batch_norm": one}) for one in sweep.batch_norm],
        "layers": [(one, {"layers": tuple(one.split("+"))}) for one in sweep.layers],
    }
    settings = [Setting("", "", base)] + [
        Setting(varied, value, base.updated({"methods": (PROJNORM,), "projnorm": change}))
        for varied, alternatives in changes.items()
        for value, change in alternatives
    ]
    if len({str(one) for one in settings}) < len(settings):
        raise InputError(f"a sweep must name each setting once; got {', '.join(map(str, settings))}.")
    return settings


def run_sweep(config: SweepConfig, context: RunContext) -> Record:
    """ProjNorm under every setting, beside that of the run; values that another sweep computed are used again.

    With ``fresh``, values are computed again; networks and the run itself stay.

    Raises:
        InputError: If there is no such finished run, a setting is not allowed, or the run's inputs have changed.
        OSError: If something cannot be read or written.
    """
    run, config = finished_run(config, context)
    if config.is_empty:
        config = SweepConfig.like_the_paper(run.name, run.config)
    settings = settings_of(config, run.config)
    varied = [replace(run, config=one.config, name=record_id(SWEEP_KIND, config)) for one in settings[1:]]
    for one in varied:  # before any is computed
        require_network(one.config)
        if one.config.projnorm.labels == "true":
            data_of(one)
    require_shared(context.root, context.backend)
    if context.fresh:
        store = context.store("projnorm")
        identities = [projnorm_identity(one, one.config.projnorm.reference) for one in varied]
        for key in [key for identity in identities for key in store.keys(f"{identity}/")]:
            store.remove(key)
    return recorded(
        SWEEP_KIND,
        config,
        run.context,
        # Settings first, so that workers train the references of several settings at once.
        items=[(one, target) for target in range(len(data_of(run).targets)) for one in varied],
        work=_value,
        assemble=partial(_assembled, run.scores().only((PROJNORM,)), settings),
        meanings=_MEANINGS,
        facts={"run_config": run.config.to_json()},
        inputs={"network_sha256": network_hash(run)},
    )


def sweep_scores(record: Record) -> Scores:
    """The settings as if each were a method."""
    return Scores.of_arrays(record.arrays, methods="settings")


def _value(task: tuple[Run, int]) -> Arrays:
    """ProjNorm under one setting on one target; its reference is trained if no other task has done so."""
    varied, target = task
    with one_thread(varied.context.device):
        if varied.config.projnorm.reference == TRAINED:
            run_stage(varied, REFERENCE)
        return {"value": projnorm_parts(varied, data_of(varied).targets[target])[PROJNORM]["value"]}


def _assembled(scores: Scores, settings: Sequence[Setting], results: Sequence[Arrays]) -> Arrays:
    values = np.array([float(result["value"]) for result in results]).reshape(len(scores.targets), -1)
    arrays = scores.to_arrays() | {
        "settings": np.array([str(one) for one in settings]),
        "varied": np.array([one.varied for one in settings]),
        "values": np.array([one.value for one in settings]),
        "scores": np.column_stack([scores.values, values]),
    }
    del arrays["methods"]
    return arrays
