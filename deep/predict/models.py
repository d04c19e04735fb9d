"""Classifiers of any framework as one thing: inputs in, logits and perhaps features out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deep.outputs import Outputs, forward_batches
from deep.predict.data import Given, as_tensors
from deep.predict.sets import OutputSet, log_probabilities, output_set
from deep.training import Hardware, Prepare
from projnorm.files import read_file

# Of onnxruntime, which else would say on stderr what is raised anyway.
_FATAL = 4


class Classifier(Protocol):
    """A model that can be assessed."""

    @property
    def classes(self) -> NDArray[Any] | None:
        """Names of its columns, where it has some."""
        ...

    def outputs(self, samples: Given) -> Outputs:
        """What it says of samples."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class TorchClassifier:
    """A network of torch, or of `transformers`.

    Attributes:
        model: It is run in eval mode and left as it was.
        prepare: Applied to every batch before it.
        hardware: Where.
        last: Name of its last layer, whose inputs are the features; found by `of`.
    """

    model: nn.Module
    prepare: Prepare | None = None
    hardware: Hardware | None = None
    last: str | None = None

    classes = None

    @classmethod
    def of(
        cls, model: nn.Module, samples: Given, *, prepare: Prepare | None = None, hardware: Hardware | None = None
    ) -> TorchClassifier:
        """Look at a few samples to find the last layer."""
        plain = cls(model, prepare, hardware)
        return cls(model, prepare, hardware, plain._last_layer(samples))

    def outputs(self, samples: Given) -> Outputs:
        """One pass in eval mode, without gradients."""
        with self._placed():
            return forward_batches(self.model, self.last, samples.batches, call=self._logits)

    @contextmanager
    def _placed(self) -> Iterator[None]:
        """The network on its device, and back where it was afterwards."""
        before = next((parameter.device for parameter in self.model.parameters()), self._device)
        self.model.to(self._device)
        try:
            yield
        finally:
            self.model.to(before)

    @property
    def _device(self) -> torch.device:
        return torch.device((self.hardware or Hardware()).device)

    def _logits(self, batch: Any) -> Tensor:
        x = as_tensors(batch, self._device)
        if self.prepare is not None and isinstance(x, Tensor):
            x = self.prepare(x)
        if isinstance(x, Tensor) and (x.is_floating_point() or not self._takes_numbers_of_things):
            x = x.to(self._precision)
        try:
            said = self.model(**x) if isinstance(x, Mapping) else self.model(x)
        except Exception as error:  # a user's network may raise anything
            reason = str(error).strip().split("\n")[0]
            raise ValueError(f"the model cannot see these samples: {type(error).__name__}: {reason}") from error
        if not isinstance(said, Tensor):
            said = said.get("logits") if isinstance(said, Mapping) else getattr(said, "logits", said)
        if isinstance(said, tuple | list):
            said = said[0]
        if not isinstance(said, Tensor) or said.ndim != 2:
            shape = tuple(said.shape) if isinstance(said, Tensor) else type(said).__name__
            raise ValueError(f"the model must give logits of shape (samples, classes); got {shape}.")
        return said if said.dtype == torch.float64 else said.float()

    @property
    def _takes_numbers_of_things(self) -> bool:
        """Whether whole numbers are looked up, such as tokens, and not measured."""
        return any(isinstance(module, nn.Embedding | nn.EmbeddingBag) for module in self.model.modules())

    @property
    def _precision(self) -> torch.dtype:
        return next((p.dtype for p in self.model.parameters() if p.is_floating_point()), torch.float32)

    def _last_layer(self, samples: Given) -> str | None:
        """The linear layer whose outputs are the logits; None where there is none."""
        seen: dict[str, tuple[Tensor, Tensor]] = {}
        hooks = [
            module.register_forward_hook(
                lambda _, given, out, name=name: seen.update({name: (given[0].detach(), out.detach())} if given else {})
            )
            for name, module in self.model.named_modules()
            if isinstance(module, nn.Linear)
        ]
        few = _first(samples.batches[0], 2)
        try:
            with self._placed():
                logits = torch.from_numpy(forward_batches(self.model, None, [few], call=self._logits).logits)
        finally:
            for hook in hooks:
                hook.remove()
        for name, (x, out) in reversed(seen.items()):
            if x.ndim == 2 and out.shape == logits.shape and torch.allclose(out.cpu().float(), logits.float()):
                return name
        return None


