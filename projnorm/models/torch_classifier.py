"""A network of torch or `transformers` as a classifier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from projnorm.core.errors import InputError
from projnorm.core.files import reason
from projnorm.data.images import unit_images
from projnorm.models.batches import Batches
from projnorm.models.forward import forward_batches
from projnorm.models.preparation import Prepare
from projnorm.outputs.class_columns import require_two_classes
from projnorm.outputs.dataframes import is_table
from projnorm.outputs.outputs import Outputs, are_probabilities

# What a network may give.
LOGITS, ONE_LOGIT, ONE_PROBABILITY, PROBABILITIES = "logits", "one logit", "one probability", "probabilities"
# Number of samples whose outputs tell probabilities from logits.
_ENOUGH = 100
# Smaller probabilities have no finite logarithm in float32.
_SMALLEST = 1e-30


@dataclass(frozen=True, slots=True, eq=False)
class TorchClassifier:
    """A network of torch, or of `transformers`, which is run in eval mode and left as it was.

    `prepare` is applied to every batch before it. The inputs of its last layer are the features.
    """

    model: nn.Module
    prepare: Prepare | None = None
    device: str = "cpu"
    last: str | None = None

    classes = None

    @classmethod
    def from_model(
        cls, model: nn.Module, samples: Batches, *, prepare: Prepare | None = None, device: str = "cpu"
    ) -> TorchClassifier:
        """Look at a batch to find the last layer and the form of the outputs; `prepare` is `unit_images` by default."""
        plain = cls(model, prepare or unit_images, device)
        form = plain._form(samples)
        if form in (ONE_LOGIT, ONE_PROBABILITY) and samples.labels is not None:
            require_two_classes(samples.labels, samples.name)
        if form != LOGITS:
            plain = cls(WithLogits(model, form), plain.prepare, device)
        return replace(plain, last=plain._last_layer(samples))

    def outputs(self, samples: Batches) -> Outputs:
        """One pass in eval mode, without gradients."""
        with self._placed():
            outputs = forward_batches(self.model, self.last, samples.batches, call=self._logits)
        return replace(outputs, inputs=np.array(samples.whole) if is_table(samples.whole) else samples.whole)

    def alike(self, initial: nn.Module) -> nn.Module:
        """The same network with other weights, its outputs made logits in the same way.

        Raises:
            InputError: If it is another network.
        """
        network = self.model.network if isinstance(self.model, WithLogits) else self.model
        own, first = ({name: tuple(p.shape) for name, p in module.named_parameters()} for module in (network, initial))
        if own != first:
            differs = sorted(name for name in own.keys() | first.keys() if own.get(name) != first.get(name))
            raise InputError(f"`init` must be the same network as `model` with other weights; {differs[0]} differs.")
        return WithLogits(initial, self.model.form) if isinstance(self.model, WithLogits) else initial

    def _form(self, samples: Batches) -> str:
        """The form of the outputs: logits of all classes, one number, or probabilities."""
        counts = np.cumsum([_count(batch) for batch in samples.batches])
        few = samples.batches[: int(np.searchsorted(counts, _ENOUGH)) + 1]
        with self._placed():
            logits = forward_batches(self.model, None, few, call=self._logits).logits
        is_single = logits.ndim == 1 or logits.shape[1] == 1
        if are_probabilities(logits):
            return ONE_PROBABILITY if is_single else PROBABILITIES
        return ONE_LOGIT if is_single else LOGITS

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
        return torch.device(self.device)

    def _logits(self, batch: Any) -> Tensor:
        x = _as_tensors(batch, self._device)
        if self.prepare is not None and isinstance(x, Tensor):
            x = self.prepare(x)
        # Whole numbers are tokens where the network has an embedding to look them up in, and else measurements.
        has_tokens = any(isinstance(module, nn.Embedding | nn.EmbeddingBag) for module in self.model.modules())
        if isinstance(x, Tensor) and (x.is_floating_point() or not has_tokens):
            x = x.to(next((p.dtype for p in self.model.parameters() if p.is_floating_point()), torch.float32))
        try:
            output = self.model(**x) if isinstance(x, Mapping) else self.model(x)
        except Exception as error:  # a user's network may raise anything
            message = f"{type(error).__name__}: {reason(error)}"
            raise InputError(f"the model cannot see these samples: {message}.") from error
        output = _tensor_of(output)
        if not isinstance(output, Tensor) or output.ndim not in (1, 2) or len(output) != _count(x):
            shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise InputError(f"the model must give logits of shape (samples, classes); got {shape}.")
        return output if output.dtype == torch.float64 else output.float()

    def _last_layer(self, samples: Batches) -> str | None:
        """The linear layer whose outputs are the logits; None where there is none."""
        seen: dict[str, tuple[Tensor, Tensor]] = {}

        def note(name: str, _: nn.Module, x: tuple[Tensor, ...], out: Tensor) -> None:
            if x:
                seen[name] = (x[0].detach(), out.detach())

        with ExitStack() as hooks, self._placed():
            for name, module in self.model.named_modules():
                if isinstance(module, nn.Linear):
                    hooks.enter_context(module.register_forward_hook(partial(note, name)))
            few = _first(samples.batches[0], 2)
            logits = torch.from_numpy(forward_batches(self.model, None, [few], call=self._logits).logits)
        for name, (x, out) in reversed(seen.items()):
            out = out.cpu().float()
            if isinstance(self.model, WithLogits) and self.model.form == ONE_LOGIT and out.shape == (len(logits), 1):
                out = _two_columns(out)
            if x.ndim == 2 and out.shape == logits.shape and torch.allclose(out, logits.float()):
                return name
        return None


class WithLogits(nn.Module):
    """A network with its outputs as logits of all classes."""

    def __init__(self, network: nn.Module, form: str) -> None:
        """Wrap a network whose outputs are one logit or probability of class 1 of two, or probabilities."""
        super().__init__()
        self.network, self.form = network, form

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Logits of shape ``(samples, classes)``."""
        output = _tensor_of(self.network(*inputs, **named))
        if self.form == ONE_LOGIT:
            return _two_columns(output)
        if self.form == ONE_PROBABILITY:
            output = torch.stack([1.0 - output.reshape(-1), output.reshape(-1)], dim=1)
        return output.clamp_min(_SMALLEST).log()


def _two_columns(logit: Tensor) -> Tensor:
    """Logits of both classes from that of class 1; that of class 0 is 0."""
    column = logit.reshape(-1)
    return torch.stack([torch.zeros_like(column), column], dim=1)


def _tensor_of(output: Any) -> Any:
    """The logits among what a network returns: a tensor, the first of several, or those of `transformers`."""
    if not isinstance(output, Tensor):
        output = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
    return output[0] if isinstance(output, tuple | list) else output


def _count(x: Any) -> int:
    """Number of samples in a batch."""
    return len(next(iter(x.values()))) if isinstance(x, Mapping) else len(x)


def _as_tensors(batch: Any, device: torch.device) -> Any:
    """A batch on a device: tensors, or a mapping of them."""
    if isinstance(batch, Mapping):
        return {key: _as_tensors(value, device) for key, value in batch.items()}
    if isinstance(batch, Tensor):
        return batch.to(device)
    array = np.asarray(batch)
    if array.dtype.kind not in "biufc":
        raise InputError(f"a network of torch takes numbers; got {array.dtype}.")
    return torch.from_numpy(np.require(array, requirements="W")).to(device)  # torch warns of what it cannot write to


def _first(batch: Any, count: int) -> Any:
    return {key: value[:count] for key, value in batch.items()} if isinstance(batch, Mapping) else batch[:count]
