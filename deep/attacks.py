"""Adversarial images: projected gradient ascent on the loss, inside a cube around each image."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from deep.training import Prepare, placed
from projnorm.errors import InputError

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
    device: str = "cpu",
) -> NDArray[np.float32]:
    """Images that the network gets wrong more often, no pixel farther than `eps` from that of the original.

    Untargeted: each step, of size ``2.5 eps / steps``, goes along the sign of the gradient of the cross-entropy with
    the true label, then back into the cube and into 0 to 255.

    Args:
        model: Classifier to attack; its mode and weights are as before afterwards.
        images: Images with values from 0 to 255, one per row.
        labels: True classes of the images.
        eps: Largest change of a pixel, in 255ths.
        steps: Number of steps.
        start: Seed of a uniformly drawn start inside the cube; the images themselves by default.
        prepare: Function applied to every batch before the network; it must let gradients through.
        device: Device that the network runs on.
    """
    if not eps >= 0.0 or steps < 1:
        raise InputError(f"`eps` must not be negative and `steps` must be at least 1; got {eps} and {steps}.")
    place = torch.device(device)
    modes = [(module, module.training) for module in model.modules()]
    trainable = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    placed(model, place, images=images.ndim == 4).eval().requires_grad_(False)
    draws = None if start is None else np.random.default_rng(start)
    results = []
    try:
        for first in range(0, len(images), _BATCH):
            x = torch.from_numpy(np.asarray(images[first : first + _BATCH], dtype=np.float32))
            y = torch.from_numpy(labels[first : first + _BATCH]).to(place)
            shift = (
                torch.zeros_like(x) if draws is None else torch.from_numpy(draws.uniform(-eps, eps, x.shape)).float()
            )
            low, high = (x - eps).clamp(0.0, PIXELS).to(place), (x + eps).clamp(0.0, PIXELS).to(place)
            attacked = torch.clamp(x.to(place) + shift.to(place), low, high)
            for _ in range(steps):
                attacked.requires_grad_(True)
                seen = attacked if prepare is None else prepare(attacked)
                (slope,) = torch.autograd.grad(_log_odds(model(seen), y).sum(), attacked)
                attacked = torch.clamp(attacked.detach() + _CROSSINGS * eps / steps * slope.sign(), low, high)
            results.append(attacked.cpu().numpy())
    finally:
        for module, training in modes:
            module.training = training
        for parameter, wanted in trainable:
            parameter.requires_grad_(wanted)
    return np.concatenate(results)


def _log_odds(logits: Tensor, labels: Tensor) -> Tensor:
    """Log odds of the wrong classes.

    The cross-entropy rises with them, so the gradients of both have the same signs, but this one never vanishes.
    """
    right = functional.one_hot(labels, logits.shape[1]).bool()
    return logits.masked_fill(right, float("-inf")).logsumexp(dim=1) - logits[right]
