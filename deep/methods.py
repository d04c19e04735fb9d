"""Every method by name, with what it needs of a run's stages, and all of them on any images."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from deep.config import LATER_METHODS, METHODS
from deep.estimators.agree_score import AgreeScore
from deep.estimators.atc import ATC
from deep.estimators.bbse import BBSE
from deep.estimators.cbpe import CBPE
from deep.estimators.conf_score import ConfScore
from deep.estimators.cot import COT, COTT
from deep.estimators.dispersion import Dispersion
from deep.estimators.doc import AC, DoC
from deep.estimators.entropy import Entropy
from deep.estimators.evidence import Estimator, Evidence
from deep.estimators.frechet import Frechet
from deep.estimators.gd_score import GdScore
from deep.estimators.importance import ImportanceWeighting
from deep.estimators.mano import MaNo
from deep.estimators.mde import MDE
from deep.estimators.nuclear_norm import NuclearNorm
from deep.estimators.rotation import Rotation
from deep.outputs import forward
from deep.projnorm import ProjNorm
from deep.stages import SECOND, Workplace, network_of, outputs_of, reference_of, rotation_head_of

_WITHOUT_LEARNING = (ConfScore, Entropy, NuclearNorm, MaNo, Dispersion, MDE)
_FROM_LABELLED = (ATC, AC, DoC, ImportanceWeighting, COT, COTT, CBPE, BBSE)


@lru_cache(maxsize=len(METHODS) + len(LATER_METHODS))
def estimator_of(work: Workplace, method: str) -> Estimator:
    """A method, built once in every process.

    Raises:
        ValueError: If there is none of this name, or a stage is missing.
    """
    config, prepare, hardware = work.config, work.prepare, work.hardware
    for plain in _WITHOUT_LEARNING:
        if method == plain.name:
            return plain()
    for learning in _FROM_LABELLED:
        if method == learning.name:
            validation = work.data.validation
            return learning.of(outputs_of(work, validation).logits, validation.labels)
    match method:
        case GdScore.name:
            return GdScore(config.seed)
        case Frechet.name:
            return Frechet.of(outputs_of(work, work.data.validation).features)
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
