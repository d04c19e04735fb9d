r"""Dis^2: Rosenfeld and Garg, "(Almost) Provable Error Bounds Under Distribution Shift via Disagreement Discrepancy".

NeurIPS 2023. A critic, linear in the features, agrees with the network in distribution and disagrees with it on the
target as much as it can. If no critic does so more than the truth itself,

.. math:: \mathrm{err}_T \le \mathrm{err}_S + \max_h(\mathrm{agree}_S - \mathrm{agree}_T)
          + \sqrt{\frac{(n_S + 4 n_T) \log(1/\delta)}{2 n_S n_T}}

with probability :math:`1 - \delta`, where agreements are those on the halves of both sets that the critics were not
trained on, and :math:`n_S` and :math:`n_T` count these; the error in distribution is that on all of the source.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from deep.estimators.evidence import Evidence
from deep.outputs import Outputs

_STEPS = 200
_LR = 0.05
# Steps after which every critic is looked at: the one that disagrees most need not be the last.
_EVERY = 20


@dataclass(frozen=True, slots=True, eq=False)
class Dis2:
    """An upper bound on the error.

    Attributes:
        source: Outputs on labelled in-distribution samples.
        error: Of the network on them.
        restarts: Critics, trained from weights drawn anew.
        delta: Probability with which the bound may fail.
        seed: Of the halves and of the critics.
    """

    source: Outputs
    error: float
    restarts: int = 10
    delta: float = 0.05
    seed: int = 0

    name = "Dis2"
    direction = "up"
    is_error = False  # it is a bound on one
    needs = ("features", "validation labels", "training of critics")

    @classmethod
    def of(cls, outputs: Outputs, labels: NDArray[np.int64], *, seed: int = 0) -> Dis2:
        """Learn from labelled in-distribution samples; half of them train the critics."""
        return cls(outputs, outputs.error(labels), seed=seed)

    def score(self, evidence: Evidence) -> float:
        """The bound, at most 1; nan with fewer than two samples on either side."""
        target = evidence.outputs
        if min(len(self.source.logits), len(target.logits)) < 2:
            return math.nan
        rng = np.random.default_rng(self.seed)
        halves = [_halves(outputs, rng) for outputs in (self.source, target)]
        discrepancy = self._largest_discrepancy(halves[0], halves[1])
        n_source, n_target = (len(held_out[1]) for _, held_out in halves)
        slack = (n_source + 4 * n_target) * math.log(1.0 / self.delta) / (2 * n_source * n_target)
        return min(1.0, self.error + discrepancy + math.sqrt(slack))

    def _largest_discrepancy(self, source: tuple[_Half, _Half], target: tuple[_Half, _Half]) -> float:
        """The largest difference of agreements on the held-out halves, over all critics and never below zero."""
        (x, y), (x_held, y_held) = source
        (u, v), (u_held, v_held) = target
        centre, spread = x.mean(dim=0), x.std(dim=0, unbiased=False).clamp_min(1e-6)
        x, x_held, u, u_held = (_with_offset((part - centre) / spread) for part in (x, x_held, u, u_held))
        drawn = torch.Generator().manual_seed(self.seed)
        classes = self.source.logits.shape[1]
        shape = (self.restarts, x.shape[1], classes)
        critics = (torch.randn(shape, generator=drawn) / math.sqrt(x.shape[1])).requires_grad_()
        optimiser = torch.optim.Adam([critics], lr=_LR)
        largest = 0.0
        for step in range(1, _STEPS + 1):
            optimiser.zero_grad()
            loss = 0.5 * (_agreement_loss(x @ critics, y) + _disagreement_loss(u @ critics, v)) * self.restarts
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            if step % _EVERY == 0:
                with torch.no_grad():
                    found = _agreement(x_held @ critics, y_held) - _agreement(u_held @ critics, v_held)
                largest = max(largest, float(found.max()))
        return largest


# Features and predicted classes.
_Half = tuple[Tensor, Tensor]


def _halves(outputs: Outputs, rng: np.random.Generator) -> tuple[_Half, _Half]:
    order = rng.permutation(len(outputs.logits))
    parts = np.array_split(order, 2)
    first, second = (
        (
            torch.from_numpy(np.asarray(outputs.features[part], dtype=np.float32)),
            torch.from_numpy(outputs.predicted[part]),
        )
        for part in parts
    )
    return first, second


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
