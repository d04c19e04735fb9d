"""One forward pass over a set of images, kept for every predictor that needs outputs only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deep.training import Hardware, Prepare, placed
from projnorm.files import read_file
from projnorm.runs import from_npz, to_npz, write_atomically

BATCH = 250


@dataclass(frozen=True, slots=True, eq=False)
class Outputs:
    """What a network says of a set of samples.

    Attributes:
        logits: Shape ``(n, classes)``.
        features: Inputs of the last layer, shape ``(n, width)``; of width 0 where they are not known.
        others: Logits of other networks on the same samples, each of the shape of `logits`.
    """

    logits: NDArray[np.floating]
    features: NDArray[np.floating]
    others: tuple[NDArray[np.floating], ...] = ()

    def take(self, indices: NDArray[np.integer]) -> Outputs:
        """What is said of the samples with these indices."""
        return Outputs(self.logits[indices], self.features[indices], tuple(other[indices] for other in self.others))

    @property
    def predicted(self) -> NDArray[np.int64]:
        """The classes predicted."""
        return self.logits.argmax(axis=1).astype(np.int64)

    def error(self, labels: NDArray[np.int64]) -> float:
        """Share of labels predicted wrongly."""
        return float(np.mean(self.predicted != labels))


def forward(
    model: nn.Module,
    head: str,
    images: NDArray[np.generic],
    *,
    prepare: Prepare | None = None,
    hardware: Hardware | None = None,
) -> Outputs:
    """Outputs in eval mode and without gradients; the mode of the network is as before afterwards.

    Args:
        model: A classifier.
        head: Name of its last layer.
        images: One sample per row.
        prepare: Applied to every batch before the network.
        hardware: Where; the CPU by default.

    Raises:
        ValueError: If an output is not finite.
    """
    device = torch.device((hardware or Hardware()).device)
    placed(model, device, images=images.ndim == 4)

    def batches() -> Iterator[Tensor]:
        for start in range(0, len(images), BATCH):
            x = torch.from_numpy(images[start : start + BATCH]).to(device)
            x = x if prepare is None else prepare(x)
            yield x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x

    return forward_batches(model, head, batches())


def forward_batches(
    model: nn.Module, head: str | None, batches: Iterable[Any], *, call: Callable[[Any], Tensor] | None = None
) -> Outputs:
    """Outputs on batches that are what the network takes, where it is; as `forward` otherwise.

    Args:
        model: A classifier.
        head: Name of its last layer; None where features are not wanted.
        batches: Inputs of `call`.
        call: From a batch to logits; the network itself by default.

    Raises:
        ValueError: If an output is not finite.
    """
    modes = [(module, module.training) for module in model.modules()]
    features: list[Tensor] = []
    logits: list[Tensor] = []
    hooks = []
    if head is not None:
        layer = model.get_submodule(head)
        hooks.append(layer.register_forward_pre_hook(lambda _, given: features.append(_plain(given[0]))))
    model.eval()
    try:
        with torch.no_grad():
            logits.extend((call or model)(batch).cpu() for batch in batches)
    finally:
        for hook in hooks:
            hook.remove()
        for module, training in modes:
            module.training = training
    said = torch.cat(logits).numpy()
    found = Outputs(said, torch.cat(features).numpy() if features else np.empty((len(said), 0), dtype=np.float32))
    if not np.isfinite(found.logits).all():
        raise ValueError("the network's outputs are not finite; were its weights trained with too large a step?")
    return found


def _plain(values: Tensor) -> Tensor:
    """On the CPU, in a type that numpy has."""
    values = values.detach().cpu()
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


def forward_cached(
    path: Path,
    model: nn.Module,
    head: str,
    images: NDArray[np.generic],
    *,
    prepare: Prepare | None = None,
    hardware: Hardware | None = None,
) -> Outputs:
    """As `forward`, but read from `path` where it is whole; the caller answers for what `path` belongs to."""
    try:
        arrays = from_npz(read_file(path))
        if len(arrays["logits"]) == len(images):
            return Outputs(arrays["logits"], arrays["features"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        pass
    found = forward(model, head, images, prepare=prepare, hardware=hardware)
    write_atomically(path, to_npz({"logits": found.logits, "features": found.features}))
    return found
