r"""COT and COTT: Lu et al., "Characterizing Out-of-Distribution Error via Optimal Transport" (NeurIPS 2023).

The rows of probabilities, each of mass :math:`1/m`, are moved onto the corners of the simplex, which have the shares of
the classes in distribution. The cost is half the :math:`\ell_1` distance, which from a row to a corner is
:math:`1 - p_k`, so the problem has :math:`m \times K` unknowns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deep.estimators.atc import threshold_below
from deep.estimators.evidence import Evidence
from deep.estimators.softmax import Floats, probabilities

# Of the network simplex; a problem of 10,000 rows and 100 classes takes far fewer.
_MOST_STEPS = 10_000_000


@dataclass(frozen=True, slots=True, eq=False)
class COT:
    """The cost of moving the predicted probabilities onto labels that have the class shares of the training data.

    Attributes:
        shares: Of the classes in distribution.
    """

    shares: Floats

    name = "COT"
    direction = "up"
    is_error = True
    needs = ("outputs", "validation labels")

    @classmethod
    def of(cls, logits: NDArray[np.floating], labels: NDArray[np.int64]) -> COT:
        """Learn the shares; the logits only tell how many classes there are."""
        return cls(class_shares(labels, logits.shape[1]))

    def score(self, evidence: Evidence) -> float:
        """The predicted error."""
        return float(transport_costs(probabilities(evidence.outputs.logits), self.shares).mean())


@dataclass(frozen=True, slots=True, eq=False)
class COTT:
    """The share of samples that cost more to move than a threshold learnt from labelled ones.

    Attributes:
        shares: Of the classes in distribution.
        threshold: As many labelled samples cost more as are predicted wrongly; on the costs with their sign turned.
    """

    shares: Floats
    threshold: float

    name = "COTT"
    direction = "up"
    is_error = True
    needs = ("outputs", "validation labels")

    @classmethod
    def of(cls, logits: NDArray[np.floating], labels: NDArray[np.int64]) -> COTT:
        """Learn shares and threshold."""
        shares = class_shares(labels, logits.shape[1])
        wrong = int(np.sum(logits.argmax(axis=1) != labels))
        return cls(shares, threshold_below(-transport_costs(probabilities(logits), shares), wrong))

    def score(self, evidence: Evidence) -> float:
        """The predicted error."""
        costs = transport_costs(probabilities(evidence.outputs.logits), self.shares)
        return float(np.mean(-costs < self.threshold))


def class_shares(labels: NDArray[np.int64], classes: int) -> Floats:
    """How much of the labels each class has."""
    return np.bincount(labels, minlength=classes) / len(labels)


def transport_costs(rows: Floats, shares: Floats) -> Floats:
    """What each row pays in the cheapest plan, shape ``(m,)``; their mean is the cost of the plan.

    Args:
        rows: Probabilities, shape ``(m, classes)``.
        shares: Mass of each class; they add up to one.
    """
    import ot

    cost = 1.0 - rows
    count = len(rows)
    plan = ot.emd(np.full(count, 1.0 / count), shares, cost, numItermax=_MOST_STEPS)
    return count * (plan * cost).sum(axis=1)
