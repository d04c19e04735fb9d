"""What a model gave for a set of samples: the one type that estimators, experiments and estimates share; no torch."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from projnorm.core.arrays import read_arrays
from projnorm.core.errors import InputError
from projnorm.data.tables import is_table_file, read_table
from projnorm.outputs.class_columns import class_columns, column_names, require_two_classes
from projnorm.outputs.dataframes import take_rows
from projnorm.outputs.output_tables import arrays_of_table

# Keys of a file of outputs.
LOGITS, PROBABILITIES, OTHERS = "logits", "probabilities", "other_logits"
FEATURES, LABELS, PREDICTIONS, CLASSES = "features", "labels", "predictions", "classes"
# Number of samples that a model sees at once.
BATCH = 250
# Smaller probabilities have no finite logarithm in float32.
_SMALLEST = 1e-30


@dataclass(frozen=True, slots=True, eq=False)
class Outputs:
    """What a model gave for a set of samples.

    >>> outputs = Outputs.from_logits([[2.0, 0.5], [0.1, 1.2], [1.0, 0.9]], labels=[0, 1, 1])
    >>> outputs.predicted.tolist(), round(outputs.error, 3)
    ([0, 1, 0], 0.333)
    >>> Outputs.from_arrays({"probabilities": np.array([0.2, 0.9])}).predicted.tolist()
    [0, 1]

    The constructor trusts its arguments; `Outputs.from_logits`, `Outputs.from_arrays` and `read_outputs` check what
    comes from outside.

    Attributes:
        logits: Logits of the model, shape ``(n, classes)``.
        features: Inputs of the model's last layer, shape ``(n, width)``; None where they are not known.
        labels: True classes as columns of `logits`, shape ``(n,)``; None for a set without labels.
        others: Logits of other models on the same samples, each of the shape of `logits`.
        inputs: Inputs of the model, one sample per row: an array, or a DataFrame as it came, which
            `projnorm.outputs.table_encoder.TableEncoder` turns into numbers; None where no method needs it.
        name: Name of the set in messages and results.
        predictions: Predicted classes as columns of `logits`, shape ``(n,)``, where the model has a decision rule of
            its own; None where it predicts the class of the largest logit.
        class_names: Name of the class of each column; empty where classes have only numbers.
    """

    logits: NDArray[np.floating]
    features: NDArray[np.floating] | None = None
    labels: NDArray[np.int64] | None = None
    others: tuple[NDArray[np.floating], ...] = ()
    inputs: Any = None
    name: str = ""
    predictions: NDArray[np.int64] | None = None
    class_names: tuple[str, ...] = ()

    @classmethod
    def from_logits(
        cls,
        logits: NDArray[Any],
        *,
        features: NDArray[Any] | None = None,
        labels: NDArray[Any] | None = None,
        others: tuple[NDArray[Any], ...] = (),
        inputs: Any = None,
        predictions: NDArray[Any] | None = None,
        classes: NDArray[Any] | None = None,
        name: str = "outputs",
        needs_labels: bool = True,
    ) -> Outputs:
        """The outputs in plain arrays, which are checked.

        Args:
            logits: Logits, shape ``(n, classes)``; those of shape ``(n,)`` or ``(n, 1)`` are of class 1 of two.
            features: Inputs of the last layer, shape ``(n, width)``.
            labels: True classes, shape ``(n,)``: columns of `logits`, or entries of `classes`.
            others: Logits of other models on the same samples.
            inputs: Inputs of the model, one sample per row.
            predictions: Predicted classes, in the form of `labels`, of a model with a decision rule of its own.
            classes: Label of each column of `logits`, where labels and predictions are names or other numbers.
            name: Name of the set in messages and results.
            needs_labels: Whether labels that do not fit are an error; else they are left out with a warning.

        Raises:
            InputError: If arrays do not fit together, or something in them is not finite.
        """
        is_single = _is_single(logits)
        logits = _logits(_two_columns(logits) if is_single else logits, LOGITS, name)
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
        others = tuple(_two_columns(other) if logits.shape[1] == 2 and _is_single(other) else other for other in others)
        for shape in map(np.shape, others):
            if shape != logits.shape:
                raise InputError(f"{name}: `{OTHERS}` must have the shape {logits.shape} for each model; got {shape}.")
        others = tuple(_finite_numbers(other, OTHERS, name) for other in others)
        names = () if classes is None else column_names(classes, logits.shape[1], name)
        outputs = cls(logits, features, None, others, inputs, name, class_names=names)
        if predictions is not None:
            columns = class_columns(predictions, classes, logits.shape, PREDICTIONS, name)
            outputs = replace(outputs, predictions=columns)
        if labels is None:
            return outputs
        if needs_labels and is_single and classes is None:
            require_two_classes(labels, name)
        try:
            return replace(outputs, labels=class_columns(labels, classes, logits.shape, LABELS, name))
        except InputError as error:
            if needs_labels:
                raise
            logging.getLogger("projnorm").warning("labels are left out, so the true error is not shown: %s", error)
            return outputs

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], name: str = "outputs", *, needs_labels: bool = True) -> Outputs:
        """The outputs in named arrays, which are checked.

        Args:
            arrays: Arrays under the names of the arguments of `from_logits`; "probabilities" may stand for "logits".
            name: Name of the set in messages and results.
            needs_labels: Whether labels that do not fit are an error; else they are left out with a warning.

        Raises:
            InputError: If arrays are missing or do not fit together, or something in them is not finite.
        """
        if (LOGITS in arrays) == (PROBABILITIES in arrays):
            raise InputError(
                f"{name}: needs one of the arrays `{LOGITS}` and `{PROBABILITIES}`, of shape (samples, classes); it "
                f"has {', '.join(sorted(map(str, arrays))) or 'none'}."
            )
        logits, labels = arrays.get(LOGITS), arrays.get(LABELS)
        if logits is None:
            logits = log_probabilities(arrays[PROBABILITIES], name)
            if needs_labels and labels is not None and CLASSES not in arrays and _is_single(arrays[PROBABILITIES]):
                require_two_classes(labels, name)
        others = np.asarray(arrays.get(OTHERS, np.empty((0, 0, 0))))
        if others.ndim == 2:
            others = others[None]
        if others.ndim != 3:
            raise InputError(f"{name}: `{OTHERS}` must have shape (models, samples, classes); got {others.shape}.")
        return cls.from_logits(
            logits,
            features=arrays.get(FEATURES),
            labels=labels,
            others=tuple(others),
            predictions=arrays.get(PREDICTIONS),
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
        """The predicted class of every sample: as the model decided, or that of the largest logit."""
        return self.predictions if self.predictions is not None else self.logits.argmax(axis=1).astype(np.int64)

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
        """The outputs on the samples with these `indices`, in this order."""
        features, labels, predictions = (
            None if part is None else part[indices] for part in (self.features, self.labels, self.predictions)
        )
        others = tuple(other[indices] for other in self.others)
        inputs = None if self.inputs is None else take_rows(self.inputs, indices)
        return Outputs(self.logits[indices], features, labels, others, inputs, self.name, predictions, self.class_names)

    def without_labels(self) -> Outputs:
        """The same outputs without labels, as a method that predicts the error may see them."""
        return replace(self, labels=None)


def joined_outputs(first: Outputs, second: Outputs) -> Outputs:
    """The samples of both sets as one; both have the same parts."""

    def both(a: Any, b: Any) -> Any:
        return None if a is None or b is None else np.concatenate([a, b])

    return Outputs(
        both(first.logits, second.logits),
        both(first.features, second.features),
        both(first.labels, second.labels),
        tuple(both(a, b) for a, b in zip(first.others, second.others, strict=True)),
        both(first.inputs, second.inputs),
        f"{first.name} and {second.name}",
        both(first.predictions, second.predictions),
        first.class_names,
    )


def read_outputs(path: Path, *, needs_labels: bool = True, label_column: str = "") -> Outputs:
    """The outputs in a file.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "val.npz"
    ...     np.savez(path, logits=np.eye(3), labels=np.array([0, 1, 1]))
    ...     outputs = read_outputs(path)
    >>> len(outputs), outputs.classes, round(outputs.error, 3)
    (3, 3, 0.333)

    Args:
        path: An ``.npz`` file with `logits` or `probabilities` and more; an ``.npy`` file with logits alone; or a
            table, ``.csv``, ``.csv.gz`` or ``.parquet``, with the columns that `projnorm.outputs.output_tables` lists.
        needs_labels: Whether labels that do not fit are an error; else they are left out with a warning.
        label_column: Column of a table that has the labels; by default the first of the usual names.
    """
    if is_table_file(path):
        arrays = arrays_of_table(read_table(path), str(path), label_column=label_column)
    else:
        arrays = read_arrays(path, name=LOGITS)
    return Outputs.from_arrays(arrays, str(path), needs_labels=needs_labels)


def log_probabilities(probabilities: NDArray[Any], name: str) -> NDArray[np.float64]:
    """Logits that give these probabilities; those of shape ``(n,)`` or ``(n, 1)`` are those of class 1 of two."""
    rows = np.asarray(probabilities)
    if _is_single(rows):
        rows = _finite_numbers(rows.reshape(-1), PROBABILITIES, name).astype(np.float64)
        if len(rows) and (rows.min() < 0.0 or rows.max() > 1.0):
            wrong = rows[(rows < 0.0) | (rows > 1.0)][0]
            raise InputError(
                f"{name}: `{PROBABILITIES}` of one column must be those of class 1, from 0 to 1; got {wrong:g}. If "
                f"these are logits, call them `{LOGITS}`."
            )
        rows = np.stack([1.0 - rows, rows], axis=1)
    rows = _logits(rows, PROBABILITIES, name).astype(np.float64)
    if not are_probabilities(rows):
        raise InputError(f"{name}: `{PROBABILITIES}` must be at least 0 and add up to 1 in every row.")
    return np.log(np.maximum(rows, _SMALLEST))


def are_probabilities(rows: NDArray[np.floating]) -> bool:
    """Whether no entry is negative and every row adds up to one, up to rounding; one number a row is at most one."""
    if not rows.size or rows.min() < 0.0:
        return False
    return bool(rows.max() <= 1.0) if _is_single(rows) else np.allclose(rows.sum(axis=1), 1.0, atol=1e-3)


def require_alike(first: Outputs, second: Outputs) -> None:
    """Refuse two sets of outputs that cannot come from the same model."""
    widths = [0 if outputs.features is None else outputs.features.shape[1] for outputs in (first, second)]
    for what, a, b in (
        ("classes", first.classes, second.classes),
        ("features a sample", *widths),
        ("other models", len(first.others), len(second.others)),
    ):
        if a != b:
            raise InputError(f"{first.name} has {a:,} {what} and {second.name} {b:,}; they must come from one model.")
    if first.class_names and second.class_names and first.class_names != second.class_names:
        names = sorted(set(first.class_names) ^ set(second.class_names)) or ["the same in another order"]
        both = f"{first.name} and {second.name}"
        raise InputError(f"{both} have other classes ({names[0]}); they must come from one model.")
    if (first.predictions is None) != (second.predictions is None):
        has, lacks = (first, second) if second.predictions is None else (second, first)
        raise InputError(
            f"{has.name} has `{PREDICTIONS}` and {lacks.name} has none; give them for both, or for neither."
        )


def require_valid(outputs: object, what: str, *, with_labels: bool) -> None:
    """Refuse what is no `Outputs`, and logits, or labels if looked at, that cannot be used; `what` is the argument."""
    if not isinstance(outputs, Outputs) or not isinstance(outputs.logits, np.ndarray):
        got = f"logits as a {type(outputs.logits).__name__}" if isinstance(outputs, Outputs) else type(outputs).__name__
        raise InputError(
            f"`{what}` must be outputs, as Outputs.from_logits(logits, labels=labels) makes them; got {got}."
        )
    name = outputs.name or f"the {what}"
    _logits(outputs.logits, LOGITS, name)
    if with_labels and outputs.labels is not None:
        class_columns(outputs.labels, None, outputs.logits.shape, LABELS, name)
    if outputs.predictions is not None:
        class_columns(outputs.predictions, None, outputs.logits.shape, PREDICTIONS, name)


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


def _is_single(array: NDArray[Any]) -> bool:
    """Whether the outputs of a model are one number per sample."""
    return np.ndim(array) == 1 or (np.ndim(array) == 2 and np.shape(array)[1] == 1)


def _two_columns(logits: NDArray[Any]) -> NDArray[Any]:
    """Logits of both classes from that of class 1; that of class 0 is 0."""
    column = np.asarray(logits).reshape(-1)
    return np.stack([np.zeros_like(column), column], axis=1)


def _finite_numbers(array: NDArray[Any], what: str, name: str) -> NDArray[np.floating]:
    array = np.asarray(array)
    if array.dtype.kind not in "fiu":
        raise InputError(f"{name}: `{what}` must be numbers; got {array.dtype}.")
    array = array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)
    if not (finite := np.isfinite(array)).all():
        rows = np.flatnonzero(~finite.reshape(len(array), -1).all(axis=1))
        raise InputError(f"{name}: `{what}` must be finite; {len(rows):,} rows are not, the first is row {rows[0]:,}.")
    return array
