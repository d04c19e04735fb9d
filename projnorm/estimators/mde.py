"""MDE: Peng et al., "Energy-based Automated Model Evaluation" (ICLR 2024)."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import logsumexp

from projnorm.estimators.base import Estimator, register
from projnorm.outputs.outputs import Outputs


@register
class MDE(Estimator):
    r"""The meta-distribution energy, from the energies :math:`E_j = -\log\sum_k e^{z_{jk}}`.

    .. math:: \log\left(\log m + \log \frac1m \sum_j e^{E_j} - \frac1m \sum_j E_j\right)

    It grows with m, so it is compared at equal m only. The surer a network is of some samples than of others, the
    larger it is; under shift that difference shrinks, so here it falls as the error rises.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(MDE().fit(source).score(target), 3)
    1.856
    """

    name = "MDE"
    direction = "down"

    def _score(self, target: Outputs) -> float:
        """The energy; nan for a single sample, where it is the logarithm of zero."""
        energies = -logsumexp(np.asarray(target.logits, dtype=np.float64), axis=1)
        inside = float(logsumexp(energies) - energies.mean())
        return math.log(inside) if inside > 0.0 else math.nan
