"""CBPE, confidence-based performance estimation, as the tool NannyML has it: Kivimaki et al. (2025)."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from projnorm.estimators.base import LEARNT, SupervisedEstimator, register
from projnorm.estimators.isotonic import Isotonic, needs_calibration
from projnorm.estimators.softmax import Floats, probabilities
from projnorm.outputs.outputs import Outputs


@register
class CBPE(SupervisedEstimator):
    """One less the mean probability of the predicted class, calibrated where that helps.

    The probability of each class is calibrated by a monotone function if this lowers the calibration error on held-out
    labelled samples; then each row is divided by its sum. Of two classes the second is calibrated, and the first has
    the rest.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(CBPE().fit(source).score(target), 3)
    0.239

    Attributes:
        calibrations: For each class the function, or None where its probabilities are left as they are.
        spread: Standard deviation of being right over the labelled samples.
    """

    calibrations: tuple[Isotonic | None, ...] = LEARNT
    spread: float = LEARNT

    name = "CBPE"

    def _fit(self, source: Outputs) -> CBPE:
        rows, labels = probabilities(source.logits), source.known_labels
        found: list[Isotonic | None] = [None] * source.classes
        for one in calibrated_classes(source.classes):
            if needs_calibration(rows[:, one], labels == one):
                found[one] = Isotonic.fit(rows[:, one], labels == one)
        spread = float(np.std(source.predicted == labels))
        return replace(self, calibrations=tuple(found), spread=spread)

    def sampling_error(self, target: Outputs) -> float:
        """Standard error of the accuracy of as many samples as the target has, if they were as those of the source."""
        return self.spread / math.sqrt(len(target))

    def _score(self, target: Outputs) -> float:
        return expected_error(self.calibrations, target)


def calibrated_classes(classes: int) -> range:
    """Classes whose probabilities are calibrated: all, or the second of two."""
    return range(1 if classes == 2 else 0, classes)


def expected_error(calibrations: tuple[Isotonic | None, ...], target: Outputs) -> float:
    """One less the mean calibrated probability of the predicted class."""
    rows = _calibrated(calibrations, probabilities(target.logits))
    return float(1.0 - rows[np.arange(len(rows)), target.predicted].mean())


def _calibrated(calibrations: tuple[Isotonic | None, ...], rows: Floats) -> Floats:
    found = np.column_stack(
        [
            rows[:, one] if calibration is None else calibration(rows[:, one])
            for one, calibration in enumerate(calibrations)
        ]
    )
    if len(calibrations) == 2:
        found[:, 0] = 1.0 - found[:, 1]
    total = found.sum(axis=1, keepdims=True)
    return np.divide(found, total, out=np.full_like(found, 1.0 / found.shape[1]), where=total > 0.0)