@dataclass(frozen=True, slots=True, eq=False)
class ProbabilisticClassifier:
    """Anything with `predict_proba`, such as a classifier of scikit-learn."""

    model: Any

    @property
    def classes(self) -> NDArray[Any] | None:
        """As the model calls them."""
        found = getattr(self.model, "classes_", None)
        return None if found is None else np.asarray(found)

    def outputs(self, samples: Given) -> Outputs:
        """Logarithms of the probabilities; there are no features."""
        rows = np.concatenate([np.asarray(self.model.predict_proba(_as_array(batch))) for batch in samples.batches])
        return _without_features(log_probabilities(rows, "predict_proba"))


@dataclass(frozen=True, slots=True, eq=False)
class OnnxClassifier:
    """A network in an ONNX file, run by onnxruntime: its first input and its first output of two dimensions.

    Attributes:
        session: Of onnxruntime.
    """

    session: Any

    classes = None

    @classmethod
    def of(cls, path: Path) -> OnnxClassifier:
        """Open a file.

        Raises:
            ValueError: If it is no network.
            OSError: If it cannot be read.
        """
        import onnxruntime

        data = read_file(path)
        try:
            options = onnxruntime.SessionOptions()
            options.log_severity_level = _FATAL
            return cls(
                onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"], enable_fallback=0)
            )
        except Exception as error:  # noqa: BLE001 - onnxruntime has an exception class for each of its codes
            reason = str(error).strip().split("\n")[0]
            raise ValueError(f"{path}: onnxruntime cannot read it ({reason}).") from None

    def outputs(self, samples: Given) -> Outputs:
        """Its logits, or the logarithms of its probabilities."""
        taken = self.session.get_inputs()
        if not taken:
            raise ValueError("the ONNX network takes no input.")
        first, rows = taken[0], []
        for batch in samples.batches:
            x = _as_array(batch)
            x = x.astype(np.float32) if first.type == "tensor(float)" else x
            try:
                found = [out for out in self.session.run(None, {first.name: x}) if np.ndim(out) == 2]
            except Exception as error:  # noqa: BLE001 - as above
                reason = str(error).strip().split("\n")[0]
                raise ValueError(f"the ONNX network cannot see these samples: {reason}") from None
            if not found:
                raise ValueError("the ONNX network gives no output of shape (samples, classes).")
            rows.append(found[0])
        logits = np.concatenate(rows)
        if logits.min() >= 0.0 and np.allclose(logits.sum(axis=1), 1.0, atol=1e-3):
            return _without_features(log_probabilities(logits, "output"))
        return _without_features(logits)


def as_classifier(
    model: Any, samples: Given, *, prepare: Prepare | None = None, hardware: Hardware | None = None
) -> Classifier:
    """A model of any kind as a classifier.

    Args:
        model: A network of torch or `transformers`, anything with `predict_proba`, or the path of an ONNX file.
        samples: To find the last layer of a network with.
        prepare: From a batch of inputs to what a network of torch takes.
        hardware: Where it runs.

    Raises:
        ValueError: If it is none of these.
    """
    if isinstance(model, nn.Module):
        return TorchClassifier.of(model, samples, prepare=prepare, hardware=hardware)
    if hasattr(model, "predict_proba"):
        return ProbabilisticClassifier(model)
    if isinstance(model, str | Path) and Path(model).suffix == ".onnx":
        return OnnxClassifier.of(Path(model))
    if hasattr(model, "outputs") and hasattr(model, "classes"):
        return model
    raise ValueError(
        "`model` must be a torch network, a classifier with predict_proba, or the path of an .onnx file; got "
        f"{type(model).__name__}."
    )


def assessed(classifier: Classifier, samples: Given, name: str, *, others: tuple[Classifier, ...] = ()) -> OutputSet:
    """What a classifier, and others beside it, say of samples.

    Raises:
        ValueError: If outputs or labels are not what they should be.
    """
    outputs = classifier.outputs(samples)
    found = output_set(
        name,
        outputs.logits,
        features=outputs.features,
        labels=samples.labels,
        others=tuple(other.outputs(samples).logits for other in others),
        classes=classifier.classes,
    )
    return OutputSet(name, found.outputs, found.labels, samples.array)


def _first(batch: Any, count: int) -> Any:
    return {key: value[:count] for key, value in batch.items()} if isinstance(batch, Mapping) else batch[:count]


def _as_array(batch: Any) -> NDArray[Any]:
    if isinstance(batch, Mapping):
        raise ValueError("this model takes arrays; got a mapping of them.")
    return batch.detach().cpu().numpy() if isinstance(batch, Tensor) else np.asarray(batch)


def _without_features(logits: NDArray[np.floating]) -> Outputs:
    return Outputs(logits, np.empty((len(logits), 0), dtype=np.float32))
