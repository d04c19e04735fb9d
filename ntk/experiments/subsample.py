r"""How close sampled features come to the exact kernel: eigenvalues and ProjNormLinear against their number.

A kernel of `k` of the `p` coordinates is scaled to the exact one on average, and compared by relative errors:

.. math::
   \hat K = \frac pk \sum_{j \in S} \phi_j\phi_j^\top, \qquad
   \hat\lambda_i / \lambda_i - 1, \qquad
   \widehat{\mathrm{ProjNormLinear}} / \mathrm{ProjNormLinear} - 1

A random projection is on that scale already.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ntk.experiments.analysis import Responses, analyse_train, predict_target
from ntk.experiments.config import NtkConfig, SubsampleConfig
from ntk.experiments.experiment import KernelExperiment, run_analysis
from ntk.kernel_config import COORDINATES
from projnorm.core.arrays import Arrays
from projnorm.core.device import choose_device, on_device, torch_threads
from projnorm.core.records import Record, RunContext, recorded
from projnorm.core.tasks import stacked

SUBSAMPLE_KIND = "ntk-subsample"
_MEANINGS = {
    "kinds": "kind of features of each draw",
    "counts": "coordinates kept, or width of the projection",
    "targets": "name of each target set",
    "eigenvalue_error": "relative error of each eigenvalue of the training kernel, against the exact one",
    "projnorm_error": "relative error of ProjNormLinear on each target, against the exact kernel's",
    "error_shift": "wrong labels of the kernel regression minus those of the exact one, as a share, on each target; "
    "nan without labels",
}
# Sampled kernels are drawn with seeds of their own, apart from the images'.
_FIRST_SEED = 10_000
# Kind, count and seed of a sampled kernel.
_Draw = tuple[str, int, int]


def run_subsample(config: SubsampleConfig, context: RunContext) -> Record:
    """Compare sampled kernels with the exact one, draw by draw.

    Raises:
        InputError: If data or weights are missing or do not fit, or results in the folder are of other inputs.
        OSError: If something cannot be read or written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from ntk import NtkConfig, SubsampleConfig, run_subsample
        >>> from ntk.experiments.config import NtkImages, NtkNetwork
        >>> from projnorm.core.records import RunContext
        >>> images = NtkImages(n=8, m=6, families=())  # digits: 8 to train on, 6 of the clean test set
        >>> network = NtkNetwork("small-cnn", size=8)
        >>> config = SubsampleConfig(NtkConfig(images, network), counts=(500,), kinds=("coordinates",), draws=1)
        >>> with TemporaryDirectory() as folder:
        ...     record = run_subsample(config, RunContext(folder, device="cpu"))
        >>> record.arrays["counts"].tolist(), record.arrays["projnorm_error"].shape
        ([500], (1, 1))
    """
    exact = run_analysis(config.experiment, context)
    draws = [
        (kind, count, _FIRST_SEED + draw)
        for kind in config.kinds
        for count in config.counts
        for draw in range(config.draws)
    ]
    return recorded(
        SUBSAMPLE_KIND,
        config,
        replace(context, backend=on_device(context.backend, choose_device(context.device))),
        items=draws,
        work=partial(_compare, config=config.experiment, exact=dict(exact.arrays), context=context),
        assemble=partial(_assemble, draws=draws, targets=exact.arrays["targets"]),
        meanings=_MEANINGS,
        facts=exact.facts,
        inputs=exact.facts["inputs"],
    )


def subsample_rows(record: Record) -> list[dict[str, Any]]:
    """One row per kind and number of sampled features: how far kernels and predictions are from the exact ones."""
    arrays = record.arrays
    labelled = ~np.isnan(arrays["error_shift"]).any(axis=0)
    rows: list[dict[str, Any]] = []
    for kind in dict.fromkeys(arrays["kinds"].tolist()):
        for count in np.unique(arrays["counts"][arrays["kinds"] == kind]).tolist():
            draws = np.flatnonzero((arrays["kinds"] == kind) & (arrays["counts"] == count))
            eigenvalues = np.abs(arrays["eigenvalue_error"][draws])
            rows.append(
                {
                    "kind": kind,
                    "count": count,
                    "draws": len(draws),
                    "eigenvalue_median": float(np.median(eigenvalues, axis=1).mean()),
                    "eigenvalue_largest": float(eigenvalues.max(axis=1).mean()),
                    "projnorm_rms": _rms(arrays["projnorm_error"][draws]),
                    "error_shift_rms": _rms(arrays["error_shift"][draws][:, labelled]),
                }
            )
    return rows


def _rms(values: np.ndarray) -> float:
    """Root of the mean square; nan where there is nothing."""
    return float(np.sqrt(np.mean(values**2))) if values.size else math.nan


def _compare(draw: _Draw, *, config: NtkConfig, exact: Arrays, context: RunContext) -> Arrays:
    kind, count, seed = draw
    experiment = KernelExperiment.from_config(config)
    with torch_threads(1):  # parallelism is over the draws, as in every list of tasks
        kernels = experiment.task(context, kind=kind, count=count, seed=seed).run()
    # Coordinates are kept as they are; a projection already has the right scale.
    scale = kernels.parameters / count if kind == COORDINATES else 1.0
    responses = Responses.from_labels(experiment.train.labels, experiment.classes)
    train = analyse_train(scale * kernels.train, responses, accumulate=config.kernel.accumulate)
    targets = []
    for target in experiment.targets:
        blocks = scale * kernels.ood_train(target.name), scale * kernels.ood(target.name)
        targets.append(predict_target(train, *blocks, target.samples.known_labels, ridge=config.ridge))
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
        "kinds": np.array([kind for kind, _, _ in draws]),
        "counts": np.array([count for _, count, _ in draws]),
        "targets": targets,
        **stacked(results),
    }
