"""IM: Chen et al., "Mandoline: Model Evaluation under Distribution Shift" (ICML 2021), with confidence as the slice."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deep.estimators.evidence import Evidence
from deep.estimators.softmax import probabilities

BINS = 10


@dataclass(frozen=True, slots=True, eq=False)
class ImportanceWeighting:
    """The error in distribution, with samples weighted as their confidences are found in the target.

    Attributes:
        shares: Of the labelled samples in each of ten bins of confidence, equally wide.
        right: Share of all labelled samples that are in a bin and predicted rightly.
    """

    shares: NDArray[np.float64]
    right: NDArray[np.float64]

    name = "IM"
    direction = "up"
    is_error = True
    needs = ("outputs", "validation labels")

    @classmethod
    def of(cls, logits: NDArray[np.floating], labels: NDArray[np.int64]) -> ImportanceWeighting:
        """Learn from labelled in-distribution samples."""
        right = logits.argmax(axis=1) == labels
        bins = _bins(logits)
        return cls(_shares(bins), np.bincount(bins, right, BINS) / len(bins))

    def score(self, evidence: Evidence) -> float:
        """The predicted error; nan where no labelled sample is as sure as any of the target."""
        wanted = _shares(_bins(evidence.outputs.logits))
        weights = np.divide(wanted, self.shares, out=np.zeros(BINS), where=self.shares > 0.0)
        total = float(weights @ self.shares)
        return 1.0 - float(weights @ self.right) / total if total > 0.0 else math.nan


def _bins(logits: NDArray[np.floating]) -> NDArray[np.int64]:
    confidence = probabilities(logits).max(axis=1)
    return np.minimum((BINS * confidence).astype(np.int64), BINS - 1)


def _shares(bins: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.bincount(bins, minlength=BINS) / len(bins)
