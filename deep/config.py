"""What a run of the comparison is asked for. Everything that changes a number is here; devices and workers are not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from deep.estimators import ESTIMATORS
from projnorm.runs.configuration import configuration
from projnorm.vision import FAMILIES, NETWORKS, PAPER_FAMILIES, SEVERITIES
from projnorm.vision.weights import RANDOM

# The paper's six methods, which are the default; and later ones, which look at outputs of the evaluated network alone.
METHODS = ("Rotation", "ConfScore", "Entropy", "AgreeScore", "ATC", "ProjNorm")
LATER_METHODS = tuple(
    name for name, one in ESTIMATORS.items() if name not in METHODS and one.needs <= {"labels", "features", "torch"}
)
LARGEST_SEED = 2**32


@dataclass(frozen=True, slots=True)
class RunConfig:
    """What every comparison of predictors is asked for, whatever the network looks at.

    Attributes:
        data: What to train on.
        targets: More sets to predict the error on.
        n_train: Samples to fine-tune on; 0 for all that are left.
        n_validation: Labelled in-distribution samples held out of training.
        m: Samples of each target.
        epochs: Of fine-tuning.
        lr: Learning rate of fine-tuning, which falls to zero.
        batch: Of fine-tuning.
        steps: T, the steps of ProjNorm.
        projnorm_lr: Learning rate of ProjNorm, which falls to zero over its steps.
        projnorm_batch: Batch of ProjNorm.
        projnorm_samples: Samples of each target that ProjNorm trains on, and as many of its reference; 0 for all m.
            The error to predict, and the other methods, see all m.
        projnorm_layers: Layers that ProjNorm and its reference train, by the beginnings of their names; empty for all.
        reference: "trained" as the target's network is, or "fine-tuned" for the evaluated network itself.
        reference_samples: Training samples of a trained reference: "m", as many as of a target, or "all".
        labels: "pseudo", or "true" for the paper's ablation.
        trajectory: Steps after which the value is kept too.
        methods: Which predictors.
        precision: "float32", or "mixed" for bfloat16 products on CUDA.
        seed: Of everything drawn.
    """

    data: str = ""
    targets: tuple[str, ...] = ()
    n_train: int = 0
    n_validation: int = 100
    m: int = 500
    epochs: int = 20
    lr: float = 1e-3
    batch: int = 128
    steps: int = 1000
    projnorm_lr: float = 1e-3
    projnorm_batch: int = 128
    projnorm_samples: int = 0
    projnorm_layers: tuple[str, ...] = ()
    reference: str = "trained"
    reference_samples: str = "m"
    labels: str = "pseudo"
    trajectory: tuple[int, ...] = ()
    methods: tuple[str, ...] = METHODS
    precision: str = "float32"
    seed: int = 0

    # Values that a field must be one of, or that each of its values must be one of; numbers that are at least 1;
    # and fields that name things, each once. A subclass adds its own.
    CHOICES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "reference": ("trained", "fine-tuned"),
        "reference_samples": ("m", "all"),
        "labels": ("pseudo", "true"),
        "precision": ("float32", "mixed"),
    }
    MEMBERS: ClassVar[Mapping[str, tuple[object, ...]]] = {"methods": METHODS + LATER_METHODS}
    AT_LEAST_ONE: ClassVar[tuple[str, ...]] = ("n_validation", "m", "epochs", "batch", "steps", "projnorm_batch")
    DISTINCT: ClassVar[tuple[str, ...]] = ("targets", "methods", "trajectory")

    def __post_init__(self) -> None:
        """Refuse what no comparison can be made of."""
        for name, allowed in self.CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"`{name}` must be one of {', '.join(allowed)}; got {getattr(self, name)!r}.")
        for name in self.AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1; got {getattr(self, name)}.")
        for name in ("batch", "projnorm_batch"):
            if getattr(self, name) < 2:
                raise ValueError(f"`{name}` must be at least 2, for batch norm; got {getattr(self, name)}.")
        if self.n_train < 0:
            raise ValueError(f"`n_train` must be 0 for all, or a number of samples; got {self.n_train}.")
        if self.projnorm_samples and not 2 <= self.projnorm_samples <= self.m:
            raise ValueError(
                f"`projnorm_samples` must be 0 for all, or from 2 to m = {self.m:,}; got {self.projnorm_samples:,}."
            )
        for name in ("lr", "projnorm_lr"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise ValueError(f"`{name}` must be positive; got {getattr(self, name)}.")
        if not 0 <= self.seed < LARGEST_SEED:
            raise ValueError(f"`seed` must be at least 0 and below {LARGEST_SEED:,}; got {self.seed}.")
        for name in self.DISTINCT:
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"`{name}` must name each one once; got {', '.join(map(str, values))}.")
        for name, known in self.MEMBERS.items():
            for value in getattr(self, name):
                if value not in known:
                    raise ValueError(f"`{name}` must be of {', '.join(map(str, known))}; got {value!r}.")
        if not self.methods:
            raise ValueError(f"`methods` must name at least one of {', '.join(map(str, self.MEMBERS['methods']))}.")
        if any(not 1 <= step <= self.steps for step in self.trajectory):
            raise ValueError(f"`trajectory` must hold steps from 1 to {self.steps}; got {self.trajectory}.")

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """From what JSON makes of `dataclasses.asdict`.

        Raises:
            ValueError: If a field is unknown, or its value none that it can have.
        """
        if not isinstance(document, Mapping):
            raise ValueError(f"a configuration must have named fields; got a {type(document).__name__}.")
        return configuration(cls, document)


@dataclass(frozen=True, slots=True)
class DeepConfig(RunConfig):
    """One comparison of predictors on a network for images, which trains with SGD; what `RunConfig` has, and this.

    Attributes:
        data: "digits", "cifar10", "cifar100" (downloaded if asked), or a path: a CIFAR archive or folder, image folders
            or an NPZ file.
        targets: More sets of labelled images, as NPZ files or folders.
        corruptions: "generated", or the folder of the official CIFAR-C files.
        families: Corruptions of the test set.
        severities: Of each.
        architecture: Of the network.
        weights: "random", "imagenet" or a file.
        size: Pixels that the network sees.
        momentum: Of every training.
        projnorm_batch_norm: "batch" as in the paper; or "frozen", where ProjNorm and its reference train with the batch
            norm statistics of the initial weights, and the value has no noise from those of small batches.
        rotation: "frozen", a linear head on the fine-tuned network; or "joint", which is then the network evaluated.
        rotation_samples: Training images, each in four rotations, for a frozen head.
    """

    data: str = "digits"
    corruptions: str = "generated"
    families: tuple[str, ...] = PAPER_FAMILIES
    severities: tuple[int, ...] = SEVERITIES
    architecture: str = "resnet18"
    weights: str = RANDOM
    size: int = 32
    momentum: float = 0.9
    projnorm_batch_norm: str = "batch"
    rotation: str = "frozen"
    rotation_samples: int = 500

    CHOICES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **RunConfig.CHOICES,
        "architecture": tuple(NETWORKS),
        "projnorm_batch_norm": ("batch", "frozen"),
        "rotation": ("frozen", "joint"),
    }
    MEMBERS: ClassVar[Mapping[str, tuple[object, ...]]] = {
        **RunConfig.MEMBERS,
        "families": tuple(FAMILIES),
        "severities": SEVERITIES,
    }
    AT_LEAST_ONE: ClassVar[tuple[str, ...]] = (*RunConfig.AT_LEAST_ONE, "size", "rotation_samples")
    DISTINCT: ClassVar[tuple[str, ...]] = (*RunConfig.DISTINCT, "families", "severities")

    def __post_init__(self) -> None:
        """Refuse what no comparison can be made of."""
        RunConfig.__post_init__(self)  # not super(): a class with slots is made twice
        if not 0.0 <= self.momentum < 1.0:
            raise ValueError(f"`momentum` must be at least 0 and below 1; got {self.momentum}.")


# Three marks and a word of each sentence.
SHORTEST = 5
# What the output-only methods and ProjNorm need, every network has; pairs of sentences cannot be turned.
TEXT_METHODS = tuple(method for method in METHODS if method != "Rotation")


@dataclass(frozen=True, slots=True)
class TextConfig(RunConfig):
    """One comparison on a classifier of sentence pairs, trained with AdamW; what `RunConfig` has, and this.

    Attributes:
        data: A file of pairs, or "templates" for pairs made here.
        targets: Sets of pairs, each ``NAME=FILE``, or files joined by ``+``, or "templates-..."; without a name, the
            file's own.
        test: In-distribution pairs to predict on, given as a target is; empty for pairs of `data` that are left.
        subsets: Parts of every set that are targets too: by word "overlap", by "negation", by "category".
        model: "tiny", of random weights; the name of a checkpoint, a revision behind ``@``; or a folder.
        length: Tokens of a pair that the network sees.
    """

    data: str = "templates"
    epochs: int = 4
    lr: float = 2e-5
    batch: int = 32
    projnorm_lr: float = 2e-5
    projnorm_batch: int = 32
    methods: tuple[str, ...] = TEXT_METHODS
    test: str = ""
    subsets: tuple[str, ...] = ()
    model: str = "tiny"
    length: int = 128

    MEMBERS: ClassVar[Mapping[str, tuple[object, ...]]] = {
        "methods": TEXT_METHODS + LATER_METHODS,
        "subsets": ("overlap", "negation", "category"),
    }
    DISTINCT: ClassVar[tuple[str, ...]] = (*RunConfig.DISTINCT, "subsets")

    def __post_init__(self) -> None:
        """Refuse what no comparison can be made of."""
        RunConfig.__post_init__(self)
        if self.length < SHORTEST:
            raise ValueError(f"`length` must be at least {SHORTEST}, for a word of each sentence; got {self.length}.")
