"""The experiment on real images: a training set, a clean test set and shifts of it, kernels, analysis, one record."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ntk.analysis import Responses, TargetAnalysis, TrainAnalysis, analyse_target, analyse_train
from ntk.config import GramConfig, NtkConfig
from ntk.kernels import GramTask, Kernels, as_sets
from ntk.plan import TRAIN
from ntk.samples import Samples
from projnorm.errors import InputError
from projnorm.progress import tracked
from projnorm.records import Record, RunContext, begin_run, existing_record, find_record, finish_record, record_id
from projnorm.store import Store
from projnorm.vision import ImageNetInput, ImageSet, LoadedNetwork, Splits, load_network, load_splits
from projnorm.vision.targets import Shifts, Target, draw_indices, generated_targets, given_targets, require_distinct
from projnorm.vision.weights import weights_hash
from projnorm_theory import LossInterval, PowerLawFit, PredictionInterval

GRAM_KIND, KIND = "ntk-gram", "ntk"
_GRAM_MEANINGS = {"sets": "names of the sets of images", "trace": "sum of the diagonal of each set's kernel"}
MEANINGS = {
    "targets": "name of each target set",
    "families": "shift that made it; 'clean' for the test set, 'given' for a set from a file",
    "severities": "1 to 5; 0 where there is none",
    "sizes": "images in it",
    "train_eigenvalues": "eigenvalues of the training kernel, descending",
    "train_decay": "exponent, low, high, prefactor of their power law",
    "eigenvalues": "eigenvalues of each target's kernel, descending; 0 where there are fewer",
    "decay": "exponent, low, high, prefactor of each target's power law",
    "alignment": "|<v_j, u_i>| of the top eigenvectors, row for the target's; nan where there are fewer",
    "span_overlap": "share of the top-j training span in the top-j span of the target, j = 1, 2, ...",
    "bessel": "largest squared row or column sum of the alignment; 1 at most",
    "rho": "||P~ theta*|| / ||P theta*|| from the labels",
    "eta": "||P_Z theta*|| / ||P theta*|| from the labels, Z the features of both sets",
    "overlap": "overlap c with nothing assumed shared",
    "test_loss": "squared error of the interpolating kernel regression, summed over classes",
    "proposition": "the paper's interval at k = 0, (lower, upper)",
    "generalised": "our interval at k = 0 with the measured rho",
    "sharp": "the sharp interval with the measured rho; nan where kernels are too coarse",
    "joint": "the joint interval with the measured eta",
    "spherical": "prediction interval at 90 % for ground truths of random direction",
    "projnorm": "ProjNormLinear",
    "projnorm_error": "how far its square may be off through rounding",
    "theta_norm": "norm of the fitted weights",
    "error": "share of wrong labels of the kernel regression",
}


@dataclass(frozen=True)
class DrawnImages:
    """The images of an experiment, before any of them is corrupted: of the whole `splits`, those that were drawn."""

    config: GramConfig
    splits: Splits
    train: ImageSet
    test_indices: NDArray[np.intp]
    given: tuple[Target, ...]

    @classmethod
    def load(cls, config: GramConfig) -> DrawnImages:
        """Read the images and draw those that are asked for."""
        data, rng = config.data, np.random.default_rng(config.seed)
        splits = load_splits(data.data)
        train = splits.train.take(draw_indices(splits.train, data.n, rng, "n"))
        if len(set(train.labels.tolist())) < 2:
            raise InputError(
                f"the {data.n} training images drawn are all of one class; nothing can be learnt from them."
            )
        test_indices = draw_indices(splits.test, data.m, rng, "m")
        return cls(config, splits, train, test_indices, tuple(given_targets(data.targets, data.m, rng)))

    @cached_property
    def inputs(self) -> dict[str, str]:
        """Hashes of what the kernels depend on besides the configuration."""
        network = self.config.network
        images = _hash(*(part.images for part in self._sets))
        return {"data_sha256": images, "weights_sha256": weights_hash(network.architecture, network.weights)}

    @property
    def inputs_with_labels(self) -> dict[str, str]:
        """Hashes of what the analysis depends on besides the configuration."""
        return {**self.inputs, "labels_sha256": _hash(*(part.labels.astype("<i8") for part in self._sets))}

    def targets(self) -> tuple[Target, ...]:
        """The clean test set, its corruptions, and the sets from files."""
        shifts = Shifts(self.config.data.families, self.config.data.severities)
        generated = generated_targets(self.splits.test, self.test_indices, shifts, seed=self.config.seed)
        targets = [*generated, *self.given]
        require_distinct(targets, taken=(TRAIN,))
        return tuple(targets)

    @property
    def _sets(self) -> list[ImageSet]:
        return [self.train, self.splits.test.take(self.test_indices), *(target.images for target in self.given)]


@dataclass(frozen=True, slots=True, eq=False)
class Experiment:
    """Everything that an experiment works on; there is one network for each last layer drawn."""

    config: NtkConfig
    networks: tuple[LoadedNetwork, ...]
    train: ImageSet
    targets: tuple[Target, ...]
    classes: int

    @classmethod
    def of(cls, config: GramConfig, images: DrawnImages | None = None) -> Experiment:
        """Corrupt the images and load the networks; `images` are those of the configuration, if they are there."""
        images = images or DrawnImages.load(config)
        targets = images.targets()
        classes = 1 + int(max(images.train.labels.max(), *(target.images.labels.max() for target in targets)))
        network = config.network
        networks = tuple(
            load_network(network.architecture, network.weights, num_outputs=1, seed=config.seed + head, drop_head=True)
            for head in range(network.heads)
        )
        if not isinstance(config, NtkConfig):
            config = NtkConfig(config.data, config.network, config.kernel, config.seed)
        return cls(config, networks, images.train, targets, classes)

    def task(self, context: RunContext, sets: Mapping[str, Samples] | None = None, **others: Any) -> GramTask:
        """The kernels, of these images or of other `sets`, checked and ready to be computed.

        `others` are further fields of `KernelConfig`.
        """
        if sets is None:
            sets = as_sets(self.train.images, {target.name: target.images.images for target in self.targets})
        config, prepare = self.config.kernel_config(context, **others), ImageNetInput(self.config.network.size)
        return GramTask([network.model for network in self.networks], sets, config, prepare)


def run_gram(config: GramConfig, context: RunContext) -> Record:
    """The record of the kernels of an experiment, which are computed tile by tile in its folder.

    Raises:
        InputError: If something asked for is not there or does not fit, or what is there is of other inputs.
        OSError: If something cannot be read or written.
    """
    config = config.gram
    images = DrawnImages.load(config)
    if (record := existing_record(GRAM_KIND, config, context, images.inputs)) is not None:
        return record
    return _kernels(Experiment.of(config, images), images.inputs, context)[1]


def compute_kernels(config: GramConfig, context: RunContext) -> tuple[Experiment, Kernels, Record]:
    """As `run_gram`, with the kernels themselves; tiles that are there are read."""
    images = DrawnImages.load(config)
    experiment = Experiment.of(config, images)
    return experiment, *_kernels(experiment, images.inputs, context)


def run_analysis(config: NtkConfig, context: RunContext) -> Record:
    """The whole experiment: kernels first, then every target.

    Raises:
        InputError: If something asked for is not there or does not fit, or what is there is of other inputs.
        OSError: If something cannot be read or written.
    """
    images = DrawnImages.load(config)
    inputs = images.inputs_with_labels
    if (record := existing_record(KIND, config, context, inputs)) is not None:
        return record
    experiment = Experiment.of(config, images)
    task = experiment.task(context)
    with Store(_tiles(config, context)).lock():  # while tiles are read, nobody begins afresh
        started = time.perf_counter()
        kernels, _ = _kernels(experiment, images.inputs, context, task)
        train, targets = analyse(experiment, kernels)
        warnings = [f"{TRAIN}: {train.warning}"] if train.warning else []
        warnings += [f"{name}: {warning}" for name, target in targets.items() for warning in target.warnings]
        arrays = analysis_arrays(experiment, train, targets)
        said = {**facts(experiment, kernels), "inputs": inputs, "warnings": warnings}
        begin_run(KIND, config, context)
        return finish_record(KIND, config, context, arrays, MEANINGS, started=started, facts=said)


def _kernels(
    experiment: Experiment, inputs: Mapping[str, str], context: RunContext, task: GramTask | None = None
) -> tuple[Kernels, Record]:
    config, started = experiment.config.gram, time.perf_counter()
    task = task or experiment.task(context)
    begin_run(GRAM_KIND, config, context)
    kernels = task.run(_tiles(config, context), fresh=context.fresh, backend=context.backend)
    record = None if kernels.computed else find_record(context.root, GRAM_KIND, config)
    if record is None or record.facts.get("inputs") != dict(inputs):
        diagonals = [kernels.train.diagonal(), *(kernels.ood(name).diagonal() for name in kernels.targets)]
        arrays = {"sets": np.array([TRAIN, *kernels.targets]), "trace": np.array([d.sum() for d in diagonals])}
        said = {**facts(experiment, kernels), "inputs": dict(inputs)}
        record = finish_record(GRAM_KIND, config, context, arrays, _GRAM_MEANINGS, started=started, facts=said)
    return kernels, record


def _tiles(config: GramConfig, context: RunContext) -> Path:
    return context.root.absolute() / record_id(GRAM_KIND, config.gram) / "tiles"


def analyse(experiment: Experiment, kernels: Kernels) -> tuple[TrainAnalysis, dict[str, TargetAnalysis]]:
    """Every target of an experiment, one after the other."""
    config = experiment.config
    responses = Responses.of(experiment.train.labels, experiment.classes)
    train = analyse_train(kernels.train, responses, accumulate=config.kernel.accumulate)
    targets = {}
    for target in tracked(experiment.targets, description="targets analysed", total=len(experiment.targets)):
        blocks = kernels.ood_train(target.name), kernels.ood(target.name)
        targets[target.name] = analyse_target(train, *blocks, target.images.labels, ridge=config.ridge, top=config.top)
    return train, targets


def facts(experiment: Experiment, kernels: Kernels) -> dict[str, Any]:
    """What a reader of the record needs to know besides the configuration."""
    network, plan = experiment.networks[0], kernels.plan
    return {
        "settings": experiment.config.to_json(),
        "weights": "random (the network was never trained)" if network.is_random else network.weights,
        "weights_sha256": network.sha256,
        "head_norms": [n.head_norm for n in experiment.networks],
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
    experiment: Experiment, train: TrainAnalysis, analysed: Mapping[str, TargetAnalysis]
) -> dict[str, np.ndarray]:
    """What `analyse` found, as the arrays that `MEANINGS` describes."""
    targets = list(analysed.values())
    top = max(len(t.alignment.overlap) for t in targets)
    widest = max(len(t.eigenvalues) for t in targets)
    intervals = ("proposition", "generalised", "sharp", "joint", "spherical")
    predictions = ("projnorm", "projnorm_error", "theta_norm", "error")
    return {
        "targets": np.array([t.name for t in experiment.targets]),
        "families": np.array([t.family for t in experiment.targets]),
        "severities": np.array([t.severity for t in experiment.targets]),
        "sizes": np.array([len(t.images) for t in experiment.targets]),
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


def _hash(*arrays: np.ndarray) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(str(array.shape).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _line(fit: PowerLawFit | None) -> np.ndarray:
    return np.full(4, np.nan) if fit is None else np.array([fit.exponent, fit.low, fit.high, fit.prefactor])
