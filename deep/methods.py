"""Every method by name, with what it needs of a run's stages, and all of them on any images."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from deep.config import LATER_METHODS, METHODS
from deep.estimators.agree_score import AgreeScore
from deep.estimators.catalogue import FROM_OUTPUTS
from deep.estimators.evidence import Estimator, Evidence
from deep.estimators.rotation import Rotation
from deep.outputs import forward
from deep.projnorm import ProjNorm
from deep.stages import SECOND, Workplace, network_of, outputs_of, reference_of, rotation_head_of


@lru_cache(maxsize=len(METHODS) + len(LATER_METHODS))
def estimator_of(work: Workplace, method: str) -> Estimator:
    """A method, built once in every process.

    Raises:
        ValueError: If there is none of this name, or a stage is missing.
    """
    config, prepare, hardware = work.config, work.prepare, work.hardware
    if method in FROM_OUTPUTS:
        validation = work.data.validation
        return FROM_OUTPUTS[method](outputs_of(work, validation), validation.labels, config.seed)
    match method:
        case AgreeScore.name:
            return AgreeScore(network_of(work, SECOND), work.last, prepare, hardware)
        case Rotation.name:
            return Rotation(network_of(work), work.last, rotation_head_of(work), prepare, hardware)
        case ProjNorm.name:
            return ProjNorm(
                work.initial().model,
                reference_of(work),
                work.projnorm_recipe,
                config.seed,
                prepare,
                hardware,
                config.labels,
                config.trajectory,
                work.projnorm_samples,
            )
        case _:
            raise ValueError(f"`method` must be one of {', '.join(METHODS + LATER_METHODS)}; got {method!r}.")


def scores_on(
    work: Workplace, images: NDArray[np.generic], labels: NDArray[np.int64]
) -> tuple[float, NDArray[np.float64]]:
    """The error of the evaluated network on images with values from 0 to 255, and the score of every method of the run.

    The labels serve for the error alone, or for the ablation of ProjNorm that wants them.
    """
    outputs = forward(network_of(work), work.last, images, prepare=work.prepare, hardware=work.hardware)
    evidence = Evidence(images, outputs, labels if work.config.labels == "true" else None)
    scores = [estimator_of(work, method).score(evidence) for method in work.config.methods]
    return outputs.error(labels), np.array(scores)
