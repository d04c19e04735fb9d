"""The experiment on real samples: a training set, a clean test set and shifts of it, kernels, analysis, one record."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ntk.experiments.analysis import Responses, TargetAnalysis, TrainAnalysis, analyse_target, analyse_train
from ntk.experiments.config import GramConfig, NtkConfig
from ntk.experiments.networks import Networks, require_fitting
from ntk.experiments.samples import DrawnSamples
from ntk.tiles.gram import GramTask
from ntk.tiles.kernels import Kernels
from ntk.tiles.plan import TRAIN
from ntk.tiles.sets import named_samples
from ntk.trace.inputs import Values
from projnorm.core.progress import tracked
from projnorm.core.records import Record, RunContext, begin_run, existing_record, find_record, finish_record, record_id
from projnorm.core.store import Store
from projnorm.data.samples import SampleSet
from projnorm.data.targets import Target
from projnorm_theory import LossInterval, PowerLawFit, PredictionInterval

GRAM_KIND, KIND = "ntk-gram", "ntk"
_GRAM_MEANINGS = {"sets": "names of the sets of samples", "trace": "sum of the diagonal of each set's kernel"}
MEANINGS = {
    "targets": "name of each target set",
    "families": "shift that made it; 'clean' for the test set, 'given' for a set from a file",
    "severities": "1 to 5; 0 where there is none",
    "sizes": "samples in it",
    "train_eigenvalues": "eigenvalues of the training kernel, descending",
    "train_decay": "exponent, low, high, prefactor of their power law",
    "eigenvalues": "eigenvalues of each target's kernel, descending; 0 where there are fewer",
    "decay": "exponent, low, high, prefactor of each target's power law",
    "alignment": "|<v_j, u_i>| of the top eigenvectors, row for the target's; nan where there are fewer",
    "span_overlap": "share of the top-j training span in the top-j span of the target, j = 1, 2, ...",
    "bessel": "largest squared row or column sum of the alignment; 1 at most",
    "rho": "||P~ theta*|| / ||P theta*|| from the labels; nan where there are none",
    "eta": "||P_Z theta*|| / ||P theta*|| from the labels, Z the features of both sets; nan where there are none",
    "overlap": "overlap c with nothing assumed shared",
    "test_loss": "squared error of the interpolating kernel regression, summed over classes; nan without labels",
    "proposition": "the paper's interval at k = 0, (lower, upper)",
    "generalised": "our interval at k = 0 with the measured rho; nan without labels",
    "sharp": "the sharp interval with the measured rho; nan without labels or where kernels are too coarse",
    "joint": "the joint interval with the measured eta; nan without labels",
    "spherical": "prediction interval at 90 % for ground truths of random direction",
    "projnorm": "ProjNormLinear",
    "projnorm_error": "how far its square may be off through rounding",
    "theta_norm": "norm of the fitted weights",
    "error": "share of wrong labels of the kernel regression; nan where the target has no labels",
}


@dataclass(frozen=True, slots=True, eq=False)
class KernelExperiment:
    """Everything that an experiment works on."""

    config: GramConfig
    networks: Networks
    train: SampleSet
    targets: tuple[Target[SampleSet], ...]
    classes: int

    @classmethod
    def from_config(cls, config: GramConfig, samples: DrawnSamples | None = None) -> KernelExperiment:
        """Corrupt the samples and load the networks; `samples` are those of the configuration, if they are there."""
        samples = samples or DrawnSamples.load(config)
        targets = samples.targets()
        networks = Networks.from_config(config.network, seed=config.seed)
        return cls(config, networks, samples.train, targets, samples.classes)

    def task(self, context: RunContext, sets: Mapping[str, Values] | None = None, **others: Any) -> GramTask:
        """The kernels, of these samples or of other `sets`, checked and ready to be computed.

        `others` are further fields of `KernelConfig`.
        """
        if sets is None:
            of_sets = {TRAIN: self.train, **{target.name: target.samples for target in self.targets}}
            sets = {name: self.networks.as_inputs(part.inputs) for name, part in of_sets.items()}
        if self.config.network.model:
            require_fitting(self.networks, sets)
        config = self.config.kernel_config(context, **others)
        return GramTask(list(self.networks.models), named_samples(sets), config, self.networks.prepare)


def run_gram(config: GramConfig, context: RunContext) -> Record:
    """The record of the kernels of an experiment, which are computed tile by tile in its folder.

    Raises:
        InputError: If data or weights are missing or do not fit, or results in the folder are of other inputs.
        OSError: If something cannot be read or written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from ntk import GramConfig, run_gram
        >>> from ntk.experiments.config import NtkImages, NtkNetwork
        >>> from projnorm.core.records import RunContext
        >>> images = NtkImages(n=8, m=6, families=())  # digits: 8 to train on, 6 of the clean test set
        >>> network = NtkNetwork("small-cnn", size=8)
        >>> with TemporaryDirectory() as folder:
        ...     record = run_gram(GramConfig(images, network), RunContext(folder, device="cpu"))
        >>> record.arrays["sets"].tolist(), record.arrays["trace"].shape
        (['train', 'clean'], (2,))
    """
    config = config.gram
    samples = DrawnSamples.load(config)
    if (record := existing_record(GRAM_KIND, config, context, samples.inputs)) is not None:
        return record
    return _kernels(KernelExperiment.from_config(config, samples), samples.inputs, context)[1]


def run_analysis(config: NtkConfig, context: RunContext) -> Record:
    """The whole experiment: kernels first, then every target.

    Raises:
        InputError: If data or weights are missing or do not fit, or results in the folder are of other inputs.
        OSError: If something cannot be read or written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from ntk import NtkConfig, run_analysis
        >>> from ntk.experiments.config import NtkImages, NtkNetwork
        >>> from projnorm.core.records import RunContext
        >>> images = NtkImages(n=8, m=6, families=())  # digits: 8 to train on, 6 of the clean test set
        >>> network = NtkNetwork("small-cnn", size=8)
        >>> with TemporaryDirectory() as folder:
        ...     record = run_analysis(NtkConfig(images, network), RunContext(folder, device="cpu"))
        >>> record.arrays["targets"].tolist(), record.arrays["train_eigenvalues"].shape
        (['clean'], (8,))
    """
    config.require_one_row()
    samples = DrawnSamples.load(config)
    inputs = samples.inputs_with_labels
    if (record := existing_record(KIND, config, context, inputs)) is not None:
        return record
    experiment = KernelExperiment.from_config(config, samples)
    task = experiment.task(context)
    with Store(_tiles(config, context)).lock():  # while tiles are read, nobody begins afresh
        started = time.perf_counter()
        kernels, _ = _kernels(experiment, samples.inputs, context, task)
        train, targets = analyse(experiment, kernels, ridge=config.ridge, top=config.top)
        warnings = [f"{TRAIN}: {train.warning}"] if train.warning else []
        warnings += [f"{name}: {warning}" for name, target in targets.items() for warning in target.warnings]
        arrays = analysis_arrays(experiment, train, targets)
        described = {**facts(experiment, kernels), "inputs": inputs, "warnings": warnings}
        begin_run(KIND, config, context)
        return finish_record(KIND, config, context, arrays, MEANINGS, started=started, facts=described)


def _kernels(
    experiment: KernelExperiment, inputs: Mapping[str, str], context: RunContext, task: GramTask | None = None
) -> tuple[Kernels, Record]:
    config, started = experiment.config.gram, time.perf_counter()
    task = task or experiment.task(context)
    begin_run(GRAM_KIND, config, context)
    kernels = task.run(_tiles(config, context), fresh=context.fresh, backend=context.backend)
    record = None if kernels.computed else find_record(context.root, GRAM_KIND, config)
    if record is None or record.facts.get("inputs") != dict(inputs):
        diagonals = [kernels.train.diagonal(), *(kernels.ood(name).diagonal() for name in kernels.targets)]
        arrays = {"sets": np.array([TRAIN, *kernels.targets]), "trace": np.array([d.sum() for d in diagonals])}
        described = {**facts(experiment, kernels), "settings": config.to_json(), "inputs": dict(inputs)}
        record = finish_record(GRAM_KIND, config, context, arrays, _GRAM_MEANINGS, started=started, facts=described)
    return kernels, record


def _tiles(config: GramConfig, context: RunContext) -> Path:
    return context.root.absolute() / record_id(GRAM_KIND, config.gram) / "tiles"


class Analysis(NamedTuple):
    """The analysis of an experiment.

    Attributes:
        train: That of the training block.
        targets: That of each target, by its name.
    """

    train: TrainAnalysis
    targets: dict[str, TargetAnalysis]


def analyse(experiment: KernelExperiment, kernels: Kernels, *, ridge: float = 0.0, top: int = 300) -> Analysis:
    """The analysis of all targets, one after the other; `ridge` and `top` are those of `analyse_target`."""
    responses = Responses.from_labels(experiment.train.labels, experiment.classes)
    train = analyse_train(kernels.train, responses, accumulate=experiment.config.kernel.accumulate)
    targets = {}
    for target in tracked(experiment.targets, description="targets analysed", total=len(experiment.targets)):
        blocks = kernels.ood_train(target.name), kernels.ood(target.name)
        labels = target.samples.known_labels
        targets[target.name] = analyse_target(train, *blocks, labels, ridge=ridge, top=top)
    return Analysis(train, targets)


def facts(experiment: KernelExperiment, kernels: Kernels) -> dict[str, Any]:
    """Facts about the networks, the kernels and how they were computed, for the record."""
    networks, plan = experiment.networks, kernels.plan
    return {
        "settings": experiment.config.to_json(),
        "weights": networks.weights,
        "weights_sha256": networks.sha256,
        "head_norms": list(networks.head_norms),
        "parameters": kernels.parameters,
        "train_images": experiment.train.name,
        "device": kernels.device,
        "threads": kernels.threads,
        "torch": torch.__version__,
        "check_error": kernels.check_error,
        "fingerprints": dict(kernels.fingerprints),
        "multiply_adds": plan.multiply_adds,
        "passes": plan.passes,
        "structured_layers": [layer.name for layer in plan.layers if layer.route == "structured"],
        "damaged_tiles": list(kernels.damaged),
    }


def analysis_arrays(
    experiment: KernelExperiment, train: TrainAnalysis, analysed: Mapping[str, TargetAnalysis]
) -> dict[str, np.ndarray]:
    """The arrays of the record, as `MEANINGS` describes them."""
    targets = list(analysed.values())
    top = max(len(t.alignment.overlap) for t in targets)
    widest = max(len(t.eigenvalues) for t in targets)
    intervals = ("proposition", "generalised", "sharp", "joint", "spherical")
    predictions = ("projnorm", "projnorm_error", "theta_norm", "error")
    return {
        "targets": np.array([t.name for t in experiment.targets]),
        "families": np.array([t.family for t in experiment.targets]),
        "severities": np.array([t.severity for t in experiment.targets]),
        "sizes": np.array([len(t.samples) for t in experiment.targets]),
        "train_eigenvalues": train.eigenvalues,
        "train_decay": _line(train.decay),
        "eigenvalues": np.stack([np.pad(t.eigenvalues, (0, widest - len(t.eigenvalues))) for t in targets]),
        "decay": np.stack([_line(t.decay) for t in targets]),
        "alignment": np.stack([_padded(t.alignment.matrix, top) for t in targets]).astype(np.float32),
        "span_overlap": np.stack([_padded(t.alignment.overlap, top) for t in targets]),
        "bessel": np.array([t.alignment.bessel for t in targets]),
        **{name: np.array([getattr(t, name) for t in targets]) for name in ("rho", "eta", "overlap", "test_loss")},
        **{name: np.array([_ends(getattr(t, name)) for t in targets]) for name in intervals},
        **{name: np.array([getattr(t.prediction, name) for t in targets]) for name in predictions},
    }


def _ends(interval: LossInterval | PredictionInterval | None) -> tuple[float, float]:
    return (np.nan, np.nan) if interval is None else (interval.lower, interval.upper)


def _padded(array: np.ndarray, size: int) -> np.ndarray:
    return np.pad(array, [(0, size - length) for length in array.shape], constant_values=np.nan)


def _line(fit: PowerLawFit | None) -> np.ndarray:
    return np.full(4, np.nan) if fit is None else np.array([fit.exponent, fit.low, fit.high, fit.prefactor])
