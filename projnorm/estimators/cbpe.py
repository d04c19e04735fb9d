"""CBPE, confidence-based performance estimation, as the tool NannyML has it: Kivimaki et al. (2025)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from projnorm.core.statistics import Floats
from projnorm.estimators.base import LEARNT, SupervisedEstimator, register
from projnorm.estimators.isotonic import Isotonic, needs_calibration
from projnorm.estimators.softmax import probabilities
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
    """

    calibrations: tuple[Isotonic | None, ...] = LEARNT

    name = "CBPE"

    def _fit(self, source: Outputs) -> CBPE:
        rows, labels = probabilities(source.logits), source.known_labels
        calibrations: list[Isotonic | None] = [None] * source.classes
        for k in calibrated_classes(source.classes):
            if needs_calibration(rows[:, k], labels == k):
                calibrations[k] = Isotonic.fit(rows[:, k], labels == k)
        return replace(self, calibrations=tuple(calibrations))

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
    calibrated = np.column_stack(
        [rows[:, k] if calibration is None else calibration(rows[:, k]) for k, calibration in enumerate(calibrations)]
    )
    if len(calibrations) == 2:
        calibrated[:, 0] = 1.0 - calibrated[:, 1]
    total = calibrated.sum(axis=1, keepdims=True)
    return np.divide(calibrated, total, out=np.full_like(calibrated, 1.0 / calibrated.shape[1]), where=total > 0.0)
