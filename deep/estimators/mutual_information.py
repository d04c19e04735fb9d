r"""Mutual information of inputs and predictions.

Bridle, Heading and MacKay, "Unsupervised Classifiers, Mutual Information and 'Phantom Targets'" (NIPS 1991); as a
predictor of the error it is ours. Like the nuclear norm it is large where predictions are both sure and spread over the
classes; it weighs the two in nats.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deep.estimators.evidence import Evidence
from deep.estimators.softmax import entropies, probabilities


@dataclass(frozen=True, slots=True)
class MutualInformation:
    r"""The entropy of the mean prediction less the mean entropy of predictions.

    .. math:: H\Bigl(\frac1m \sum_j p_j\Bigr) - \frac1m \sum_j H(p_j)
    """

    name = "MI"
    direction = "down"
    is_error = False
    needs = ("outputs",)

    def score(self, evidence: Evidence) -> float:
        """In nats, from 0 to the logarithm of the number of classes."""
        mean = probabilities(evidence.outputs.logits).mean(axis=0)
        spread = -float(np.sum(mean * np.log(mean, out=np.zeros_like(mean), where=mean > 0.0)))
        return spread - float(entropies(evidence.outputs.logits).mean())
