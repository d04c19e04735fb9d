"""COT and COTT: Lu et al., "Characterizing Out-of-Distribution Error via Optimal Transport" (NeurIPS 2023).

The rows of probabilities are moved onto labels that have the shares of the classes in distribution, as
`projnorm.estimators.transport` says.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Self

import numpy as np

from projnorm.core.statistics import Floats
from projnorm.estimators.atc import threshold_below
from projnorm.estimators.base import LEARNT, SupervisedEstimator, register
from projnorm.estimators.class_shares import label_shares
from projnorm.estimators.softmax import probabilities
from projnorm.estimators.transport import transport
from projnorm.outputs.outputs import Outputs


@register
class COT(SupervisedEstimator):
    """The cost of moving the predicted probabilities onto labels that have the class shares of the training data.

    The published method takes the predicted class to be the likeliest one. Where a model decides otherwise, what this
    costs in expectation is added.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(COT().fit(source).score(target), 3)
    0.248

    Attributes:
        shares: Share of each class in distribution.

    Examples:
        >>> import numpy as np
        >>> import projnorm as pn
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(3, size=600)
        >>> logits = rng.normal(size=(600, 3)) + 2 * np.eye(3)[labels]
        >>> source = pn.Outputs(logits[:300], labels=labels[:300])
        >>> target = pn.Outputs(logits[300:] / 2)  # half as confident
        >>> round(pn.COT().fit(source).score(target), 2)
        0.43
    """

    shares: Floats = LEARNT

    name = "COT"

    def _fit(self, source: Outputs) -> Self:
        return replace(self, shares=label_shares(source.known_labels, source.classes))

    def _score(self, target: Outputs) -> float:
        rows = probabilities(target.logits)
        return transport(rows, self.shares).cost + regret(rows, target)


@register
class COTT(COT):
    """The share of samples that cost more to move than a threshold learnt from labelled ones.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(COTT().fit(source).score(target), 3)
    0.32

    Attributes:
        threshold: As many labelled samples cost more as are predicted wrongly; on the costs with their sign turned.
    """

    threshold: float = LEARNT

    name = "COTT"

    def _fit(self, source: Outputs) -> Self:
        learnt = super()._fit(source)
        wrong = int(np.sum(source.predicted != source.known_labels))
        costs = transport(probabilities(source.logits), learnt.shares).costs
        return replace(learnt, threshold=threshold_below(-costs, wrong))

    def _score(self, target: Outputs) -> float:
        costs = transport(probabilities(target.logits), self.shares).costs
        return float(np.mean(-costs < self.threshold))


def regret(rows: Floats, outputs: Outputs) -> float:
    """How much more often predicted classes are wrong than the likeliest ones, if the probabilities are right."""
    return float((rows.max(axis=1) - rows[np.arange(len(rows)), outputs.predicted]).mean())
