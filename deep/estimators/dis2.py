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
from dataclasses import replace

import numpy as np

from projnorm.estimators.base import LEARNT, Estimator, register
from projnorm.outputs.outputs import Outputs


@register
class Dis2(Estimator):
    """An upper bound on the error.

    Attributes:
        restarts: Number of critics, each trained from weights of its own.
        delta: Probability with which the bound may fail.
        seed: Seed of the halves and of the critics.
        source: Outputs on labelled in-distribution samples; half of them train the critics.
    """

    restarts: int = 10
    delta: float = 0.05
    seed: int = 0
    source: Outputs = LEARNT

    name = "Dis2"
    needs = frozenset({"torch", "features", "labels"})
    costly = True

    def _fit(self, source: Outputs) -> Dis2:
        return replace(self, source=source)

    def _score(self, target: Outputs) -> float:
        """The bound, at most 1; nan with fewer than two samples on either side."""
        if min(len(self.source), len(target)) < 2:
            return math.nan
        from deep.training.dis2_critic import largest_discrepancy

        rng = np.random.default_rng(self.seed)
        discrepancy = largest_discrepancy(self.source, target, restarts=self.restarts, seed=self.seed, rng=rng)
        n_source, n_target = len(self.source) // 2, len(target) // 2
        slack = (n_source + 4 * n_target) * math.log(1.0 / self.delta) / (2 * n_source * n_target)
        return min(1.0, self.source.error + discrepancy + math.sqrt(slack))
