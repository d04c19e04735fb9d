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
from deep.comparison.methods import methods_of
from deep.comparison.runs import Run
from deep.comparison.scores import MEANINGS, Scores
from deep.comparison.stages import REFERENCE
from deep.comparison.trained_networks import networks_of, require_network
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
class SweepSetting:
    """One column of the table: what is varied, empty for the run as it is, and the configuration with it."""

    varied: str
    value: str
    config: RunConfig

    def __str__(self) -> str:
        return f"{self.varied} = {self.value}" if self.varied else AS_RUN


def settings_of(sweep: SweepConfig, base: RunConfig) -> list[SweepSetting]:
    """Every setting, the run's own first."""
    if PROJNORM not in base.methods:
        raise InputError(f"{sweep.run} did not compute ProjNorm; there is nothing to vary.")
    if not base.projnorm.steps:
        raise InputError(f"{sweep.run} trains ProjNorm for a number of epochs; a sweep needs a number of steps.")
    seen = base.projnorm.samples or base.data.m
    if sweep.batch_norm:
        image_config(base)
    changes: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "T": [(f"{steps}", {"steps": steps}) for steps in sweep.steps],
        "m": [
            (f"{samples}", {"samples": samples, "steps": max(1, round(base.projnorm.steps * samples / seen))})
            for samples in sweep.samples
        ],
        "lr": [(f"{lr:g}", {"lr": lr}) for lr in sweep.lr],
        "reference": [(reference, {"reference": reference}) for reference in sweep.reference],
        "labels": [(labels, {"labels": labels}) for labels in sweep.labels],
        "batch norm": [(statistics, {"batch_norm": statistics}) for statistics in sweep.batch_norm],
        "layers": [(layers, {"layers": tuple(layers.split("+"))}) for layers in sweep.layers],
    }
    settings = [SweepSetting("", "", base)] + [
        SweepSetting(varied, value, base.updated({"methods": (PROJNORM,), "projnorm": change}))
        for varied, alternatives in changes.items()
        for value, change in alternatives
    ]
    if len({str(setting) for setting in settings}) < len(settings):
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
    varied = [replace(run, config=setting.config, name=record_id(SWEEP_KIND, config)) for setting in settings[1:]]
    for other in varied:  # before any is computed
        require_network(other.config)
        if other.config.projnorm.labels == "true":
            _ = networks_of(other).data
    require_shared(context.root, context.backend)
    if context.fresh:
        store = context.store("projnorm")
        identities = [networks_of(other).projnorm_identity(other.config.projnorm.reference) for other in varied]
        for key in [key for identity in identities for key in store.keys(f"{identity}/")]:
            store.remove(key)
    return recorded(
        SWEEP_KIND,
        config,
        run.context,
        # Settings first, so that workers train the references of several settings at once.
        items=[(other, target) for target in range(len(networks_of(run).data.targets)) for other in varied],
        work=_value,
        assemble=partial(_assembled, run.scores().only((PROJNORM,)), settings),
        meanings=_MEANINGS,
        facts={"run_config": run.config.to_json()},
        inputs={"network_sha256": networks_of(run).network_hash()},
    )


def sweep_scores(record: Record) -> Scores:
    """The scores of a sweep, with settings in the place of methods."""
    return Scores.from_arrays(record.arrays, methods="settings")


def _value(task: tuple[Run, int]) -> Arrays:
    """ProjNorm under one setting on one target; its reference is trained if no other task has done so."""
    varied, target = task
    with one_thread(varied.context.device):
        networks = networks_of(varied)
        if varied.config.projnorm.reference == TRAINED:
            networks.train_stage(REFERENCE)
        return {"value": methods_of(varied).distances(networks.data.targets[target])[PROJNORM]["value"]}


def _assembled(scores: Scores, settings: Sequence[SweepSetting], results: Sequence[Arrays]) -> Arrays:
    values = np.array([float(result["value"]) for result in results]).reshape(len(scores.targets), -1)
    arrays = scores.to_arrays() | {
        "settings": np.array([str(setting) for setting in settings]),
        "varied": np.array([setting.varied for setting in settings]),
        "values": np.array([setting.value for setting in settings]),
        "scores": np.column_stack([scores.values, values]),
    }
    del arrays["methods"]
    return arrays
