r"""COT and COTT: Lu et al., "Characterizing Out-of-Distribution Error via Optimal Transport" (NeurIPS 2023).

The rows of probabilities, each of mass :math:`1/m`, are moved onto the corners of the simplex, which have the shares of
the classes in distribution. The cost is half the :math:`\ell_1` distance, which from a row to a corner is
:math:`1 - p_k`, so the problem has :math:`m \times K` unknowns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from deep.estimators.atc import threshold_below
from deep.estimators.base import LEARNT, SupervisedEstimator, register
from deep.estimators.softmax import Floats, probabilities
from deep.outputs import Outputs

# Most steps of the network simplex; a problem of 10,000 rows and 100 classes takes far fewer.
_MOST_STEPS = 10_000_000


@register
class COT(SupervisedEstimator):
    """The cost of moving the predicted probabilities onto labels that have the class shares of the training data.

    Attributes:
        shares: Share of each class in distribution.
    """

    shares: Floats = LEARNT

    name = "COT"

    def _fit(self, source: Outputs) -> Self:
        return replace(self, shares=class_shares(source.known_labels, source.classes))

    def _score(self, target: Outputs) -> float:
        return float(transport_costs(probabilities(target.logits), self.shares).mean())


@register
class COTT(COT):
    """The share of samples that cost more to move than a threshold learnt from labelled ones.

    Attributes:
        threshold: As many labelled samples cost more as are predicted wrongly; on the costs with their sign turned.
    """

    threshold: float = LEARNT

    name = "COTT"

    def _fit(self, source: Outputs) -> Self:
        learnt = super()._fit(source)
        wrong = int(np.sum(source.predicted != source.known_labels))
        costs = transport_costs(probabilities(source.logits), learnt.shares)
        return replace(learnt, threshold=threshold_below(-costs, wrong))

    def _score(self, target: Outputs) -> float:
        costs = transport_costs(probabilities(target.logits), self.shares)
        return float(np.mean(-costs < self.threshold))


def class_shares(labels: NDArray[np.int64], classes: int) -> Floats:
    """How much of the labels each class has."""
    return np.bincount(labels, minlength=classes) / len(labels)


def transport_costs(rows: Floats, shares: Floats) -> Floats:
    """Cost of each row of probabilities in the cheapest plan onto `shares` of the classes; its mean is the plan's."""
    import ot  # it imports torch where that is installed, which takes a second

    cost = 1.0 - rows
    count = len(rows)
    plan = ot.emd(np.full(count, 1.0 / count), shares, cost, numItermax=_MOST_STEPS)
    return count * (plan * cost).sum(axis=1)
