"""The estimators of a comparison, built from its trained stages, and all of them on any samples."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from deep.domain import domain_of
from deep.estimators import ESTIMATORS, Estimator, Resources, build
from deep.runs import Run
from deep.stages import (
    SECOND,
    data_of,
    forward_of,
    initial_of,
    network_of,
    outputs_of,
    projnorm_samples,
    reference_of,
    rotation_head_of,
)


@lru_cache(maxsize=len(ESTIMATORS))
def estimator_of(run: Run, method: str) -> Estimator:
    """A method, built once in every process.

    Raises:
        InputError: If there is none of this name, or a stage is missing.
    """
    return build(method, resources_of(run), outputs_of(run, data_of(run).validation))


@lru_cache(maxsize=2)
def resources_of(run: Run) -> Resources:
    """What the stages of a run give to an estimator; each is loaded when the estimator asks for it."""
    config, domain = run.config, domain_of(run.config)
    return Resources(
        seed=config.seed,
        samples=projnorm_samples(config),
        network=network_of(run),
        last=domain.last,
        initial=initial_of(run).model,
        prepare=domain.prepare,
        device=run.context.device,
        recipe=config.projnorm,
        labels=config.projnorm.labels,
        trajectory=config.projnorm.trajectory,
        trained={
            "second": partial(network_of, run, SECOND),
            "head": partial(rotation_head_of, run),
            "reference": partial(reference_of, run),
        },
    )


def scores_on(run: Run, inputs: NDArray[np.generic], labels: NDArray[np.int64]) -> tuple[float, NDArray[np.float64]]:
    """The error of the evaluated network on samples, and the score of every method of the run.

    The labels serve for the error alone, or for the ablation of ProjNorm that wants them.
    """
    outputs = replace(forward_of(run, network_of(run), inputs), inputs=inputs, labels=labels)
    return outputs.error, np.array([estimator_of(run, method).score(outputs) for method in run.config.methods])
