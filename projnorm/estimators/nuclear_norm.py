"""Nuclear norm: Deng et al., "Confidence and Dispersity Speak" (ICML 2023)."""

from __future__ import annotations

import math

import numpy as np

from projnorm.estimators.base import Estimator, register
from projnorm.estimators.softmax import probabilities
from projnorm.outputs.outputs import Outputs


@register
class NuclearNorm(Estimator):
    """Sum of the singular values of the matrix of probabilities, divided by the largest it can be.

    It is large where predictions are both sure and spread over the classes.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(NuclearNorm().fit(source).score(target), 3)
    0.801
    """

    name = "NuclearNorm"
    direction = "down"

    def _score(self, target: Outputs) -> float:
        rows = probabilities(target.logits)
        count, classes = rows.shape
        return float(np.linalg.svd(rows, compute_uv=False).sum() / math.sqrt(count * min(count, classes)))
