"""The experiment on real images: a training set, a clean test set and shifts of it, kernels, analysis, one record."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ntk.analysis import Responses, TargetAnalysis, TrainAnalysis, analyse_target, analyse_train
from ntk.config import KernelConfig
from ntk.gram import Kernels, gram
from ntk.plan import TRAIN
from ntk.store import ChangedInputError
from projnorm.progress import tracked
from projnorm.runs import ONE_PROCESS, Backend, Record, find, new_record, record_id, save, sole_writer
from projnorm.vision import PROBE_FAMILIES, ImageNetInput, ImageSet, LoadedNetwork, load_network, load_splits
from projnorm.vision.targets import Shifts, Target, draw_indices, generated_targets, given_targets, require_distinct
from projnorm.vision.weights import RANDOM
from projnorm_theory import PowerLawFit

# Fields that do not change the kernel.
_AFTER_THE_KERNEL = ("ridge", "top")
_LARGEST_SEED = 2**32
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
    "overlap": "overlap c with nothing assumed shared",
    "test_loss": "squared error of the interpolating kernel regression, summed over classes",
    "proposition": "the paper's interval at k = 0, (lower, upper)",
    "generalised": "our interval at k = 0 with the measured rho",
    "sharp": "the sharp interval with the measured rho; nan where kernels are too coarse",
    "projnorm": "ProjNormLinear",
    "projnorm_error": "how far its square may be off through rounding",
    "theta_norm": "norm of the fitted weights",
    "error": "share of wrong labels of the kernel regression",
}


@dataclass(frozen=True, slots=True)
class NtkConfig:
    """One experiment.

    Attributes:
        data: "digits", a CIFAR folder or an NPZ file.
        targets: NPZ files with `images` and `labels`, besides the shifts of the test set.
        n: Training images.
        m: Images of each target.
        families: Shifts of the test set.
        severities: Of each.
        architecture: Of the network.
        weights: "random", "imagenet" or a file.
        size: Pixels that the network sees.
        heads: Last layers drawn, over which the kernel is averaged.
        layers: Gradients by the parameters of these modules only; by all where there is none.
        ridge: Added to the kernels for ProjNormLinear and the predicted labels.
        top: Eigenvectors in the alignment.
        seed: Of images, shifts, last layers and coordinates.
        kind: "exact", "coordinates" or "projection".
        count: Coordinates, or the width of the projection.
        accumulate: Precision of the products.
    """

    data: str = "digits"
    targets: tuple[str, ...] = ()
    n: int = 250
    m: int = 250
    families: tuple[str, ...] = PROBE_FAMILIES
    severities: tuple[int, ...] = (1, 2, 3, 4, 5)
    architecture: str = "resnet18"
    weights: str = RANDOM
    size: int = 32
    heads: int = 1
    layers: tuple[str, ...] = ()
    ridge: float = 0.0
    top: int = 300
    seed: int = 0
    kind: str = "exact"
    count: int = 500_000
    accumulate: str = "float32"

    def __post_init__(self) -> None:
        """Refuse what no experiment can be made of."""
        for name in ("n", "m", "size", "heads", "top"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1; got {getattr(self, name)}.")
        if not self.ridge >= 0:
            raise ValueError(f"`ridge` must not be negative; got {self.ridge}.")
        if not 0 <= self.seed < _LARGEST_SEED:
            raise ValueError(f"`seed` must be at least 0 and below {_LARGEST_SEED:,}; got {self.seed}.")
        for name in ("families", "severities", "targets", "layers"):
            if len(set(getattr(self, name))) < len(getattr(self, name)):
                raise ValueError(f"`{name}` must name each one once; got {', '.join(map(str, getattr(self, name)))}.")

    def kernel(self, **limits: Any) -> KernelConfig:
        """The kernel asked for; `limits` are what does not change its numbers."""
        return KernelConfig(
            kind=self.kind,
            count=self.count,
            seed=self.seed,
            layers=self.layers or None,
            accumulate=self.accumulate,
            **limits,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Experiment:
    """Everything an experiment works on.

    Attributes:
        config: What was asked.
        networks: One per head.
        train: Training images.
        targets: The sets to predict on.
        classes: Number of classes.
    """

    config: NtkConfig
    networks: tuple[LoadedNetwork, ...]
    train: ImageSet
    targets: tuple[Target, ...]
    classes: int

    @classmethod
    def of(cls, config: NtkConfig) -> Experiment:
        """Load images and networks.

        Raises:
            ValueError: If something asked for is not there or does not fit.
            OSError: If a file cannot be read.
        """
        splits = load_splits(config.data)
        rng = np.random.default_rng(config.seed)
        train = splits.train.take(draw_indices(splits.train, config.n, rng, "n"))
        targets = generated_targets(
            splits.test,
            draw_indices(splits.test, config.m, rng, "m"),
            Shifts(config.families, config.severities),
            seed=config.seed,
        )
        targets += given_targets(config.targets, config.m, rng)
        require_distinct(targets, taken=(TRAIN,))
        if len(set(train.labels.tolist())) < 2:
            raise ValueError(
                f"the {config.n} training images drawn are all of one class; nothing can be learnt from them."
            )
        classes = 1 + int(max(train.labels.max(), *(target.images.labels.max() for target in targets)))
        networks = tuple(
            load_network(config.architecture, config.weights, num_outputs=1, seed=config.seed + head, drop_head=True)
            for head in range(config.heads)
        )
        return cls(config, networks, train, tuple(targets), classes)

    def kernel_config(self, **limits: Any) -> KernelConfig:
        """The kernel asked for; `limits` are what does not change its numbers."""
        return self.config.kernel(**limits)

    @property
    def prepare(self) -> ImageNetInput:
        """What the networks see of the images."""
        return ImageNetInput(self.config.size)

    def kernels(
        self,
        kernel: KernelConfig,
        *,
        folder: Path | None = None,
        fresh: bool = False,
        backend: Backend | None = None,
    ) -> Kernels:
        """The kernels, from the tiles in `folder` where they are there."""
        return gram(
            [network.model for network in self.networks],
            self.train.images,
            self._images,
            config=kernel,
            prepare=self.prepare,
            folder=folder,
            fresh=fresh,
            backend=backend,
        )

    @property
    def _images(self) -> dict[str, np.ndarray]:
        return {target.name: target.images.images for target in self.targets}


def run_kernels(
    config: NtkConfig, *, root: Path, backend: Backend = ONE_PROCESS, fresh: bool = False, **limits: Any
) -> tuple[Experiment, Kernels, Record]:
    """The kernels of an experiment, tile by tile in a folder under `root`, and a record of how they came about.

    Raises:
        ValueError: If something asked for is not there or does not fit, or the tiles there are of other inputs.
        OSError: If something cannot be read or written.
    """
    with sole_writer(_kernel_folder(config, root)):
        return _kernels(config, root, backend, fresh, limits)


def _kernels(
    config: NtkConfig, root: Path, backend: Backend, fresh: bool, limits: Mapping[str, Any]
) -> tuple[Experiment, Kernels, Record]:
    asked, folder = _asked_of_kernel(config), _kernel_folder(config, root)
    experiment = Experiment.of(config)
    start = time.perf_counter()
    kernels = experiment.kernels(
        experiment.kernel_config(**limits), folder=folder / "tiles", fresh=fresh, backend=backend
    )
    record = None if fresh or kernels.computed else find(root, "ntk-gram", asked)
    if record is None or record.facts["fingerprints"] != kernels.fingerprints:
        diagonals = [kernels.train.diagonal(), *(kernels.ood(name).diagonal() for name in kernels.targets)]
        record = new_record(
            "ntk-gram",
            asked,
            {"sets": np.array([TRAIN, *kernels.targets]), "trace": np.array([d.sum() for d in diagonals])},
            {"sets": "names of the sets of images", "trace": "sum of the diagonal of each set's kernel"},
            time.perf_counter() - start,
            facts(experiment, kernels),
        )
        save(record, root)
    return experiment, kernels, record


def run_analysis(
    config: NtkConfig, *, root: Path, backend: Backend = ONE_PROCESS, fresh: bool = False, **limits: Any
) -> Record:
    """The whole experiment: kernels first, then every target.

    Raises:
        ValueError: If something asked for is not there or does not fit, or the tiles there are of other inputs.
        OSError: If something cannot be read or written.
    """
    with sole_writer(_kernel_folder(config, root)):  # while tiles are read, nobody begins afresh
        return _analysed(config, root, backend, fresh, limits)


def _analysed(config: NtkConfig, root: Path, backend: Backend, fresh: bool, limits: Mapping[str, Any]) -> Record:
    experiment, kernels, _ = run_kernels(config, root=root, backend=backend, fresh=fresh, **limits)
    found = None if fresh or kernels.computed else find(root, "ntk", asdict(config))
    labels = _labels_hash(experiment)
    if found is not None:
        known = found.facts["fingerprints"], found.facts["labels_sha256"]
        if known != (kernels.fingerprints, labels):
            raise ChangedInputError(
                f"{root / found.id} was computed with other images, weights or labels; pass --fresh to compute it "
                "again, or use another folder."
            )
        return found
    start = time.perf_counter()
    train, targets = analyse(experiment, kernels)
    warnings = [f"{TRAIN}: {train.warning}"] if train.warning else []
    warnings += [f"{name}: {warning}" for name, target in targets.items() for warning in target.warnings]
    record = new_record(
        "ntk",
        asdict(config),
        analysis_arrays(experiment, train, targets),
        MEANINGS,
        time.perf_counter() - start,
        {**facts(experiment, kernels), "labels_sha256": labels, "warnings": warnings},
    )
    save(record, root)
    return record


def _asked_of_kernel(config: NtkConfig) -> dict[str, Any]:
    return {key: value for key, value in asdict(config).items() if key not in _AFTER_THE_KERNEL}


def _kernel_folder(config: NtkConfig, root: Path) -> Path:
    return root / record_id("ntk-gram", _asked_of_kernel(config))


def analyse(experiment: Experiment, kernels: Kernels) -> tuple[TrainAnalysis, dict[str, TargetAnalysis]]:
    """Every target of an experiment, one after the other."""
    config = experiment.config
    responses = Responses.of(experiment.train.labels, experiment.classes)
    train = analyse_train(kernels.train, accumulate=config.accumulate)
    targets = {}
    for target in tracked(experiment.targets, description="analysis", total=len(experiment.targets)):
        targets[target.name] = analyse_target(
            train,
            kernels.ood_train(target.name),
            kernels.ood(target.name),
            responses,
            target.images.labels,
            accumulate=config.accumulate,
            ridge=config.ridge,
            top=config.top,
        )
    return train, targets


def facts(experiment: Experiment, kernels: Kernels) -> dict[str, Any]:
    """What a reader of the record needs to know besides the configuration."""
    network, plan = experiment.networks[0], kernels.plan
    return {
        "weights": "random: the network was never trained" if network.is_random else network.weights,
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
    nowhere = (np.nan, np.nan)
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
        "rho": np.array([t.rho for t in targets]),
        "overlap": np.array([t.overlap for t in targets]),
        "test_loss": np.array([t.test_loss for t in targets]),
        "proposition": np.array([(t.proposition.lower, t.proposition.upper) for t in targets]),
        "generalised": np.array([(t.generalised.lower, t.generalised.upper) for t in targets]),
        "sharp": np.array([nowhere if t.sharp is None else (t.sharp.lower, t.sharp.upper) for t in targets]),
        "projnorm": np.array([t.prediction.projnorm for t in targets]),
        "projnorm_error": np.array([t.prediction.projnorm_error for t in targets]),
        "theta_norm": np.array([t.prediction.theta_norm for t in targets]),
        "error": np.array([t.prediction.error for t in targets]),
    }


def _padded(array: np.ndarray, size: int) -> np.ndarray:
    return np.pad(array, [(0, size - length) for length in array.shape], constant_values=np.nan)


def _labels_hash(experiment: Experiment) -> str:
    digest = hashlib.sha256()
    for images in (experiment.train, *(target.images for target in experiment.targets)):
        digest.update(images.labels.astype("<i8").tobytes())
    return digest.hexdigest()


def _line(fit: PowerLawFit | None) -> np.ndarray:
    return np.full(4, np.nan) if fit is None else np.array([fit.exponent, fit.low, fit.high, fit.prefactor])
