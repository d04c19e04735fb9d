"""The data of a run, whether images or text: what is trained on, what is held out, and the targets."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deep.comparison.config import PROJNORM_METHODS
from projnorm.core.errors import InputError
from projnorm.data.encoding import EncodedPairs
from projnorm.data.images import ImageSet
from projnorm.data.targets import Target

# Inputs of a network with their labels.
Samples: TypeAlias = ImageSet | EncodedPairs


@dataclass(frozen=True, slots=True, eq=False)
class RunData:
    """All samples that a run uses.

    `train` is in an order drawn once; no training sees `validation`, which has the same distribution. `facts` are what
    a reader of the record needs to know of the data.
    """

    train: Samples
    validation: Samples
    targets: tuple[Target[Samples], ...]
    classes: int
    facts: dict[str, object]

    @property
    def sha256(self) -> str:
        """SHA-256 of all inputs and labels, and of merged classes; a run is of these samples alone."""
        sets = (self.train, self.validation, *(target.samples for target in self.targets))
        merged = [f"{target.name} {target.merge}" for target in self.targets if target.merge]
        return hashlib.sha256("".join([*(samples.sha256 for samples in sets), *merged]).encode()).hexdigest()


class SplitIndices(NamedTuple):
    """Indices of samples in three disjoint parts.

    Attributes:
        validation: Indices of the samples that are held out.
        training: Indices of the samples to train on.
        rest: Indices of the samples that are in neither.
    """

    validation: NDArray[np.intp]
    training: NDArray[np.intp]
    rest: NDArray[np.intp]


def split_order(available: int, n: int, n_validation: int, rng: np.random.Generator, name: str) -> SplitIndices:
    """Draw an order of the samples, and split it. A smaller run uses the first samples of a larger one.

    Args:
        available: Number of samples.
        n: Number of samples to train on; with 0, all that are not held out.
        n_validation: Number of samples to hold out.
        rng: Source of the order.
        name: Name of the samples in error messages.

    Raises:
        InputError: If fewer than two samples are left to train on, or fewer than `n`.
    """
    order = rng.permutation(available)
    left = available - n_validation
    n_train = n or left
    if not 2 <= n_train <= left:
        raise InputError(
            f"`n` and `n_validation` must leave 2 samples or more of the {available:,} of {name} to train on; "
            f"got n = {n:,} and n_validation = {n_validation:,}."
        )
    training, rest = order[n_validation : n_validation + n_train], order[n_validation + n_train :]
    return SplitIndices(order[:n_validation], training, rest)


def require_trainable(train: Samples, targets: tuple[Target[Samples], ...], methods: tuple[str, ...]) -> None:
    """Refuse training samples of one class, and targets too small for ProjNorm."""
    if len(np.unique(train.labels)) < 2:
        raise InputError(f"the {len(train)} training samples are all of one class; nothing can be learnt from them.")
    smallest = min(targets, key=lambda target: len(target.samples))
    if set(PROJNORM_METHODS) & set(methods) and len(smallest.samples) < 2:
        raise InputError(f"ProjNorm trains on every target and needs 2 samples of each; {smallest.name} has 1.")
