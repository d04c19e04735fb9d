"""Entropy: Guillory et al., "Predicting with Confidence on Unseen Distributions" (ICCV 2021)."""

from __future__ import annotations

from projnorm.estimators.base import Estimator, register
from projnorm.estimators.softmax import entropies
from projnorm.outputs.outputs import Outputs


@register
class Entropy(Estimator):
    """The mean entropy of the predicted probabilities.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(Entropy().fit(source).score(target), 3)
    0.579
    """

    name = "Entropy"

    def _score(self, target: Outputs) -> float:
        return float(entropies(target.logits).mean())
