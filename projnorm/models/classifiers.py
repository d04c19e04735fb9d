"""Classifiers of any framework as one thing: inputs in, logits and perhaps features out."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from projnorm.core.errors import InputError, MissingExtraError
from projnorm.core.files import read_file, reason
from projnorm.models.batches import Batches, as_array
from projnorm.outputs.class_columns import class_columns
from projnorm.outputs.dataframes import take_rows
from projnorm.outputs.outputs import Outputs, are_probabilities

if TYPE_CHECKING:
    from projnorm.models.preparation import Prepare

LOGGER = logging.getLogger("projnorm")
# Number of rows that a model which is no network sees at once.
_ROWS = 10_000
# Level of onnxruntime's log: else it would say on stderr what is raised anyway.
_FATAL = 4


class Classifier(Protocol):
    """A model whose error can be estimated."""

    @property
    def classes(self) -> NDArray[Any] | None:
        """Names of its columns, where it has some."""
        ...

    def outputs(self, samples: Batches) -> Outputs:
        """Its outputs on samples."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ArrayClassifier:
    """Anything with `predict_proba` or `decision_function`, such as a classifier or a pipeline of scikit-learn.

    It sees DataFrames as they are. Where `predict` was found not to give the class of the largest output, as with a
    decision threshold of its own, what it gives are the predictions.

    Attributes:
        model: The model.
        decides: Whether `predict` has a decision rule of its own.
    """

    model: Any
    decides: bool = False

    @classmethod
    def from_model(cls, model: Any, samples: Batches) -> ArrayClassifier:
        """Look at samples to find whether `predict` has a decision rule of its own."""
        plain = cls(model)
        if not hasattr(model, "predict"):
            return plain
        outputs = plain.outputs(samples)
        try:
            own = plain._predictions(samples, outputs)
        except InputError as error:
            LOGGER.warning("`predict` of the model is not used; the class of the largest output is: %s", error)
            return plain
        return cls(model, decides=bool((own != outputs.predicted).any()))

    @property
    def classes(self) -> NDArray[Any] | None:
        """Names of the classes, as the model has them."""
        classes = getattr(self.model, "classes_", None)
        return None if classes is None else np.asarray(classes)

    def outputs(self, samples: Batches) -> Outputs:
        """Logarithms of the probabilities, or margins as they are; there are no features."""
        if hasattr(self.model, "predict_proba"):
            outputs = Outputs.from_arrays({"probabilities": self._asked("predict_proba", samples)}, "predict_proba")
        else:
            outputs = Outputs.from_logits(self._asked("decision_function", samples), name="decision_function")
        count = outputs.classes if self.classes is None else len(self.classes)
        if count < 2:
            raise InputError("the model must tell two classes or more apart; it knows one.")
        if outputs.classes != count:
            raise InputError(
                f"the model must give a column for each of its {count} classes; got {outputs.classes}. An SVC needs "
                "decision_function_shape='ovr'."
            )
        return replace(outputs, predictions=self._predictions(samples, outputs)) if self.decides else outputs

    def _predictions(self, samples: Batches, outputs: Outputs) -> NDArray[np.int64]:
        """What `predict` gives, as columns of the outputs."""
        return class_columns(
            self._asked("predict", samples), self.classes, outputs.logits.shape, "predict", "the model"
        )

    def _asked(self, method: str, samples: Batches) -> NDArray[Any]:
        """What a method of the model gives for all samples."""
        if samples.whole is None:
            parts = [_as_array(batch) for batch in samples.batches]
        else:
            count = len(samples.whole)
            parts = [take_rows(samples.whole, slice(i, i + _ROWS)) for i in range(0, count, _ROWS)]
        try:
            return np.concatenate([np.asarray(getattr(self.model, method)(part)) for part in parts])
        except Exception as error:  # a user's model may raise anything
            message = f"{type(error).__name__}: {reason(error)}"
            raise InputError(f"the model cannot see the samples of `{samples.name}`: {message}.") from error


