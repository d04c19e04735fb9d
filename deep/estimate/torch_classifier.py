"""A network of torch or `transformers` as a classifier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deep.estimate.batches import Batches
from deep.forward import forward_batches
from deep.outputs import Outputs
from deep.training import Prepare
from projnorm.errors import InputError
from projnorm.files import reason


@dataclass(frozen=True, slots=True, eq=False)
class TorchClassifier:
    """A network of torch, or of `transformers`, which is run in eval mode and left as it was.

    `prepare` is applied to every batch before it. The inputs of its last layer, which `of` finds, are the features.
    """

    model: nn.Module
    prepare: Prepare | None = None
    device: str = "cpu"
    last: str | None = None

    classes = None

    @classmethod
    def of(
        cls, model: nn.Module, samples: Batches, *, prepare: Prepare | None = None, device: str = "cpu"
    ) -> TorchClassifier:
        """Look at a few samples to find the last layer; `prepare` is `unit_images` by default."""
        plain = cls(model, prepare or unit_images, device)
        return replace(plain, last=plain._last_layer(samples))

    def outputs(self, samples: Batches) -> Outputs:
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
            said = self.model(**x) if isinstance(x, Mapping) else self.model(x)
        except Exception as error:  # a user's network may raise anything
            message = f"{type(error).__name__}: {reason(error)}"
            raise InputError(f"the model cannot see these samples: {message}.") from error
        if not isinstance(said, Tensor):
            said = said.get("logits") if isinstance(said, Mapping) else getattr(said, "logits", said)
        if isinstance(said, tuple | list):
            said = said[0]
        if not isinstance(said, Tensor) or said.ndim != 2:
            shape = tuple(said.shape) if isinstance(said, Tensor) else type(said).__name__
            raise InputError(f"the model must give logits of shape (samples, classes); got {shape}.")
        return said if said.dtype == torch.float64 else said.float()

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
            if x.ndim == 2 and out.shape == logits.shape and torch.allclose(out.cpu().float(), logits.float()):
                return name
        return None

    def through_last(self, features: NDArray[np.generic]) -> Outputs:
        """Outputs of the last layer on other features."""
        assert self.last is not None
        layer = self.model.get_submodule(self.last)
        assert isinstance(layer, nn.Linear)
        with torch.no_grad():
            x = torch.from_numpy(features).to(layer.weight)
            return Outputs(layer(x).float().cpu().numpy(), x.float().cpu().numpy())


def unit_images(x: Tensor) -> Tensor:
    """Images as bytes with colours last become numbers from 0 to 1 with them first; anything else stays."""
    is_bytes = x.dtype == torch.uint8 and x.ndim == 4 and x.shape[3] in (1, 3)
    return x.movedim(3, 1).to(torch.float32) / 255.0 if is_bytes else x


def _as_tensors(batch: Any, device: torch.device) -> Any:
    """A batch on a device: tensors, or a mapping of them."""
    if isinstance(batch, Mapping):
        return {key: _as_tensors(value, device) for key, value in batch.items()}
    if isinstance(batch, Tensor):
        return batch.to(device)
    array = np.asarray(batch)
    if array.dtype.kind not in "biufc":
        raise InputError(f"a network of torch takes numbers; got {array.dtype}.")
    return torch.from_numpy(array).to(device)


def _first(batch: Any, count: int) -> Any:
    return {key: value[:count] for key, value in batch.items()} if isinstance(batch, Mapping) else batch[:count]
