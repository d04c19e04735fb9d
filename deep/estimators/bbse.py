"""BBSE: Lipton, Wang and Smola, "Detecting and Correcting for Label Shift with Black Box Predictors" (ICML 2018)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import nnls

from deep.estimators.base import LEARNT, SupervisedEstimator, register
from deep.estimators.softmax import Floats
from deep.outputs import Outputs


@register
@dataclass(frozen=True, eq=False)
class BBSE(SupervisedEstimator):
    """The error in distribution with classes weighted as the target seems to have them, if only their shares differ.

    Attributes:
        confusion: Share of labelled samples by predicted class (row) and true class (column).
    """

    confusion: Floats = LEARNT

    name = "BBSE"

    def _fit(self, source: Outputs) -> BBSE:
        confusion = np.zeros((source.classes, source.classes))
        np.add.at(confusion, (source.predicted, source.known_labels), 1.0 / len(source))
        return replace(self, confusion=confusion)

    def weights(self, target: Outputs) -> Floats:
        """Share of each class in the target over that in distribution: none negative, and shares that add up to one."""
        wanted = np.bincount(target.predicted, minlength=len(self.confusion)) / len(target)
        weights, _ = nnls(self.confusion, wanted)
        total = float(self.confusion.sum(axis=0) @ weights)
        return weights / total if total > 0.0 else np.ones(len(weights))

    def _score(self, target: Outputs) -> float:
        """The predicted error."""
        return float(1.0 - np.diagonal(self.confusion) @ self.weights(target))
