"""What happens to inputs and networks before a forward pass: a device, a memory layout, one thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from projnorm.core.device import torch_threads

Prepare = Callable[[Tensor], Tensor]


@contextmanager
def one_thread(device: str) -> Iterator[None]:
    """On the CPU one thread of torch and of BLAS, so that numbers do not depend on how many tasks run at once."""
    if device != "cpu":
        yield
        return
    with torch_threads(1), threadpool_limits(1):
        yield


def placed(model: nn.Module, device: torch.device, *, images: bool) -> nn.Module:
    """The network on a device; for images with channels last, which convolutions are fastest on."""
    model.to(device)
    return model.to(memory_format=torch.channels_last) if images else model  # type: ignore[call-overload]


def prepared(inputs: NDArray[np.generic], prepare: Prepare | None, device: torch.device) -> Tensor:
    """A batch on a device, as the network sees it; images with channels last."""
    x = torch.from_numpy(inputs).to(device)
    x = x if prepare is None else prepare(x)
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x
