r"""Mutual information of inputs and predictions.

Deng et al., "Confidence and Dispersity Speak: Characterising Prediction Matrix for Unsupervised Accuracy Estimation"
(ICML 2023), use it beside the nuclear norm to predict the error; the quantity is that of Bridle, Heading and MacKay,
"Unsupervised Classifiers, Mutual Information and 'Phantom Targets'" (NIPS 1991). It is large where predictions are both
sure and spread over the classes.
"""

from __future__ import annotations

import numpy as np

from projnorm.estimators.base import Estimator, register
from projnorm.estimators.softmax import entropies, probabilities
from projnorm.outputs.outputs import Outputs


@register
class MutualInformation(Estimator):
    r"""The entropy of the mean prediction less the mean entropy of predictions.

    .. math:: H\Bigl(\frac1m \sum_j p_j\Bigr) - \frac1m \sum_j H(p_j)


    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(MutualInformation().fit(source).score(target), 3)
    0.52
    """

    name = "MI"
    direction = "down"

    def _score(self, target: Outputs) -> float:
        """The mutual information in nats, from 0 to the logarithm of the number of classes."""
        mean = probabilities(target.logits).mean(axis=0)
        spread = -float(np.sum(mean * np.log(mean, out=np.zeros_like(mean), where=mean > 0.0)))
        return spread - float(entropies(target.logits).mean())
