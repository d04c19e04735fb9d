"""Entropy: Guillory et al., "Predicting with Confidence on Unseen Distributions" (ICCV 2021)."""

from __future__ import annotations

from deep.estimators.base import Estimator, register
from deep.estimators.softmax import entropies
from deep.outputs import Outputs


@register
class Entropy(Estimator):
    """The mean entropy of the predicted probabilities."""

    name = "Entropy"

    def _score(self, target: Outputs) -> float:
        return float(entropies(target.logits).mean())
