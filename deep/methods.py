"""The estimators of a comparison, built from its trained stages, and all of them on any samples."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from deep.estimators import ESTIMATORS, Estimator, Resources, build
from deep.forward import forward
from deep.stages import SECOND, Workplace, network_of, outputs_of, reference_of, rotation_head_of


@lru_cache(maxsize=len(ESTIMATORS))
def estimator_of(work: Workplace, method: str) -> Estimator:
    """A method, built once in every process.

    Raises:
        InputError: If there is none of this name, or a stage is missing.
    """
    return build(method, resources_of(work), outputs_of(work, work.data.validation))


@lru_cache(maxsize=2)
def resources_of(work: Workplace) -> Resources:
    """What the stages of a run give to an estimator; each is loaded when the estimator asks for it."""
    return Resources(
        seed=work.config.seed,
        samples=work.projnorm_samples,
        network=network_of(work),
        last=work.last,
        initial=work.initial().model,
        prepare=work.prepare,
        hardware=work.hardware,
        recipe=work.projnorm_recipe,
        labels=work.config.labels,
        trajectory=work.config.trajectory,
        second=partial(network_of, work, SECOND),
        rotation_head=partial(rotation_head_of, work),
        reference=partial(reference_of, work),
    )


def scores_on(
    work: Workplace, inputs: NDArray[np.generic], labels: NDArray[np.int64]
) -> tuple[float, NDArray[np.float64]]:
    """The error of the evaluated network on samples, and the score of every method of the run.

    The labels serve for the error alone, or for the ablation of ProjNorm that wants them.
    """
    outputs = forward(network_of(work), work.last, inputs, prepare=work.prepare, hardware=work.hardware)
    outputs = replace(outputs, inputs=inputs, labels=labels)
    return outputs.error, np.array([estimator_of(work, method).score(outputs) for method in work.config.methods])