@dataclass(frozen=True, slots=True, eq=False)
class OnnxClassifier:
    """An ONNX network in a session of onnxruntime: its first input and its first output of two dimensions."""

    session: Any

    classes = None

    @classmethod
    def from_file(cls, path: Path) -> OnnxClassifier:
        """Open a file."""
        try:
            import onnxruntime
        except ModuleNotFoundError:
            raise MissingExtraError(
                f"{path}: needs onnxruntime: pip install '.[onnx]' in a clone of the project"
            ) from None
        data = read_file(path)
        try:
            options = onnxruntime.SessionOptions()
            options.log_severity_level = _FATAL
            providers = ["CPUExecutionProvider"]
            return cls(onnxruntime.InferenceSession(data, options, providers=providers, enable_fallback=0))
        except Exception as error:  # noqa: BLE001 - onnxruntime has an exception class for each of its codes
            raise InputError(f"{path}: onnxruntime cannot read it ({reason(error)}).") from None

    def outputs(self, samples: Batches) -> Outputs:
        """Its logits, or the logarithms of its probabilities."""
        taken = self.session.get_inputs()
        if not taken:
            raise InputError("the ONNX network takes no input.")
        first, rows = taken[0], []
        for batch in samples.batches:
            x = _as_array(batch)
            x = x.astype(np.float32) if first.type == "tensor(float)" else x
            try:
                arrays = self.session.run(None, {first.name: x})
            except Exception as error:  # noqa: BLE001 - as above
                raise InputError(f"the ONNX network cannot see these samples: {reason(error)}.") from None
            matrices = [out for out in arrays if np.ndim(out) == 2] or [
                out for out in arrays if np.ndim(out) == 1 and isinstance(out, np.ndarray) and out.dtype.kind == "f"
            ]
            if not matrices:
                raise InputError("the ONNX network gives no output of shape (samples, classes).")
            rows.append(matrices[0])
        logits = np.concatenate(rows)
        return Outputs.from_arrays({"probabilities" if are_probabilities(logits) else "logits": logits}, "output")


def is_network(model: Any) -> bool:
    """Whether this is a network of torch, which is not imported for the question."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def as_classifier(model: Any, samples: Batches, *, prepare: Prepare | None = None, device: str = "cpu") -> Classifier:
    """A network of torch or `transformers`, a classifier like those of scikit-learn, or an ONNX file as a classifier.

    Networks of torch look at `samples` to find their last layer, apply `prepare` to batches, and run on `device`.
    """
    require_model(model)
    if is_network(model):
        from projnorm.models.torch_classifier import TorchClassifier

        return TorchClassifier.from_model(model, samples, prepare=prepare, device=device)
    if hasattr(model, "predict_proba") or hasattr(model, "decision_function"):
        return ArrayClassifier.from_model(model, samples)
    if isinstance(model, str | Path) and Path(model).suffix == ".onnx":
        return OnnxClassifier.from_file(Path(model))
    return model


def require_model(model: Any) -> None:
    """Refuse what is no model, such as arguments in another order."""
    is_classifier = any(hasattr(model, name) for name in ("predict_proba", "decision_function"))
    is_file = isinstance(model, str | Path) and Path(model).suffix == ".onnx"
    if not (is_classifier or is_file or is_network(model) or (hasattr(model, "outputs") and hasattr(model, "classes"))):
        raise InputError(
            "`model` must be a torch network, a classifier with predict_proba or decision_function, or the path of an "
            f".onnx file; got {type(model).__name__}. The arguments are model, source, target, in this order."
        )


def outputs_of(
    classifier: Classifier,
    samples: Batches,
    name: str,
    *,
    others: tuple[Classifier, ...] = (),
    needs_labels: bool = True,
) -> Outputs:
    """What a classifier, and others beside it, say of samples; `needs_labels` as in `Outputs.from_logits`."""
    own = classifier.outputs(samples)
    outputs = Outputs.from_logits(
        own.logits,
        features=own.features,
        labels=samples.labels,
        others=tuple(other.outputs(samples).logits for other in others),
        inputs=samples.whole if own.inputs is None else own.inputs,
        classes=classifier.classes,
        name=name,
        needs_labels=needs_labels,
    )
    return replace(outputs, predictions=own.predictions)


def _as_array(batch: Any) -> NDArray[Any]:
    if isinstance(batch, Mapping):
        raise InputError("this model takes arrays; got a mapping of them.")
    return as_array(batch)
