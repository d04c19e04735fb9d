"""What a run of the comparison is asked for. Everything that changes a number is here; devices and workers are not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from projnorm.vision import FAMILIES, NETWORKS, PAPER_FAMILIES, SEVERITIES
from projnorm.vision.weights import RANDOM

METHODS = ("Rotation", "ConfScore", "Entropy", "AgreeScore", "ATC", "ProjNorm")
LARGEST_SEED = 2**32
_CHOICES = {
    "architecture": tuple(NETWORKS),
    "projnorm_batch_norm": ("batch", "frozen"),
    "reference": ("trained", "fine-tuned"),
    "reference_samples": ("m", "all"),
    "labels": ("pseudo", "true"),
    "rotation": ("frozen", "joint"),
    "precision": ("float32", "mixed"),
}
_AT_LEAST_ONE = ("n_validation", "m", "size", "epochs", "batch", "steps", "projnorm_batch", "rotation_samples")


@dataclass(frozen=True, slots=True)
class DeepConfig:
    """One comparison of predictors on one network.

    Attributes:
        data: "digits", "cifar10", "cifar100" (downloaded if asked), or a path: a CIFAR archive or folder, image folders
            or an NPZ file.
        corruptions: "generated", or the folder of the official CIFAR-C files.
        targets: More sets of labelled images, as NPZ files or folders.
        families: Corruptions of the test set.
        severities: Of each.
        n_train: Images to fine-tune on; 0 for all that validation leaves.
        n_validation: Labelled in-distribution images held out of training.
        m: Images of each target.
        architecture: Of the network.
        weights: "random", "imagenet" or a file.
        size: Pixels that the network sees.
        epochs: Of fine-tuning.
        lr: Learning rate of fine-tuning, with cosine decay to zero.
        momentum: Of every training.
        batch: Of fine-tuning.
        steps: T, the steps of ProjNorm.
        projnorm_lr: Learning rate of ProjNorm, with cosine decay to zero over its steps.
        projnorm_batch: Batch of ProjNorm.
        projnorm_batch_norm: "batch" as in the paper; or "frozen", where ProjNorm and its reference train with the batch
            norm statistics of the initial weights, and the value has no noise from those of small batches.
        projnorm_samples: Images of each target that ProjNorm trains on, and as many of its reference; 0 for all m.
            The error to predict, and the other methods, see all m.
        reference: "trained" as the target's network is, or "fine-tuned" for the evaluated network itself.
        reference_samples: Training images of a trained reference: "m", as many as of a target, or "all".
        labels: "pseudo", or "true" for the paper's ablation.
        trajectory: Steps after which the value is kept too.
        methods: Which predictors.
        rotation: "frozen", a linear head on the fine-tuned network; or "joint", which is then the network evaluated.
        rotation_samples: Training images, each in four rotations, for a frozen head.
        precision: "float32", or "mixed" for bfloat16 products on CUDA.
        seed: Of images, heads, batches and corruptions.
    """

    data: str = "digits"
    corruptions: str = "generated"
    targets: tuple[str, ...] = ()
    families: tuple[str, ...] = PAPER_FAMILIES
    severities: tuple[int, ...] = SEVERITIES
    n_train: int = 0
    n_validation: int = 100
    m: int = 500
    architecture: str = "resnet18"
    weights: str = RANDOM
    size: int = 32
    epochs: int = 20
    lr: float = 1e-3
    momentum: float = 0.9
    batch: int = 128
    steps: int = 1000
    projnorm_lr: float = 1e-3
    projnorm_batch: int = 128
    projnorm_batch_norm: str = "batch"
    projnorm_samples: int = 0
    reference: str = "trained"
    reference_samples: str = "m"
    labels: str = "pseudo"
    trajectory: tuple[int, ...] = ()
    methods: tuple[str, ...] = METHODS
    rotation: str = "frozen"
    rotation_samples: int = 500
    precision: str = "float32"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what no comparison can be made of."""
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"`{name}` must be one of {', '.join(allowed)}; got {getattr(self, name)!r}.")
        for name in _AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1; got {getattr(self, name)}.")
        for name in ("batch", "projnorm_batch"):
            if getattr(self, name) < 2:
                raise ValueError(f"`{name}` must be at least 2, for batch norm; got {getattr(self, name)}.")
        if self.n_train < 0:
            raise ValueError(f"`n_train` must be 0 for all, or a number of images; got {self.n_train}.")
        if self.projnorm_samples and not 2 <= self.projnorm_samples <= self.m:
            raise ValueError(
                f"`projnorm_samples` must be 0 for all, or from 2 to m = {self.m:,}; got {self.projnorm_samples:,}."
            )
        for name in ("lr", "projnorm_lr"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise ValueError(f"`{name}` must be positive; got {getattr(self, name)}.")
        if not 0.0 <= self.momentum < 1.0:
            raise ValueError(f"`momentum` must be at least 0 and below 1; got {self.momentum}.")
        if not 0 <= self.seed < LARGEST_SEED:
            raise ValueError(f"`seed` must be at least 0 and below {LARGEST_SEED:,}; got {self.seed}.")
        for name in ("families", "severities", "targets", "methods", "trajectory"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"`{name}` must name each one once; got {', '.join(map(str, values))}.")
        members: dict[str, tuple[object, ...]] = {
            "families": tuple(FAMILIES),
            "methods": METHODS,
            "severities": SEVERITIES,
        }
        for name, known in members.items():
            for value in getattr(self, name):
                if value not in known:
                    raise ValueError(f"`{name}` must be of {', '.join(map(str, known))}; got {value!r}.")
        if not self.methods:
            raise ValueError(f"`methods` must name at least one of {', '.join(METHODS)}.")
        if any(not 1 <= step <= self.steps for step in self.trajectory):
            raise ValueError(f"`trajectory` must hold steps from 1 to {self.steps}; got {self.trajectory}.")

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> DeepConfig:
        """From what JSON makes of `dataclasses.asdict`.

        Raises:
            ValueError: If a value is none.
            TypeError: If a field is missing or unknown.
        """
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in document.items()}
        return cls(**values)
