"""How close sampled features come to the exact kernel: eigenvalues and ProjNormLinear against their number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ntk.analysis import Responses, analyse_train, predict_target
from ntk.config import COORDINATES, NtkConfig, SubsampleConfig
from ntk.experiment import Experiment, run_analysis
from projnorm.arrays import Arrays
from projnorm.device import choose_device, on_device, torch_threads
from projnorm.records import Record, RunContext, recorded
from projnorm.tasks import stacked

SUBSAMPLE_KIND = "ntk-subsample"
_MEANINGS = {
    "kinds": "kind of features of each draw",
    "counts": "coordinates kept, or width of the projection",
    "targets": "name of each target set",
    "eigenvalue_error": "relative error of each eigenvalue of the training kernel, against the exact one",
    "projnorm_error": "relative error of ProjNormLinear on each target, against the exact kernel's",
    "error_shift": "wrong labels of the kernel regression minus those of the exact one, as a share, on each target",
}
# Sampled kernels are drawn with seeds of their own, apart from the images'.
_FIRST_SEED = 10_000


@dataclass(frozen=True, slots=True)
class _Draw:
    experiment: NtkConfig
    kind: str
    count: int
    seed: int


def run_subsample(config: SubsampleConfig, context: RunContext) -> Record:
    """Compare sampled kernels with the exact one, draw by draw.

    Raises:
        InputError: If something asked for is not there or does not fit, or what is there is of other inputs.
        OSError: If something cannot be read or written.
    """
    exact = run_analysis(config.experiment, context)
    draws = [
        _Draw(config.experiment, kind, count, _FIRST_SEED + draw)
        for kind in config.kinds
        for count in config.counts
        for draw in range(config.draws)
    ]
    return recorded(
        SUBSAMPLE_KIND,
        config,
        replace(context, backend=on_device(context.backend, choose_device(context.device))),
        items=draws,
        work=partial(_compare, exact=dict(exact.arrays), context=context),
        assemble=partial(_assemble, draws=draws, targets=exact.arrays["targets"]),
        meanings=_MEANINGS,
        facts=exact.facts,
        inputs=exact.facts["inputs"],
    )


def _compare(draw: _Draw, *, exact: Arrays, context: RunContext) -> Arrays:
    experiment = Experiment.of(draw.experiment)
    with torch_threads(1):  # parallelism is over the draws, as in every list of tasks
        kernels = experiment.task(context, kind=draw.kind, count=draw.count, seed=draw.seed).run()
    # Coordinates are kept as they are; a projection already has the right scale.
    scale = kernels.parameters / draw.count if draw.kind == COORDINATES else 1.0
    responses = Responses.of(experiment.train.labels, experiment.classes)
    accumulate = draw.experiment.kernel.accumulate
    train = analyse_train(scale * kernels.train, accumulate=accumulate)
    targets = [
        predict_target(
            train,
            scale * kernels.ood_train(target.name),
            scale * kernels.ood(target.name),
            responses,
            target.images.labels,
            accumulate=accumulate,
            ridge=draw.experiment.ridge,
        )
        for target in experiment.targets
    ]
    eigenvalues = exact["train_eigenvalues"]
    sampled = np.zeros_like(eigenvalues)
    sampled[: len(train.eigenvalues)] = train.eigenvalues[: len(eigenvalues)]
    return {
        "eigenvalue_error": sampled / eigenvalues - 1.0,
        "projnorm_error": np.array([t.projnorm for t in targets]) / exact["projnorm"] - 1.0,
        "error_shift": np.array([t.error for t in targets]) - exact["error"],
    }


def _assemble(results: Sequence[Arrays], *, draws: Sequence[_Draw], targets: np.ndarray) -> Arrays:
    return {
        "kinds": np.array([draw.kind for draw in draws]),
        "counts": np.array([draw.count for draw in draws]),
        "targets": targets,
        **stacked(results),
    }
