"""Calibrated probabilities before every method that reads them: temperature scaling, or isotonic for two classes.

Guo et al., "On Calibration of Modern Neural Networks" (ICML 2017); for two classes the isotonic regression that CBPE
decides on, since one monotone function of one probability is well determined where a matrix of them is not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from projnorm.estimators.isotonic import Isotonic, needs_calibration
from projnorm.estimators.softmax import fit_temperature, probabilities
from projnorm.outputs.outputs import Outputs

# Smaller probabilities have no finite logarithm.
_SMALLEST = 1e-30


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """A calibration of probabilities, learnt from labelled samples.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, _ = example_outputs()
    >>> sure = replace(source, logits=3.0 * source.logits)
    >>> round(Scaling.fit(sure).temperature / Scaling.fit(source).temperature, 3)
    3.0

    Attributes:
        temperature: Number that logits are divided by.
        isotonic: Monotone function of the probability of the second of two classes; None where a temperature serves.
    """

    temperature: float
    isotonic: Isotonic | None = None

    @classmethod
    def fit(cls, source: Outputs) -> Scaling:
        """The calibration of labelled samples."""
        labels = source.known_labels
        if source.classes == 2:
            second = probabilities(source.logits)[:, 1]
            if needs_calibration(second, labels == 1):
                return cls(1.0, Isotonic.fit(second, labels == 1))
        return cls(fit_temperature(source.logits, labels))

    def __call__(self, outputs: Outputs) -> Outputs:
        """The outputs with calibrated logits; predicted classes stay those of the model."""
        logits = np.asarray(outputs.logits, dtype=np.float64) / self.temperature
        if self.isotonic is not None:
            second = self.isotonic(probabilities(logits)[:, 1])
            logits = np.log(np.maximum(np.column_stack([1.0 - second, second]), _SMALLEST))
        return replace(outputs, logits=logits, predictions=outputs.predicted)
