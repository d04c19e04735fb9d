"""Sets of samples with what a model says of them: checked once, then trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep.estimators.evidence import Evidence
from deep.outputs import Outputs
from projnorm.files import read_file
from projnorm.runs import from_npy, from_npz

# Keys of a file of outputs.
LOGITS, PROBABILITIES, FEATURES, LABELS, CLASSES, OTHERS = (
    "logits",
    "probabilities",
    "features",
    "labels",
    "classes",
    "other_logits",
)
# Smaller probabilities have no finite logarithm in float32.
_SMALLEST = 1e-30


@dataclass(frozen=True, slots=True, eq=False)
class OutputSet:
    """What a model says of a set of samples, and their labels where they are known.

    Attributes:
        name: What it is called.
        outputs: Of the model.
        labels: Columns of the logits, shape ``(n,)``; None for a set without labels.
        inputs: What the model saw, where a method trains on it; else None.
    """

    name: str
    outputs: Outputs
    labels: NDArray[np.int64] | None = None
    inputs: NDArray[np.generic] | None = None

    def __post_init__(self) -> None:
        """Refuse what no error can be estimated from."""
        logits, features = self.outputs.logits, self.outputs.features
        _require_logits(logits, f"{self.name}: `{LOGITS}`")
        if features.ndim != 2 or len(features) != len(logits):
            raise ValueError(
                f"{self.name}: `{FEATURES}` must have one row for each of the {len(logits):,} samples; got shape "
                f"{features.shape}."
            )
        _require_finite(features, f"{self.name}: `{FEATURES}`")
        for other in self.outputs.others:
            if other.shape != logits.shape:
                raise ValueError(
                    f"{self.name}: `{OTHERS}` must have the shape {logits.shape} for each model; got {other.shape}."
                )
            _require_finite(other, f"{self.name}: `{OTHERS}`")
        if self.labels is not None:
            _require_labels(self.labels, logits.shape, self.name)

    def __len__(self) -> int:
        return len(self.outputs.logits)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return int(self.outputs.logits.shape[1])

    @property
    def error(self) -> float:
        """Share of labels that the model gets wrong.

        Raises:
            ValueError: If there are no labels.
        """
        return self.outputs.error(self.known_labels)

    @property
    def known_labels(self) -> NDArray[np.int64]:
        """The labels.

        Raises:
            ValueError: If there are none.
        """
        if self.labels is None:
            raise ValueError(f"{self.name}: has no `{LABELS}`, which this needs.")
        return self.labels

    def evidence(self) -> Evidence:
        """As a predictor sees it: without labels."""
        empty: NDArray[np.generic] = np.empty((len(self), 0), dtype=np.float32)
        return Evidence(empty if self.inputs is None else self.inputs, self.outputs)

    def take(self, indices: NDArray[np.integer]) -> OutputSet:
        """The samples with these indices."""
        labels = None if self.labels is None else self.labels[indices]
        inputs = None if self.inputs is None else self.inputs[indices]
        return OutputSet(self.name, self.outputs.take(indices), labels, inputs)


def output_set(
    name: str,
    logits: NDArray[Any],
    *,
    features: NDArray[Any] | None = None,
    labels: NDArray[Any] | None = None,
    others: tuple[NDArray[Any], ...] = (),
    classes: NDArray[Any] | None = None,
) -> OutputSet:
    """A set from plain arrays.

    Args:
        name: What it is called.
        logits: Shape ``(n, classes)``.
        features: Inputs of the last layer, shape ``(n, width)``.
        labels: Columns of `logits`; or, with `classes`, their names.
        others: Logits of other models on the same samples.
        classes: Name of each column, if `labels` holds names or numbers of other kinds.

    Raises:
        ValueError: If they do not fit, or something in them is not finite.
    """
    _require_logits(np.asarray(logits), f"{name}: `{LOGITS}`")
    width = np.empty((len(logits), 0), dtype=np.float32) if features is None else _numbers(features, FEATURES, name)
    others = tuple(_numbers(other, OTHERS, name) for other in others)
    found = None if labels is None else _columns(np.asarray(labels), classes, int(np.shape(logits)[1]), name)
    return OutputSet(name, Outputs(_numbers(logits, LOGITS, name), width, others), found)


def read_outputs(path: Path, *, labelled: bool = True) -> OutputSet:
    """The outputs in a file: ``.npz`` with `logits` or `probabilities` and more, or ``.npy`` with logits alone.

    Args:
        path: Of the file.
        labelled: Whether its labels are wanted; those of a target are never looked at.

    Raises:
        ValueError: If it is no such file.
        OSError: If it cannot be read.
    """
    data = read_file(path)
    try:
        arrays = {LOGITS: from_npy(data)} if path.suffix == ".npy" else from_npz(data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}.") from None
    return outputs_from(arrays, str(path), labelled=labelled)


def outputs_from(arrays: Mapping[str, Any], name: str, *, labelled: bool = True) -> OutputSet:
    """The outputs in named arrays, as a file holds them.

    Raises:
        ValueError: If they do not fit, or something in them is not finite.
    """
    if (LOGITS in arrays) == (PROBABILITIES in arrays):
        raise ValueError(
            f"{name}: needs one of the arrays `{LOGITS}` and `{PROBABILITIES}`, of shape (samples, classes); it has "
            f"{', '.join(sorted(arrays)) or 'none'}."
        )
    logits = arrays[LOGITS] if LOGITS in arrays else log_probabilities(arrays[PROBABILITIES], name)
    others = np.asarray(arrays.get(OTHERS, np.empty((0, 0, 0))))
    if others.ndim == 2:
        others = others[None]
    if others.ndim != 3:
        raise ValueError(f"{name}: `{OTHERS}` must have shape (models, samples, classes); got {others.shape}.")
    return output_set(
        name,
        logits,
        features=arrays.get(FEATURES),
        labels=arrays.get(LABELS) if labelled else None,
        others=tuple(others),
        classes=arrays.get(CLASSES),
    )


def log_probabilities(probabilities: NDArray[Any], name: str) -> NDArray[np.float64]:
    """Logits that give these probabilities.

    Raises:
        ValueError: If they are none.
    """
    rows = _numbers(np.asarray(probabilities), PROBABILITIES, name).astype(np.float64)
    _require_logits(rows, f"{name}: `{PROBABILITIES}`")
    if rows.min() < 0.0 or not np.allclose(rows.sum(axis=1), 1.0, atol=1e-3):
        raise ValueError(f"{name}: `{PROBABILITIES}` must be at least 0 and add up to 1 in every row.")
    return np.log(np.maximum(rows, _SMALLEST))


def require_alike(one: OutputSet, other: OutputSet) -> None:
    """Refuse two sets that cannot come from the same model.

    Raises:
        ValueError: If they differ in classes, width of the features, or number of other models.
    """
    for what, a, b in (
        ("classes", one.classes, other.classes),
        ("features a sample", one.outputs.features.shape[1], other.outputs.features.shape[1]),
        ("other models", len(one.outputs.others), len(other.outputs.others)),
    ):
        if a != b:
            raise ValueError(f"{one.name} has {a:,} {what} and {other.name} {b:,}; they must come from one model.")


def _columns(labels: NDArray[Any], classes: NDArray[Any] | None, count: int, name: str) -> NDArray[np.int64]:
    """Labels as columns of the logits."""
    labels = labels.reshape(-1)
    if classes is None:
        if labels.dtype.kind in "fc" and np.isfinite(labels).all() and (labels == np.round(labels.real)).all():
            labels = labels.real.astype(np.int64)
        if labels.dtype.kind not in "iub":
            shown = ", ".join(map(repr, np.unique(labels)[:3].tolist()))
            raise ValueError(
                f"{name}: `{LABELS}` must be whole numbers from 0 to {count - 1}, the columns of `{LOGITS}`; got "
                f"{labels.dtype} such as {shown}. Add an array `{CLASSES}` that names the columns in order."
            )
        return labels.astype(np.int64)
    names = [_spoken(entry) for entry in np.asarray(classes).reshape(-1).tolist()]
    if len(names) != count or len(set(names)) < count:
        raise ValueError(f"{name}: `{CLASSES}` must name each of the {count} columns once; got {len(names)} names.")
    number = {entry: column for column, entry in enumerate(names)}
    spoken = [_spoken(label) for label in labels.tolist()]
    if unknown := sorted(set(spoken) - set(number)):
        raise ValueError(f"{name}: the label {unknown[0]!r} is not among `{CLASSES}` ({', '.join(names[:5])}, ...).")
    return np.array([number[label] for label in spoken], dtype=np.int64)


def _spoken(label: object) -> str:
    """A label as text; 1 and 1.0 are one."""
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def _numbers(array: NDArray[Any], what: str, name: str) -> NDArray[np.floating]:
    array = np.asarray(array)
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{name}: `{what}` must be numbers; got {array.dtype}.")
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)


def _require_logits(logits: NDArray[Any], what: str) -> None:
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise ValueError(f"{what} must have shape (samples, classes) with two classes or more; got {logits.shape}.")
    if not len(logits):
        raise ValueError(f"{what} holds no sample.")
    if logits.dtype.kind not in "fiu":
        raise ValueError(f"{what} must be numbers; got {logits.dtype}.")
    _require_finite(logits, what)


def _require_finite(array: NDArray[Any], what: str) -> None:
    if not (finite := np.isfinite(array)).all():
        rows = np.flatnonzero(~finite.reshape(len(array), -1).all(axis=1))
        raise ValueError(f"{what} must be finite; {len(rows):,} rows are not, the first is row {rows[0]:,}.")


def _require_labels(labels: NDArray[np.int64], shape: tuple[int, ...], name: str) -> None:
    if labels.shape != (shape[0],):
        raise ValueError(f"{name}: `{LABELS}` must hold one for each of the {shape[0]:,} samples; got {labels.shape}.")
    if labels.min() < 0 or labels.max() >= shape[1]:
        wrong = labels[(labels < 0) | (labels >= shape[1])][0]
        raise ValueError(
            f"{name}: `{LABELS}` must be columns of `{LOGITS}`, 0 to {shape[1] - 1}; got {wrong}. If they are numbered "
            f"otherwise, add an array `{CLASSES}` with the label of each column."
        )
