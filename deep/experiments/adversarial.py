"""The paper's Section 5 and appendix D: errors under attack, predicted by lines fitted to corruptions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from deep.attacks import pgd
from deep.config import image_config, run_setting
from deep.domain import domain_of
from deep.experiments.stress import require_different, run_to_calibrate_on, spoken, stress_record
from deep.runs import Run
from deep.samples import few_indices
from deep.stages import data_of, network_of
from projnorm.config import Config, setting
from projnorm.errors import InputError
from projnorm.records import Record, RunContext
from projnorm.vision import ImageSet

ADVERSARIAL_KIND = "deep-adversarial"
PAPER_EPS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.5, 8.0)
_PIXELS = 255


@dataclass(frozen=True)
class AdversarialConfig(Config):
    """Attacks on the network of a run, whose targets calibrate."""

    run: str = run_setting()
    eps: tuple[float, ...] = setting(
        PAPER_EPS, "Largest changes of a pixel, in 255ths.", least=0.0, most=_PIXELS, nonempty=True
    )
    m: int = setting(0, "Number of images of the clean set that are attacked; 0 for all of the run.", least=0)
    steps: int = setting(20, "Number of steps of an attack.", least=1)

    def check(self) -> None:
        """Every size of an attack has a name of its own, and ProjNorm needs two images."""
        require_different("eps", self.eps)
        if self.m == 1:
            raise InputError("`m` must be 0 for all, or at least 2; got 1.")


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
