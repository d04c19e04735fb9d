"""AC and DoC: Guillory et al., "Predicting with Confidence on Unseen Distributions" (ICCV 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deep.estimators.evidence import Evidence
from deep.estimators.softmax import probabilities
from deep.estimators.temperature import fit_temperature


@dataclass(frozen=True, slots=True)
class AC:
    """One less the mean confidence, after temperature scaling.

    Attributes:
        temperature: Fitted on labelled in-distribution samples.
    """

    temperature: float

    name = "AC"
    direction = "up"
    is_error = True
    needs = ("outputs", "validation labels")

    @classmethod
    def of(cls, logits: NDArray[np.floating], labels: NDArray[np.int64]) -> AC:
        """Fit the temperature."""
        return cls(fit_temperature(logits, labels))

    def score(self, evidence: Evidence) -> float:
        """The predicted error."""
        return self.of_logits(evidence.outputs.logits)

    def of_logits(self, logits: NDArray[np.floating]) -> float:
        """The same from logits."""
        return float(1.0 - probabilities(logits / self.temperature).max(axis=1).mean())


@dataclass(frozen=True, slots=True)
class DoC:
    """The error in distribution, and by how much confidence falls from there: ``err_S + AC_T - AC_S``, AC an error.

    Attributes:
        confidence: AC with its temperature.
        offset: Error less AC on the labelled samples.
    """

    confidence: AC
    offset: float

    name = "DoC"
    direction = "up"
    is_error = True
    needs = ("outputs", "validation labels")

    @classmethod
    def of(cls, logits: NDArray[np.floating], labels: NDArray[np.int64]) -> DoC:
        """Learn from labelled in-distribution samples."""
        confidence = AC.of(logits, labels)
        error = float(np.mean(logits.argmax(axis=1) != labels))
        return cls(confidence, error - confidence.of_logits(logits))

    def score(self, evidence: Evidence) -> float:
        """The predicted error, which may leave the interval from 0 to 1."""
        return self.confidence.score(evidence) + self.offset
