"""ConfScore: Hendrycks and Gimpel, "A Baseline for Detecting Misclassified and Out-of-Distribution Examples" (2016)."""

from __future__ import annotations

from projnorm.estimators.base import Estimator, register
from projnorm.estimators.softmax import probabilities
from projnorm.outputs.outputs import Outputs


@register
class ConfScore(Estimator):
    """One less the mean confidence: the error if every confidence were a probability of being right.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(ConfScore().fit(source).score(target), 3)
    0.243
    """

    name = "ConfScore"
    is_error = True

    def _score(self, target: Outputs) -> float:
        return float(1.0 - probabilities(target.logits).max(axis=1).mean())
