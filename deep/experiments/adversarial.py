"""The paper's Section 5 and appendix D: errors under attack, predicted by lines fitted to corruptions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from deep.attacks import pgd
from deep.config import image_config
from deep.domain import domain_of
from deep.experiments.config import AdversarialConfig, spoken
from deep.experiments.stress import run_to_calibrate_on, stress_record
from deep.runs import Run
from deep.samples import few_indices
from deep.stages import data_of, network_of
from projnorm.errors import InputError
from projnorm.records import Record, RunContext
from projnorm.vision import ImageSet

ADVERSARIAL_KIND = "deep-adversarial"


def run_adversarial(config: AdversarialConfig, context: RunContext) -> Record:
    """Attack the clean images of a run at every size, score the attacked ones, and predict the error on them.

    Raises:
        InputError: If the run is not finished, its inputs have changed, or it has fewer images than asked for.
        OSError: If something cannot be read or written.
    """
    run, scores = run_to_calibrate_on(config.run, context)
    config = replace(config, run=run.name)
    return stress_record(
        ADVERSARIAL_KIND,
        config,
        run,
        scores,
        items={f"eps = {spoken(eps)}": eps for eps in config.eps},
        make=partial(_attacked, config),
        original=_clean(config.m, run).images,
    )


def _clean(m: int, run: Run) -> ImageSet:
    image_config(run.config)
    images = data_of(run).targets[0].samples
    assert isinstance(images, ImageSet)
    if m > len(images):
        raise InputError(f"`m` must be at most {len(images):,}, as in {run.name}; got {m:,}.")
    return images.take(few_indices(len(images), m or len(images), run.config.seed))


def _attacked(config: AdversarialConfig, run: Run, eps: float) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    clean, prepare = _clean(config.m, run), domain_of(run.config).prepare
    attacked = pgd(
        network_of(run),
        clean.images,
        clean.labels,
        eps=eps,
        steps=config.steps,
        prepare=prepare,
        device=run.context.device,
    )
    return attacked, clean.labels
