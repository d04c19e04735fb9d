"""Inputs of a network, with their labels where these are known."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from projnorm.core.arrays import form
from projnorm.core.errors import InputError

Labels = NDArray[np.int64]

_MOST_CLASSES = 65_536


@dataclass(frozen=True, slots=True, eq=False)
class SampleSet:
    """Samples of any shape.

    >>> samples = SampleSet("measurements", np.arange(8.0).reshape(4, 2), known_labels=np.array([0, 1, 1, 0]))
    >>> samples.take(np.array([1, 2])).labels
    array([1, 1])

    Attributes:
        name: File, folder or data set that the samples come from.
        inputs: Numbers, one sample per row.
        known_labels: Classes, counted from 0, shape ``(n,)``; None where they are not known.
        class_names: Names of the classes; empty if the source does not name them.
    """

    name: str
    inputs: NDArray[Any]
    known_labels: Labels | None = None
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check types, shapes and the range of the labels."""
        self._check_inputs()
        labels, count = self.known_labels, len(self.inputs)
        if labels is None:
            return
        if labels.shape != (count,) or not np.issubdtype(labels.dtype, np.integer):
            raise InputError(f"{self.name}: labels must be {count} integers; got {form(labels)}.")
        if not 0 <= labels.min() <= labels.max() < _MOST_CLASSES:
            raise InputError(
                f"{self.name}: labels must be classes from 0 to {_MOST_CLASSES - 1:,}; they run from {labels.min()} to "
                f"{labels.max()}."
            )

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def labels(self) -> Labels:
        """The labels; an `InputError` if there are none."""
        if self.known_labels is None:
            raise InputError(f"{self.name}: has no labels, which are needed here.")
        return self.known_labels

    def with_labels(self) -> Self:
        """The samples, which must have labels."""
        return replace(self, known_labels=self.labels)

    @property
    def sha256(self) -> str:
        """Hash of the shape, the inputs and the labels."""
        digest = hashlib.sha256(str(self.inputs.shape).encode())
        digest.update(np.ascontiguousarray(self.inputs).data)
        if self.known_labels is not None:
            digest.update(self.known_labels.astype("<i8").tobytes())
        return digest.hexdigest()

    def take(self, indices: NDArray[np.intp]) -> Self:
        """The samples with these indices."""
        labels = None if self.known_labels is None else self.known_labels[indices]
        return replace(self, inputs=self.inputs[indices], known_labels=labels)

    def of_classes(self, classes: int, names: tuple[str, ...]) -> Self:
        """The samples with their classes numbered as in training.

        Args:
            classes: Number of training classes; a label must be below it.
            names: Names of the training classes; where the samples have names too, these decide.
        """
        if self.known_labels is None:
            return self
        if names and self.class_names:
            if unknown := sorted(set(self.class_names) - set(names)):
                raise InputError(f"{self.name}: has the class {unknown[0]!r}, which the training samples lack.")
            numbers = np.array([names.index(name) for name in self.class_names])
            return replace(self, known_labels=numbers[self.known_labels], class_names=names)
        if self.known_labels.max() >= classes:
            largest = self.known_labels.max()
            raise InputError(f"{self.name}: has class {largest}; the training samples have 0 to {classes - 1}.")
        return self

    def _check_inputs(self) -> None:
        if self.inputs.ndim < 2 or not self.inputs.size or self.inputs.dtype.kind not in "fiub":
            raise InputError(f"{self.name}: inputs must be numbers, one sample per row; got {form(self.inputs)}.")
        if self.inputs.dtype.kind == "f" and not np.isfinite(self.inputs).all():
            raise InputError(f"{self.name}: inputs must be finite.")
