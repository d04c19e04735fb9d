"""CBPE, confidence-based performance estimation: Kivimaki et al. (2025), and the tool NannyML before it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from deep.estimators.base import LEARNT, SupervisedEstimator, register
from deep.estimators.softmax import Floats, probabilities
from deep.outputs import Outputs

# Probabilities nearer to each other than this count as one: rounding is not a step.
_NEAR = float(np.finfo(np.float64).resolution)


@register
@dataclass(frozen=True, eq=False)
class CBPE(SupervisedEstimator):
    """One less the mean probability of the predicted class, calibrated class by class with a monotone function.

    Attributes:
        knots: For each class, probabilities and what they are calibrated to; straight lines between, flat beyond.
    """

    knots: tuple[tuple[Floats, Floats], ...] = LEARNT

    name = "CBPE"

    def _fit(self, source: Outputs) -> CBPE:
        """An isotonic regression of being of a class on its probability, for each class."""
        rows, labels = probabilities(source.logits), source.known_labels
        return replace(self, knots=tuple(_isotonic(rows[:, one], labels == one) for one in range(source.classes)))

    def _score(self, target: Outputs) -> float:
        """The predicted error."""
        rows, predicted = probabilities(target.logits), target.predicted
        right = np.empty(len(rows))
        for one, (x, y) in enumerate(self.knots):
            members = predicted == one
            right[members] = np.interp(rows[members, one], x, y)
        return float(1.0 - right.mean())


def _isotonic(x: Floats, y: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """The non-decreasing function of `x` nearest to `y`, at the distinct values of `x`."""
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    starts = np.concatenate([[True], np.diff(x) >= _NEAR])
    runs = np.append(np.flatnonzero(starts), len(x))
    for first, stop in pairwise(runs.tolist()):  # in a run of near values a group may end too
        while stop - first > 1 and (first := first + int(np.searchsorted(x[first:stop] - x[first], _NEAR))) < stop:
            starts[first] = True
    group = np.cumsum(starts) - 1
    counts = np.bincount(group)
    means = np.bincount(group, y) / counts
    return x[starts], np.clip(isotonic_regression(means, weights=counts).x, 0.0, 1.0)
