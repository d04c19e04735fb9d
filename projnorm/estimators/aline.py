r"""ALine-S and ALine-D: Baek et al., "Agreement-on-the-Line" (NeurIPS 2022).

Over several networks, accuracy under shift lies on a line in accuracy without it, once both are sent through the probit
:math:`\Phi^{-1}`; and how often two networks agree lies on the same line, which needs no labels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from projnorm.core.statistics import Floats
from projnorm.estimators.base import LEARNT, SupervisedEstimator, register
from projnorm.outputs.outputs import Outputs

# Agreements outside say little: probits of numbers near 0 or 1 are mostly noise.
LEAST, MOST = 0.05, 0.98


@dataclass(frozen=True, eq=False)
class _OnTheLine(SupervisedEstimator):
    """What both variants learn: probits on the labelled samples.

    Attributes:
        accuracies: Probit of the accuracy of each network, the evaluated one first.
        agreements: Probit of the agreement of each pair, in the order of `itertools.combinations`.
    """

    accuracies: Floats = LEARNT
    agreements: Floats = LEARNT

    needs = frozenset({"others", "labels"})

    def _fit(self, source: Outputs) -> Self:
        predicted, labels = _predicted(source), source.known_labels
        accuracies = _probits([np.mean(row == labels) for row in predicted], len(labels))
        return replace(self, accuracies=accuracies, agreements=_agreements(predicted))

    def slope(self, agreements: Floats) -> tuple[float, float]:
        """Slope and offset from agreements in distribution to those under shift; nan where there are too few."""
        if len(agreements) != len(self.agreements):
            return math.nan, math.nan
        low, high = ndtri([LEAST, MOST])
        usable = np.all([(a >= low) & (a <= high) for a in (self.agreements, agreements)], axis=0)
        x, y = self.agreements[usable], agreements[usable]
        if len(x) < 2 or np.ptp(x) == 0.0:
            return math.nan, math.nan
        slope = float(np.cov(x, y, bias=True)[0, 1] / x.var())
        return slope, float(y.mean() - slope * x.mean())


@register
class ALineS(_OnTheLine):
    """The accuracy in distribution, moved along the line that agreements lie on.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(ALineS().fit(source).score(target), 3)
    0.175
    """

    name = "ALine-S"

    def _score(self, target: Outputs) -> float:
        """The predicted error; nan where fewer than two agreements are between 0.05 and 0.98."""
        slope, offset = self.slope(_agreements(_predicted(target)))
        return float(ndtr(-(slope * self.accuracies[0] + offset)))


@register
class ALineD(_OnTheLine):
    """Accuracies of all networks that explain, together, how often each pair agrees.

    For every pair the mean of the two probits of accuracy differs from the probit of agreement by as much as in
    distribution, times the slope.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(ALineD().fit(source).score(target), 3)
    0.157
    """

    name = "ALine-D"

    def _score(self, target: Outputs) -> float:
        """The predicted error; nan where there is no slope."""
        agreements = _agreements(_predicted(target))
        slope, _ = self.slope(agreements)
        if math.isnan(slope):
            return math.nan
        pairs = np.array(list(combinations(range(len(self.accuracies)), 2)))
        means = np.zeros((len(pairs), len(self.accuracies)))
        np.put_along_axis(means, pairs, 0.5, axis=1)
        mean_probits = agreements + slope * (means @ self.accuracies - self.agreements)
        solution, *_ = np.linalg.lstsq(means, mean_probits, rcond=None)
        return float(ndtr(-solution[0]))


def _predicted(outputs: Outputs) -> list[NDArray[np.int64]]:
    return [outputs.predicted, *(other.argmax(axis=1) for other in outputs.others)]


def _agreements(predicted: list[NDArray[np.int64]]) -> Floats:
    return _probits([np.mean(first == second) for first, second in combinations(predicted, 2)], len(predicted[0]))


def _probits(shares: list[np.floating], count: int) -> Floats:
    """Probits of shares of `count` samples; shares of 0 and 1 count as half a sample away from there."""
    return ndtri(np.clip(shares, 0.5 / count, 1.0 - 0.5 / count))
