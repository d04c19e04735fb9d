"""Every method by name, with what it needs of a run's stages."""

from __future__ import annotations

from functools import lru_cache

from deep.config import METHODS
from deep.estimators.agree_score import AgreeScore
from deep.estimators.atc import ATC
from deep.estimators.conf_score import ConfScore
from deep.estimators.entropy import Entropy
from deep.estimators.evidence import Estimator
from deep.estimators.rotation import Rotation
from deep.projnorm import ProjNorm
from deep.stages import SECOND, Workplace, network_of, outputs_of, reference_of, rotation_head_of


@lru_cache(maxsize=len(METHODS))
def estimator_of(work: Workplace, method: str) -> Estimator:
    """A method, built once in every process.

    Raises:
        ValueError: If there is none of this name, or a stage is missing.
    """
    config, prepare, hardware = work.config, work.prepare, work.hardware
    match method:
        case "ConfScore":
            return ConfScore()
        case "Entropy":
            return Entropy()
        case "ATC":
            validation = work.data.validation
            return ATC.of(outputs_of(work, validation).logits, validation.labels)
        case "AgreeScore":
            return AgreeScore(network_of(work, SECOND), work.last, prepare, hardware)
        case "Rotation":
            return Rotation(network_of(work), work.last, rotation_head_of(work), prepare, hardware)
        case "ProjNorm":
            return ProjNorm(
                work.initial().model,
                reference_of(work),
                work.projnorm_recipe,
                config.seed,
                prepare,
                hardware,
                config.labels,
                config.trajectory,
            )
        case _:
            raise ValueError(f"`method` must be one of {', '.join(METHODS)}; got {method!r}.")
