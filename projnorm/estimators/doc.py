"""AC and DoC: Guillory et al., "Predicting with Confidence on Unseen Distributions" (ICCV 2021)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from projnorm.estimators.base import LEARNT, SupervisedEstimator, register
from projnorm.estimators.softmax import fit_temperature, probabilities
from projnorm.outputs.outputs import Outputs


@register
class AC(SupervisedEstimator):
    """One less the mean probability of the predicted class, after temperature scaling.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(AC().fit(source).score(target), 3)
    0.268

    Attributes:
        temperature: Fitted on labelled in-distribution samples.
    """

    temperature: float = LEARNT

    name = "AC"

    def _fit(self, source: Outputs) -> AC:
        return replace(self, temperature=fit_temperature(source.logits, source.known_labels))

    def _score(self, target: Outputs) -> float:
        rows = probabilities(target.logits / self.temperature)
        return float(1.0 - rows[np.arange(len(rows)), target.predicted].mean())


@register
class DoC(SupervisedEstimator):
    """The error in distribution, and by how much confidence falls from there: ``err_S + AC_T - AC_S``, AC an error.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(DoC().fit(source).score(target), 3)
    0.26

    Attributes:
        confidence: The AC of the same samples.
        offset: Error on the labelled samples less their AC.

    Examples:
        >>> import numpy as np
        >>> import projnorm as pn
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(3, size=600)
        >>> logits = rng.normal(size=(600, 3)) + 2 * np.eye(3)[labels]
        >>> source = pn.Outputs(logits[:300], labels=labels[:300])
        >>> target = pn.Outputs(logits[300:] / 2)  # half as confident
        >>> round(pn.DoC().fit(source).score(target), 2)
        0.29
    """

    confidence: AC = LEARNT
    offset: float = LEARNT

    name = "DoC"

    def _fit(self, source: Outputs) -> DoC:
        confidence = AC().fit(source)
        return replace(self, confidence=confidence, offset=source.error - confidence.score(source))

    def _score(self, target: Outputs) -> float:
        """The predicted error, which may leave the interval from 0 to 1."""
        return self.confidence.score_unchecked(target) + self.offset
