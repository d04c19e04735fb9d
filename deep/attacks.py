"""Adversarial images: projected gradient ascent on the loss, inside a cube around each image."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from deep.training import Hardware, Prepare, placed

PIXELS = 255.0
# Steps may cross the cube this often.
_CROSSINGS = 2.5
_BATCH = 250


def pgd(
    model: nn.Module,
    images: NDArray[np.generic],
    labels: NDArray[np.int64],
    *,
    eps: float,
    steps: int = 20,
    start: int | None = None,
    prepare: Prepare | None = None,
    hardware: Hardware | None = None,
) -> NDArray[np.float32]:
    """Images that the network gets wrong more often, no pixel farther than `eps` from the given one.

    Untargeted: each step, of size ``2.5 eps / steps``, goes along the sign of the gradient of the cross-entropy with
    the true label, then back into the cube and into 0 to 255.

    Args:
        model: A classifier; its mode and weights are as before afterwards.
        images: With values from 0 to 255, one sample per row.
        labels: True classes.
        eps: In 255ths.
        steps: Number of steps.
        start: Seed of a uniformly drawn start inside the cube; the images themselves by default.
        prepare: Applied to every batch before the network; it must let gradients through.
        hardware: Where; the CPU by default.

    Raises:
        ValueError: If `eps` is negative, or there is no step.
    """
    if not eps >= 0.0 or steps < 1:
        raise ValueError(f"`eps` must not be negative and `steps` must be at least 1; got {eps} and {steps}.")
    device = torch.device((hardware or Hardware()).device)
    modes = [(module, module.training) for module in model.modules()]
    trainable = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    placed(model, device, images=images.ndim == 4).eval().requires_grad_(False)
    draws = None if start is None else np.random.default_rng(start)
    found = []
    try:
        for first in range(0, len(images), _BATCH):
            x = torch.from_numpy(np.asarray(images[first : first + _BATCH], dtype=np.float32))
            y = torch.from_numpy(labels[first : first + _BATCH]).to(device)
            shift = (
                torch.zeros_like(x) if draws is None else torch.from_numpy(draws.uniform(-eps, eps, x.shape)).float()
            )
            low, high = (x - eps).clamp(0.0, PIXELS).to(device), (x + eps).clamp(0.0, PIXELS).to(device)
            attacked = torch.clamp(x.to(device) + shift.to(device), low, high)
            for _ in range(steps):
                attacked.requires_grad_(True)
                seen = attacked if prepare is None else prepare(attacked)
                (slope,) = torch.autograd.grad(_log_odds(model(seen), y).sum(), attacked)
                attacked = torch.clamp(attacked.detach() + _CROSSINGS * eps / steps * slope.sign(), low, high)
            found.append(attacked.cpu().numpy())
    finally:
        for module, training in modes:
            module.training = training
        for parameter, wanted in trainable:
            parameter.requires_grad_(wanted)
    return np.concatenate(found)


def _log_odds(logits: Tensor, labels: Tensor) -> Tensor:
    """Of the wrong classes: the cross-entropy rises with them, so both slopes have the same signs; this never fades."""
    right = functional.one_hot(labels, logits.shape[1]).bool()
    return logits.masked_fill(right, float("-inf")).logsumexp(dim=1) - logits[right]
