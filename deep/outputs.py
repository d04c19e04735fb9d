"""What a model said of a set of samples: the one type that estimators, experiments and estimates share; no torch."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from projnorm.arrays import read_arrays
from projnorm.errors import InputError

# Keys of a file of outputs.
LOGITS, PROBABILITIES, OTHERS = "logits", "probabilities", "other_logits"
FEATURES, LABELS, CLASSES = "features", "labels", "classes"
# Number of samples that a model sees at once.
BATCH = 250
# Smaller probabilities have no finite logarithm in float32.
_SMALLEST = 1e-30


@dataclass(frozen=True, slots=True, eq=False)
class Outputs:
    """What a model said of a set of samples.

    The constructor trusts its arguments; `Outputs.of`, `Outputs.from_arrays` and `read_outputs` check what comes from
    outside.

    Attributes:
        logits: Logits of the model, shape ``(n, classes)``.
        features: Inputs of the model's last layer, shape ``(n, width)``; None where they are not known.
        labels: True classes as columns of `logits`, shape ``(n,)``; None for a set without labels.
        others: Logits of other models on the same samples, each of the shape of `logits`.
        inputs: Inputs of the model, one sample per row; None where no method needs it.
        name: Name of the set in messages and results.
    """

    logits: NDArray[np.floating]
    features: NDArray[np.floating] | None = None
    labels: NDArray[np.int64] | None = None
    others: tuple[NDArray[np.floating], ...] = ()
    inputs: NDArray[np.generic] | None = None
    name: str = ""

    @classmethod
    def of(
        cls,
        logits: NDArray[Any],
        *,
        features: NDArray[Any] | None = None,
        labels: NDArray[Any] | None = None,
        others: tuple[NDArray[Any], ...] = (),
        inputs: NDArray[np.generic] | None = None,
        classes: NDArray[Any] | None = None,
        name: str = "outputs",
        needs_labels: bool = True,
    ) -> Outputs:
        """Outputs from plain arrays, checked; arrays are those of the class.

        Labels may also be names, or numbers of another kind, if `classes` has the label of each column. With
        `needs_labels`, labels that do not fit are an error; else they are left out with a warning.

        Raises:
            InputError: If arrays do not fit together, or something in them is not finite.
        """
        logits = _logits(logits, LOGITS, name)
        if features is not None and np.shape(features)[1:] == (0,):
            features = None
        if features is not None:
            shape = np.shape(features)
            if len(shape) != 2 or shape[0] != len(logits):
                raise InputError(
                    f"{name}: `{FEATURES}` must have one row for each of the {len(logits):,} samples; got shape "
                    f"{shape}."
                )
            features = _finite_numbers(features, FEATURES, name)
        for shape in map(np.shape, others):
            if shape != logits.shape:
                raise InputError(f"{name}: `{OTHERS}` must have the shape {logits.shape} for each model; got {shape}.")
        others = tuple(_finite_numbers(other, OTHERS, name) for other in others)
        outputs = cls(logits, features, None, others, inputs, name)
        if labels is None:
            return outputs
        try:
            return replace(outputs, labels=_columns(np.asarray(labels), classes, logits.shape, name))
        except InputError as error:
            if needs_labels:
                raise
            logging.getLogger("projnorm").warning("labels are left out, so the true error is not shown: %s", error)
            return outputs

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], name: str = "outputs", *, needs_labels: bool = True) -> Outputs:
        """Outputs from named arrays, as a file holds them; `needs_labels` as in `of`."""
        if (LOGITS in arrays) == (PROBABILITIES in arrays):
            raise InputError(
                f"{name}: needs one of the arrays `{LOGITS}` and `{PROBABILITIES}`, of shape (samples, classes); it "
                f"has {', '.join(sorted(arrays)) or 'none'}."
            )
        logits = arrays[LOGITS] if LOGITS in arrays else log_probabilities(arrays[PROBABILITIES], name)
        others = np.asarray(arrays.get(OTHERS, np.empty((0, 0, 0))))
        if others.ndim == 2:
            others = others[None]
        if others.ndim != 3:
            raise InputError(f"{name}: `{OTHERS}` must have shape (models, samples, classes); got {others.shape}.")
        return cls.of(
            logits,
            features=arrays.get(FEATURES),
            labels=arrays.get(LABELS),
            others=tuple(others),
            classes=arrays.get(CLASSES),
            name=name,
            needs_labels=needs_labels,
        )

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return int(self.logits.shape[1])

    @property
    def predicted(self) -> NDArray[np.int64]:
        """The predicted class of every sample."""
        return self.logits.argmax(axis=1).astype(np.int64)

    @property
    def known_labels(self) -> NDArray[np.int64]:
        """The labels; an `InputError` where there are none."""
        if self.labels is None:
            raise InputError(f"{self.name or 'outputs'}: has no `{LABELS}`, which this needs.")
        return self.labels

    @property
    def known_features(self) -> NDArray[np.floating]:
        """The features; an `InputError` where they are not known."""
        if self.features is None:
            raise InputError(f"{self.name or 'outputs'}: has no `{FEATURES}`, which this needs.")
        return self.features

    @property
    def error(self) -> float:
        """Share of samples whose predicted class is not the label."""
        return float(np.mean(self.predicted != self.known_labels))

    def take(self, indices: NDArray[np.integer]) -> Outputs:
        """The outputs on the samples with these indices."""
        features, labels, inputs = (
            None if part is None else part[indices] for part in (self.features, self.labels, self.inputs)
        )
        others = tuple(other[indices] for other in self.others)
        return Outputs(self.logits[indices], features, labels, others, inputs, self.name)

    def without_labels(self) -> Outputs:
        """The same outputs without labels, as a method that predicts the error may see them."""
        return replace(self, labels=None)


def read_outputs(path: Path, *, needs_labels: bool = True) -> Outputs:
    """The outputs in a file: ``.npz`` with `logits` or `probabilities` and more, or ``.npy`` with logits alone.

    With `needs_labels`, labels that do not fit are an error; else they are left out with a warning.
    """
    return Outputs.from_arrays(read_arrays(path, name=LOGITS), str(path), needs_labels=needs_labels)


def log_probabilities(probabilities: NDArray[Any], name: str) -> NDArray[np.float64]:
    """Logits that give these probabilities."""
    rows = _logits(probabilities, PROBABILITIES, name).astype(np.float64)
    if not are_probabilities(rows):
        raise InputError(f"{name}: `{PROBABILITIES}` must be at least 0 and add up to 1 in every row.")
    return np.log(np.maximum(rows, _SMALLEST))


def are_probabilities(rows: NDArray[np.floating]) -> bool:
    """Whether no entry is negative and every row adds up to one, up to rounding."""
    return bool(rows.min() >= 0.0) and np.allclose(rows.sum(axis=1), 1.0, atol=1e-3)


def require_alike(one: Outputs, other: Outputs) -> None:
    """Refuse two sets of outputs that cannot come from the same model."""
    widths = [0 if outputs.features is None else outputs.features.shape[1] for outputs in (one, other)]
    for what, a, b in (
        ("classes", one.classes, other.classes),
        ("features a sample", *widths),
        ("other models", len(one.others), len(other.others)),
    ):
        if a != b:
            raise InputError(f"{one.name} has {a:,} {what} and {other.name} {b:,}; they must come from one model.")


def require_valid(outputs: object, what: str, *, with_labels: bool) -> None:
    """Refuse what is no `Outputs`, and logits, or labels if looked at, that cannot be used; `what` is the argument."""
    if not isinstance(outputs, Outputs) or not isinstance(outputs.logits, np.ndarray):
        got = f"logits as a {type(outputs.logits).__name__}" if isinstance(outputs, Outputs) else type(outputs).__name__
        raise InputError(f"`{what}` must be outputs, as Outputs.of(logits, labels=labels) makes them; got {got}.")
    name = outputs.name or f"the {what}"
    _logits(outputs.logits, LOGITS, name)
    if with_labels and outputs.labels is not None:
        _columns(np.asarray(outputs.labels), None, outputs.logits.shape, name)


def _columns(
    labels: NDArray[Any], classes: NDArray[Any] | None, shape: tuple[int, ...], name: str
) -> NDArray[np.int64]:
    """Labels as columns of the logits, which have this shape."""
    labels, count = labels.reshape(-1), shape[1]
    if classes is not None:
        columns = _named_columns(labels, classes, count, name)
    else:
        if labels.dtype.kind in "fc" and np.isfinite(labels).all() and (labels == np.round(labels.real)).all():
            labels = labels.real.astype(np.int64)
        if labels.dtype.kind not in "iub":
            shown = ", ".join(map(repr, np.unique(labels)[:3].tolist()))
            raise InputError(
                f"{name}: `{LABELS}` must be whole numbers from 0 to {count - 1}, the columns of `{LOGITS}`; got "
                f"{labels.dtype} such as {shown}. Add an array `{CLASSES}` that names the columns in order."
            )
        columns = labels.astype(np.int64)
    if columns.shape != shape[:1]:
        raise InputError(f"{name}: `{LABELS}` must hold one for each of the {shape[0]:,} samples; got {columns.shape}.")
    if columns.min() < 0 or columns.max() >= count:
        wrong = columns[(columns < 0) | (columns >= count)][0]
        raise InputError(
            f"{name}: `{LABELS}` must be columns of `{LOGITS}`, 0 to {count - 1}; got {wrong}. If they are numbered "
            f"otherwise, add an array `{CLASSES}` with the label of each column."
        )
    return columns


def _named_columns(labels: NDArray[Any], classes: NDArray[Any], count: int, name: str) -> NDArray[np.int64]:
    """Columns of labels that are names, or numbers of another kind."""
    names = [_as_text(entry) for entry in np.asarray(classes).reshape(-1).tolist()]
    if len(names) != count or len(set(names)) < count:
        raise InputError(f"{name}: `{CLASSES}` must name each of the {count} columns once; got {len(names)} names.")
    number = {entry: column for column, entry in enumerate(names)}
    texts = [_as_text(label) for label in labels.tolist()]
    if unknown := sorted(set(texts) - set(number)):
        raise InputError(f"{name}: the label {unknown[0]!r} is not among `{CLASSES}` ({', '.join(names[:5])}, ...).")
    return np.array([number[label] for label in texts], dtype=np.int64)


def _as_text(label: object) -> str:
    """A label as text; 1 and 1.0 are one."""
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def _logits(array: NDArray[Any], what: str, name: str) -> NDArray[np.floating]:
    """Logits or probabilities, checked: two classes or more, and one sample at least."""
    array = np.asarray(array)
    if array.ndim != 2 or array.shape[1] < 2:
        raise InputError(
            f"{name}: `{what}` must have shape (samples, classes) with two classes or more; got {array.shape}."
        )
    if not len(array):
        raise InputError(f"{name}: `{what}` holds no sample.")
    return _finite_numbers(array, what, name)


def _finite_numbers(array: NDArray[Any], what: str, name: str) -> NDArray[np.floating]:
    array = np.asarray(array)
    if array.dtype.kind not in "fiu":
        raise InputError(f"{name}: `{what}` must be numbers; got {array.dtype}.")
    array = array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)
    if not (finite := np.isfinite(array)).all():
        rows = np.flatnonzero(~finite.reshape(len(array), -1).all(axis=1))
        raise InputError(f"{name}: `{what}` must be finite; {len(rows):,} rows are not, the first is row {rows[0]:,}.")
    return array
