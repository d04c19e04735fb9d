"""CBPE, confidence-based performance estimation: Kivimaki et al. (2025), and the tool NannyML before it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deep.estimators.evidence import Evidence
from deep.estimators.softmax import Floats, probabilities


@dataclass(frozen=True, slots=True, eq=False)
class CBPE:
    """One less the mean probability of the predicted class, calibrated class by class with a monotone function.

    Attributes:
        knots: For each class, probabilities and what they are calibrated to; straight lines between, flat beyond.
        spread: Standard deviation of being right on the labelled samples.
    """

    knots: tuple[tuple[Floats, Floats], ...]
    spread: float

    name = "CBPE"
    direction = "up"
    is_error = True
    needs = ("outputs", "validation labels")

    @classmethod
    def of(cls, logits: NDArray[np.floating], labels: NDArray[np.int64]) -> CBPE:
        """Fit an isotonic regression of being of a class on its probability, for each class."""
        from sklearn.isotonic import IsotonicRegression

        rows = probabilities(logits)
        knots = []
        for one in range(rows.shape[1]):
            fitted = IsotonicRegression(y_min=0.0, y_max=1.0).fit(rows[:, one], labels == one)
            knots.append((fitted.X_thresholds_, fitted.y_thresholds_))
        return cls(tuple(knots), float(np.std(rows.argmax(axis=1) == labels)))

    def score(self, evidence: Evidence) -> float:
        """The predicted error."""
        rows, predicted = probabilities(evidence.outputs.logits), evidence.outputs.predicted
        right = np.empty(len(rows))
        for one, (x, y) in enumerate(self.knots):
            members = predicted == one
            right[members] = np.interp(rows[members, one], x, y)
        return float(1.0 - right.mean())

    def sampling_error(self, m: int) -> float:
        """Standard deviation that the true error of `m` samples has from being of so many."""
        return self.spread / math.sqrt(m)
