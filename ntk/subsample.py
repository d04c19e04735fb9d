"""How close sampled features come to the exact kernel: eigenvalues and ProjNormLinear against their number."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ntk.analysis import Responses, analyse_train, predict_target
from ntk.experiment import Experiment, NtkConfig, run_analysis
from projnorm.device import choose_device, on_device, torch_threads
from projnorm.runs import ONE_PROCESS, Arrays, Backend, Record, recorded, stacked

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
class SubsampleConfig:
    """Which sampled kernels are compared with the exact one.

    Attributes:
        experiment: Images, network and shifts; its kind is "exact".
        counts: Coordinates, or widths of the projection.
        kinds: Kinds of sampled features.
        draws: Independent draws of each.
    """

    experiment: NtkConfig = field(default_factory=lambda: NtkConfig(severities=(5,)))
    counts: tuple[int, ...] = (1_000, 3_000, 10_000, 30_000, 100_000, 500_000)
    kinds: tuple[str, ...] = ("coordinates", "projection")
    draws: int = 3

    def __post_init__(self) -> None:
        """Refuse what is no comparison."""
        if self.draws < 1 or not self.counts or min(self.counts) < 1:
            raise ValueError("`draws` and every one of `counts` must be at least 1.")
        if self.experiment.kind != "exact":
            raise ValueError("the kernel that samples are compared with must be exact.")


@dataclass(frozen=True, slots=True)
class _Draw:
    experiment: NtkConfig
    kind: str
    count: int
    seed: int


def run_subsample(
    config: SubsampleConfig, *, root: Path, backend: Backend = ONE_PROCESS, fresh: bool = False, **limits: Any
) -> Record:
    """Compare sampled kernels with the exact one, draw by draw.

    Raises:
        ValueError: If something asked for is not there or does not fit.
        OSError: If something cannot be read or written.
    """
    exact = run_analysis(config.experiment, root=root, backend=backend, fresh=fresh, **limits)
    draws = [
        _Draw(config.experiment, kind, count, _FIRST_SEED + draw)
        for kind in config.kinds
        for count in config.counts
        for draw in range(config.draws)
    ]
    return recorded(
        "ntk-subsample",
        asdict(config) | {"exact": exact.id, "inputs": _inputs(exact)},
        root=root,
        items=draws,
        work=partial(_compare, exact=dict(exact.arrays), limits=limits),
        assemble=partial(_assemble, draws=draws, targets=exact.arrays["targets"]),
        meanings=_MEANINGS,
        backend=on_device(backend, choose_device(limits.get("device", "auto"))),
        fresh=fresh,
        facts=exact.facts,
    )


def _inputs(exact: Record) -> str:
    """A hash of the images, weights and labels behind the exact kernel: other inputs are another comparison."""
    behind = json.dumps([exact.facts["fingerprints"], exact.facts["labels_sha256"]], sort_keys=True)
    return hashlib.sha256(behind.encode()).hexdigest()


def _compare(draw: _Draw, *, exact: Arrays, limits: dict[str, Any]) -> Arrays:
    experiment = Experiment.of(draw.experiment)
    kernel = replace(experiment.kernel_config(**limits), kind=draw.kind, count=draw.count, seed=draw.seed)
    with torch_threads(1):  # parallelism is over the draws, as in every list of tasks
        kernels = experiment.kernels(kernel)
    # Coordinates are kept as they are; a projection already has the right scale.
    scale = kernels.parameters / draw.count if draw.kind == "coordinates" else 1.0
    responses = Responses.of(experiment.train.labels, experiment.classes)
    accumulate = draw.experiment.accumulate
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
    found = np.zeros_like(eigenvalues)
    found[: len(train.eigenvalues)] = train.eigenvalues[: len(eigenvalues)]
    return {
        "eigenvalue_error": found / eigenvalues - 1.0,
        "projnorm_error": np.array([t.projnorm for t in targets]) / exact["projnorm"] - 1.0,
        "error_shift": np.array([t.error for t in targets]) - exact["error"],
    }


def _assemble(results: list[Arrays], *, draws: list[_Draw], targets: np.ndarray) -> Arrays:
    return {
        "kinds": np.array([draw.kind for draw in draws]),
        "counts": np.array([draw.count for draw in draws]),
        "targets": targets,
        **stacked(results),
    }
