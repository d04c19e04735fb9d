"""Critics of Dis^2: linear in the features, they agree with a network on one set and disagree with it on another."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from projnorm.outputs.outputs import Outputs

_STEPS = 200
_LR = 0.05
# Steps after which every critic is looked at: the one that disagrees most need not be the last.
_EVERY = 20


def largest_discrepancy(
    source: Outputs, target: Outputs, *, restarts: int, seed: int, rng: np.random.Generator
) -> float:
    """The largest difference of agreements on the held-out halves, over all critics and never below zero.

    There are `restarts` critics, each trained from weights of its own, which `seed` draws; `rng` draws the halves, the
    source's first.
    """
    ((x, y), (x_held, y_held)), ((u, v), (u_held, v_held)) = (_halves(outputs, rng) for outputs in (source, target))
    centre, spread = x.mean(dim=0), x.std(dim=0, unbiased=False).clamp_min(1e-6)
    x, x_held, u, u_held = (_with_offset((part - centre) / spread) for part in (x, x_held, u, u_held))
    drawn = torch.Generator().manual_seed(seed)
    shape = (restarts, x.shape[1], source.classes)
    critics = (torch.randn(shape, generator=drawn) / math.sqrt(x.shape[1])).requires_grad_()
    optimiser = torch.optim.Adam([critics], lr=_LR)
    largest = 0.0
    for step in range(1, _STEPS + 1):
        optimiser.zero_grad()
        loss = 0.5 * (_agreement_loss(x @ critics, y) + _disagreement_loss(u @ critics, v)) * restarts
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if step % _EVERY == 0:
            with torch.no_grad():
                differences = _agreement(x_held @ critics, y_held) - _agreement(u_held @ critics, v_held)
            largest = max(largest, float(differences.max()))
    return largest


def _halves(outputs: Outputs, rng: np.random.Generator) -> list[tuple[Tensor, Tensor]]:
    """Features and predicted classes of either half."""
    features = torch.from_numpy(np.asarray(outputs.known_features, dtype=np.float32))
    predicted = torch.from_numpy(outputs.predicted)
    return [(features[part], predicted[part]) for part in np.array_split(rng.permutation(len(outputs)), 2)]


def _with_offset(x: Tensor) -> Tensor:
    return torch.cat([x, torch.ones(len(x), 1)], dim=1)


def _agreement_loss(logits: Tensor, predicted: Tensor) -> Tensor:
    """Cross-entropy with the network's labels, over all critics."""
    return functional.cross_entropy(logits.movedim(2, 1), predicted.expand(len(logits), -1))


def _disagreement_loss(logits: Tensor, predicted: Tensor) -> Tensor:
    """Softplus of the predicted class's logit over the mean of the others."""
    own = logits.gather(2, predicted.expand(len(logits), -1)[..., None])[..., 0]
    rest = (logits.sum(dim=2) - own) / max(1, logits.shape[2] - 1)
    return functional.softplus(own - rest).mean()


def _agreement(logits: Tensor, predicted: Tensor) -> Tensor:
    """How often each critic agrees."""
    return (logits.argmax(dim=2) == predicted).to(torch.float32).mean(dim=1)
