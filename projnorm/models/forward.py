"""One forward pass of a network over a set of samples, for every method that needs outputs only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from projnorm.core.errors import InputError
from projnorm.models.preparation import Prepare, placed, prepared
from projnorm.outputs.outputs import BATCH, Outputs


def forward(
    model: nn.Module,
    head: str,
    inputs: NDArray[np.generic],
    *,
    prepare: Prepare | None = None,
    device: str = "cpu",
) -> Outputs:
    """Outputs in eval mode, without gradients; `head` names the last layer, whose inputs are the features."""
    target_device = torch.device(device)
    placed(model, target_device, images=inputs.ndim == 4)
    starts = range(0, len(inputs), BATCH)
    batches = (prepared(inputs[start : start + BATCH], prepare, target_device) for start in starts)
    return forward_batches(model, head, batches)


def forward_batches(
    model: nn.Module, head: str | None, batches: Iterable[Any], *, call: Callable[[Any], Tensor] | None = None
) -> Outputs:
    """As `forward`, on batches that are on the network's device and need no preparation.

    Without a `head` there are no features; `call` is the function from a batch to logits, by default the network.
    """
    features: list[Tensor] = []
    with in_eval_mode(model), ExitStack() as hooks, torch.no_grad():
        if head is not None:
            layer = model.get_submodule(head)
            hook = layer.register_forward_pre_hook(lambda _, entering: features.append(_plain(entering[0])))
            hooks.enter_context(hook)
        logits = torch.cat([(call or model)(batch).cpu() for batch in batches]).numpy()
    if not np.isfinite(logits).all():
        raise InputError("the network's outputs are not finite; were its weights trained with too large a step?")
    return Outputs(logits, torch.cat(features).numpy() if features else None)


@contextmanager
def in_eval_mode(model: nn.Module) -> Iterator[None]:
    """The network in eval mode; the mode of every module is as before afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _plain(values: Tensor) -> Tensor:
    """The values on the CPU, in a type that numpy has."""
    values = values.detach().cpu()
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values
