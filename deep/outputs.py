"""One forward pass over a set of images, kept for every predictor that needs outputs only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deep.training import Hardware, Prepare, placed
from projnorm.runs import from_npz, to_npz, write_atomically

_BATCH = 250


@dataclass(frozen=True, slots=True, eq=False)
class Outputs:
    """What a network says of a set of images.

    Attributes:
        logits: Shape ``(n, classes)``.
        features: Inputs of the last layer, shape ``(n, width)``.
    """

    logits: NDArray[np.float32]
    features: NDArray[np.float32]

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
    modes = [(module, module.training) for module in model.modules()]
    placed(model, device, images=images.ndim == 4).eval()
    features: list[Tensor] = []
    logits: list[Tensor] = []
    hook = model.get_submodule(head).register_forward_pre_hook(lambda _, given: features.append(given[0].cpu()))
    try:
        with torch.no_grad():
            for start in range(0, len(images), _BATCH):
                x = torch.from_numpy(images[start : start + _BATCH]).to(device)
                x = x if prepare is None else prepare(x)
                if x.ndim == 4:
                    x = x.contiguous(memory_format=torch.channels_last)
                logits.append(model(x).cpu())
    finally:
        hook.remove()
        for module, training in modes:
            module.training = training
    found = Outputs(torch.cat(logits).numpy(), torch.cat(features).numpy())
    if not np.isfinite(found.logits).all():
        raise ValueError("the network's outputs are not finite; were its weights trained with too large a step?")
    return found


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
        arrays = from_npz(path.read_bytes())
        if len(arrays["logits"]) == len(images):
            return Outputs(arrays["logits"], arrays["features"])
    except (FileNotFoundError, ValueError, KeyError):
        pass
    found = forward(model, head, images, prepare=prepare, hardware=hardware)
    write_atomically(path, to_npz({"logits": found.logits, "features": found.features}))
    return found
