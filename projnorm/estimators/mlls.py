"""MLLS: Alexandari, Kundaje and Shrikumar (ICML 2020), and what its class shares say of the error.

The paper is "Maximum Likelihood with Bias-Corrected Calibration is Hard-To-Beat at Label Shift Adaptation".
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from projnorm.core.statistics import Floats
from projnorm.estimators.base import LEARNT, SupervisedEstimator, register
from projnorm.estimators.class_shares import maximum_likelihood_shares
from projnorm.estimators.cot import regret
from projnorm.estimators.softmax import BiasCorrected, fit_temperature, probabilities
from projnorm.estimators.transport import transport
from projnorm.outputs.outputs import Outputs


@register
class MLLS(SupervisedEstimator):
    r"""The error of each class in distribution, weighted by the likeliest class shares of the target.

    .. math:: \sum_k q_k \, \mathrm{err}_k

    It is right where nothing but the class shares differs.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(MLLS().fit(source).score(target), 3)
    0.143

    Attributes:
        scaling: Bias-corrected temperature scaling, fitted on labelled samples.
        source_shares: Mean scaled probability of each class on them.
        errors: Error of each class on them, with the error of all counted as one sample more.
    """

    scaling: BiasCorrected = LEARNT
    source_shares: Floats = LEARNT
    errors: Floats = LEARNT

    name = "MLLS"

    def _fit(self, source: Outputs) -> MLLS:
        scaling = BiasCorrected.fit(source.logits, source.known_labels)
        shares = scaling.probabilities(source.logits).mean(axis=0)
        return replace(self, scaling=scaling, source_shares=shares, errors=class_errors(source))

    def shares(self, target: Outputs) -> Floats:
        """Share of each class in the target."""
        return maximum_likelihood_shares(self.scaling.probabilities(target.logits), self.source_shares)

    def _score(self, target: Outputs) -> float:
        return float(self.shares(target) @ self.errors)


@register
class COTMLLS(SupervisedEstimator):
    """COT on temperature-scaled probabilities, onto the class shares of MLLS instead of those in distribution.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(COTMLLS().fit(source).score(target), 3)
    0.271

    Attributes:
        label_shift: MLLS of the same samples, for its class shares.
        temperature: Temperature of the probabilities that are moved.
    """

    label_shift: MLLS = LEARNT
    temperature: float = LEARNT

    name = "COT-MLLS"

    def _fit(self, source: Outputs) -> COTMLLS:
        temperature = fit_temperature(source.logits, source.known_labels)
        return replace(self, label_shift=MLLS().fit(source), temperature=temperature)

    def _score(self, target: Outputs) -> float:
        rows = probabilities(target.logits / self.temperature)
        return transport(rows, self.label_shift.shares(target)).cost + regret(rows, target)


@register
class COTAdapted(MLLS):
    r"""COT of probabilities that are adapted to the class shares of MLLS, and what predicting without them adds.

    .. math:: \mathrm{COT}(A, q) + \frac1m \sum_j \bigl(\max_k A_{jk} - A_{j \hat y_j}\bigr), \qquad
              A_{jk} \propto \frac{q_k}{p_k} P_{jk}

    The transport says how wrong the best prediction for these shares would be; the network predicts for those of the
    source, and the second term is how much more often it is wrong if the adapted probabilities are right.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(COTAdapted().fit(source).score(target), 3)
    0.271
    """

    name = "COT-adapted"

    def _score(self, target: Outputs) -> float:
        shares = self.shares(target)
        rows = self.scaling.probabilities(target.logits) * (shares / self.source_shares)
        rows /= rows.sum(axis=1, keepdims=True)
        return transport(rows, shares).cost + regret(rows, target)


def class_errors(source: Outputs) -> Floats:
    """Error of each class, with the error of all counted as one sample more."""
    labels, classes = source.known_labels, source.classes
    wrong = np.bincount(labels, source.predicted != labels, minlength=classes)
    return (wrong + source.error) / (np.bincount(labels, minlength=classes) + 1.0)
