"""BBSE: Lipton, Wang and Smola, "Detecting and Correcting for Label Shift with Black Box Predictors" (ICML 2018)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from deep.estimators.evidence import Evidence
from deep.estimators.softmax import Floats


@dataclass(frozen=True, slots=True, eq=False)
class BBSE:
    """The error in distribution with classes weighted as the target seems to have them, if only their shares differ.

    Attributes:
        confusion: Share of labelled samples by predicted class (row) and true class (column).
    """

    confusion: Floats

    name = "BBSE"
    direction = "up"
    is_error = True
    needs = ("outputs", "validation labels")

    @classmethod
    def of(cls, logits: NDArray[np.floating], labels: NDArray[np.int64]) -> BBSE:
        """Learn the confusion matrix."""
        confusion = np.zeros((logits.shape[1], logits.shape[1]))
        np.add.at(confusion, (logits.argmax(axis=1), labels), 1.0 / len(labels))
        return cls(confusion)

    def weights(self, evidence: Evidence) -> Floats:
        """Share of each class in the target over that in distribution: none negative, and shares that add up to one."""
        wanted = np.bincount(evidence.outputs.predicted, minlength=len(self.confusion)) / len(evidence.outputs.logits)
        found, _ = nnls(self.confusion, wanted)
        total = float(self.confusion.sum(axis=0) @ found)
        return found / total if total > 0.0 else np.ones(len(found))

    def score(self, evidence: Evidence) -> float:
        """The predicted error."""
        return float(1.0 - np.diagonal(self.confusion) @ self.weights(evidence))
