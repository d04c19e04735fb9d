"""Classifiers of any framework as one thing: inputs in, logits and perhaps features out."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from deep.estimate.batches import Batches, as_array
from deep.outputs import Outputs, are_probabilities, log_probabilities
from projnorm.errors import InputError, MissingExtraError
from projnorm.files import read_file, reason

if TYPE_CHECKING:
    from deep.training import Prepare

# Level of onnxruntime's log: else it would say on stderr what is raised anyway.
_FATAL = 4


class Classifier(Protocol):
    """A model whose error can be estimated."""

    @property
    def classes(self) -> NDArray[Any] | None:
        """Names of its columns, where it has some."""
        ...

    def outputs(self, samples: Batches) -> Outputs:
        """What it says of samples."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ProbabilisticClassifier:
    """Anything with `predict_proba`, such as a classifier of scikit-learn."""

    model: Any

    @property
    def classes(self) -> NDArray[Any] | None:
        """Names of the classes, as the model has them."""
        classes = getattr(self.model, "classes_", None)
        return None if classes is None else np.asarray(classes)

    def outputs(self, samples: Batches) -> Outputs:
        """Logarithms of the probabilities; there are no features."""
        batches = [_as_array(batch) for batch in samples.batches]
        try:
            rows = np.concatenate([np.asarray(self.model.predict_proba(batch)) for batch in batches])
        except Exception as error:  # a user's model may raise anything
            message = f"{type(error).__name__}: {reason(error)}"
            raise InputError(f"the model cannot see the samples of `{samples.name}`: {message}.") from error
        return Outputs(log_probabilities(rows, "predict_proba"))


@dataclass(frozen=True, slots=True, eq=False)
class OnnxClassifier:
    """An ONNX network in a session of onnxruntime: its first input and its first output of two dimensions."""

    session: Any

    classes = None

    @classmethod
    def of(cls, path: Path) -> OnnxClassifier:
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
                matrices = [out for out in self.session.run(None, {first.name: x}) if np.ndim(out) == 2]
            except Exception as error:  # noqa: BLE001 - as above
                raise InputError(f"the ONNX network cannot see these samples: {reason(error)}.") from None
            if not matrices:
                raise InputError("the ONNX network gives no output of shape (samples, classes).")
            rows.append(matrices[0])
        logits = np.concatenate(rows)
        return Outputs(log_probabilities(logits, "output") if are_probabilities(logits) else logits)


def is_network(model: Any) -> bool:
    """Whether this is a network of torch, which is not imported for the question."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def as_classifier(model: Any, samples: Batches, *, prepare: Prepare | None = None, device: str = "cpu") -> Classifier:
    """A network of torch or `transformers`, anything with `predict_proba`, or an ONNX file as a classifier.

    Networks of torch look at `samples` to find their last layer, apply `prepare` to batches, and run on `device`.
    """
    if is_network(model):
        from deep.estimate.torch_classifier import TorchClassifier

        return TorchClassifier.of(model, samples, prepare=prepare, device=device)
    if hasattr(model, "predict_proba"):
        return ProbabilisticClassifier(model)
    if isinstance(model, str | Path) and Path(model).suffix == ".onnx":
        return OnnxClassifier.of(Path(model))
    if hasattr(model, "outputs") and hasattr(model, "classes"):
        return model
    raise InputError(
        "`model` must be a torch network, a classifier with predict_proba, or the path of an .onnx file; got "
        f"{type(model).__name__}."
    )


def outputs_of(
    classifier: Classifier,
    samples: Batches,
    name: str,
    *,
    others: tuple[Classifier, ...] = (),
    needs_labels: bool = True,
) -> Outputs:
    """What a classifier, and others beside it, say of samples; `needs_labels` as in `Outputs.of`."""
    outputs = classifier.outputs(samples)
    return Outputs.of(
        outputs.logits,
        features=outputs.features,
        labels=samples.labels,
        others=tuple(other.outputs(samples).logits for other in others),
        inputs=samples.array,
        classes=classifier.classes,
        name=name,
        needs_labels=needs_labels,
    )


def _as_array(batch: Any) -> NDArray[Any]:
    if isinstance(batch, Mapping):
        raise InputError("this model takes arrays; got a mapping of them.")
    return as_array(batch)
