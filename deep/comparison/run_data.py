"""The data of a run, whether images or text: what is trained on, what is held out, and the targets."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deep.comparison.config import PROJNORM_METHODS
from projnorm.core.errors import InputError

if TYPE_CHECKING:
    from projnorm.data.encoding import EncodedPairs
    from projnorm.data.images import ImageSet

# Inputs of a network with their labels; both kinds have a name, a hash, `inputs`, `labels` and `take`.
Samples: TypeAlias = "ImageSet | EncodedPairs"


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A set to predict the error on; targets of one family are alike.

    The severity is 1 to 5, or 0 where there is no shift, and the origin as in `deep.comparison.scores.Row`. `merge` has
    the label that each predicted class counts as; it is empty where the classes are the labels.
    """

    name: str
    family: str
    severity: int
    origin: str
    samples: Samples
    merge: tuple[int, ...] = ()

    def error(self, predicted: NDArray[np.int64]) -> float:
        """Share of labels predicted wrongly."""
        counted = np.array(self.merge)[predicted] if self.merge else predicted
        return float(np.mean(counted != self.samples.labels))


@dataclass(frozen=True, slots=True, eq=False)
class RunData:
    """All samples that a run uses.

    `train` is in an order drawn once; no training sees `validation`, which has the same distribution. `facts` are what
    a reader of the record needs to know of the data.
    """

    train: Samples
    validation: Samples
    targets: tuple[Target, ...]
    classes: int
    facts: dict[str, object]

    @property
    def sha256(self) -> str:
        """SHA-256 of every input and label, and of what predictions count as: other samples are another run."""
        sets = (self.train, self.validation, *(target.samples for target in self.targets))
        merged = [f"{target.name} {target.merge}" for target in self.targets if target.merge]
        return hashlib.sha256("".join([*(samples.sha256 for samples in sets), *merged]).encode()).hexdigest()


def split_order(
    available: int, n: int, n_validation: int, rng: np.random.Generator, name: str
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Indices of validation, of training, and what is left: three parts of one drawn order.

    A smaller run uses the first samples of a larger one. With n = 0, all that validation leaves are trained on; `name`
    is that of the samples in an error message.
    """
    order = rng.permutation(available)
    left = available - n_validation
    wanted = n or left
    if not 2 <= wanted <= left:
        raise InputError(
            f"`n` and `n_validation` must leave 2 samples or more of the {available:,} of {name} to train on; "
            f"got n = {n:,} and n_validation = {n_validation:,}."
        )
    return order[:n_validation], order[n_validation : n_validation + wanted], order[n_validation + wanted :]


def require_trainable(train: Samples, targets: tuple[Target, ...], methods: tuple[str, ...]) -> None:
    """Refuse training samples of one class, and targets too small for ProjNorm."""
    if len(np.unique(train.labels)) < 2:
        raise InputError(f"the {len(train)} training samples are all of one class; nothing can be learnt from them.")
    smallest = min(targets, key=lambda target: len(target.samples))
    if set(PROJNORM_METHODS) & set(methods) and len(smallest.samples) < 2:
        raise InputError(f"ProjNorm trains on every target and needs 2 samples of each; {smallest.name} has 1.")
