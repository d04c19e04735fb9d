"""BBSE: Lipton, Wang and Smola, "Detecting and Correcting for Label Shift with Black Box Predictors" (ICML 2018).

And RLLS: Azizzadenesheli et al., "Regularized Learning for Domain Adaptation under Label Shifts" (ICLR 2019).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Self

import numpy as np

from projnorm.core.statistics import Floats
from projnorm.estimators.base import LEARNT, SupervisedEstimator, register
from projnorm.estimators.class_shares import black_box_shares, confusion_shares, label_shares, regularised_shares
from projnorm.outputs.outputs import Outputs


@register
class BBSE(SupervisedEstimator):
    """The error in distribution with classes weighted as the target seems to have them, if only their shares differ.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(BBSE().fit(source).score(target), 3)
    0.142

    Attributes:
        confusion: Share of labelled samples by predicted class (row) and true class (column).
    """

    confusion: Floats = LEARNT

    name = "BBSE"

    def _fit(self, source: Outputs) -> Self:
        return replace(self, confusion=confusion_shares(source.predicted, source.known_labels, source.classes))

    def shares(self, target: Outputs) -> Floats:
        """Share of each class in the target."""
        return black_box_shares(self.confusion, label_shares(target.predicted, target.classes))

    def _score(self, target: Outputs) -> float:
        source = self.confusion.sum(axis=0)
        right = np.divide(np.diagonal(self.confusion), source, out=np.zeros(len(source)), where=source > 0.0)
        return float(1.0 - self.shares(target) @ right)


@register
class RLLS(BBSE):
    """As BBSE, with class shares that are drawn to those in distribution, the more the fewer the labelled samples.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(RLLS().fit(source).score(target), 3)
    0.142

    Attributes:
        count: Number of labelled samples.
    """

    count: int = LEARNT

    name = "RLLS"

    def _fit(self, source: Outputs) -> Self:
        return replace(super()._fit(source), count=len(source))

    def shares(self, target: Outputs) -> Floats:
        """Share of each class in the target."""
        return regularised_shares(self.confusion, label_shares(target.predicted, target.classes), self.count)
