"""IM: Chen et al., "Mandoline: Model Evaluation under Distribution Shift" (ICML 2021), with confidence as the slice."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from projnorm.core.statistics import Floats
from projnorm.estimators.base import LEARNT, SupervisedEstimator, register
from projnorm.estimators.softmax import probabilities
from projnorm.outputs.outputs import Outputs

BINS = 10


@register
class ImportanceWeighting(SupervisedEstimator):
    """The error in distribution, with samples weighted as their confidences are found in the target.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(ImportanceWeighting().fit(source).score(target), 3)
    0.228

    Attributes:
        shares: Share of the labelled samples in each of ten equally wide bins of confidence.
        right: Share of all labelled samples that are in a bin and predicted rightly.
    """

    shares: Floats = LEARNT
    right: Floats = LEARNT

    name = "IM"

    def _fit(self, source: Outputs) -> ImportanceWeighting:
        bins = _bins(source.logits)
        right = source.predicted == source.known_labels
        return replace(self, shares=_shares(bins), right=np.bincount(bins, right, BINS) / len(bins))

    def _score(self, target: Outputs) -> float:
        """The predicted error; nan where no labelled sample is as sure as any of the target."""
        target_shares = _shares(_bins(target.logits))
        weights = np.divide(target_shares, self.shares, out=np.zeros(BINS), where=self.shares > 0.0)
        total = float(weights @ self.shares)
        return 1.0 - float(weights @ self.right) / total if total > 0.0 else math.nan


def _bins(logits: NDArray[np.floating]) -> NDArray[np.int64]:
    confidence = probabilities(logits).max(axis=1)
    return np.minimum((BINS * confidence).astype(np.int64), BINS - 1)


def _shares(bins: NDArray[np.int64]) -> Floats:
    return np.bincount(bins, minlength=BINS) / len(bins)
