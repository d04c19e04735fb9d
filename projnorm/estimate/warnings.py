"""When a range is likely not to hold: what the outputs show of it, each a warning that a reader can act on.

The conditions and their thresholds were chosen on the misses and hits of the benchmark, each suite predicted from the
others; docs/which-method.md says how many of both carry a warning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from projnorm.core.formatting import percent
from projnorm.estimate.hypotheses import Assessment
from projnorm.estimate.settings import ANY, CLASSES
from projnorm.estimators.shift_test import MOST_CLASSES
from projnorm.outputs.outputs import Outputs, are_probabilities

if TYPE_CHECKING:
    from projnorm.estimate.chosen_methods import Choice
    from projnorm.estimate.fitted_source import FittedSource

# Fewer samples are warned of.
_FEW = 30
# A predicted class without labelled samples is warned of from this part of the target on, and a source error from this
# much above that of the most frequent class on.
_UNSEEN, _ABOVE_CHANCE = 0.01, 0.01

# Outputs that reveal less of the classes than this do not tell so large a change of class shares from other changes.
_LITTLE_RESOLUTION, _LARGE_CHANGE = 0.45, 0.4
# A model has lost confidence where it expects this many times the error of the source, and the change of its predicted
# classes makes up less than this part of COT.
_LESS_SURE, _PART_OF_COT = 1.5, 0.75
# Labelled samples per class that the tests need, up to the number of classes of which each has a covariance of its own.
_FEWEST_PER_CLASS = 15


def all_warnings_for(fitted: FittedSource, target: Outputs, assessment: Assessment, choice: Choice) -> list[str]:
    """Warnings about the sets, about what the answer assumes of the shift, and where its range may not hold."""
    warnings, n, shift = warnings_for_sets(fitted.source, target), len(fitted.source), fitted.options.shift
    if fitted.options.based_on is not None:
        return warnings
    if choice.calibration is None:
        warnings += warnings_for(assessment, n, shift)
    else:
        warnings += calibrated_warnings_for(assessment, n, shift, choice.interval.low)
    if shift == CLASSES and not assessment.accepts_class_shares:
        warnings.append(
            "The outputs are not those of the source with other class shares, so more than these has changed."
        )
    return warnings


def warnings_for_sets(source: Outputs, target: Outputs) -> list[str]:
    """Warnings about sets that are small or look wrong."""
    warnings = [
        f"{what} has {len(outputs)} sample{'s' if len(outputs) > 1 else ''}; so few say little."
        for what, outputs in (("The source", source), ("The target", target))
        if len(outputs) < _FEW
    ]
    if are_probabilities(source.logits) or are_probabilities(target.logits):
        warnings.append("What was given as logits looks like probabilities, and softmax is applied to logits.")
    counts = np.bincount(source.known_labels, minlength=source.classes)
    predicted = np.bincount(target.predicted, minlength=source.classes)
    if missing := np.flatnonzero((counts == 0) & (predicted > _UNSEEN * len(target))).tolist():
        shown = f"{predicted[missing[0]]:,} samples of the target are predicted to be of class {missing[0]}"
        warnings.append(f"{shown}, of which the source has no labelled sample; nothing is known of its errors.")
    chance = 1.0 - float(counts.max()) / len(source)
    has_threshold = source.predictions is not None
    if source.error > chance + _ABOVE_CHANCE and chance > 0.0 and not has_threshold:
        warnings.append(
            f"The error on the source is {percent(source.error)}, and {percent(chance)} for always saying its most "
            "frequent class: are its labels in another order, or are source and target swapped?"
        )
    return warnings


def warnings_for(assessment: Assessment, n: int, shift: str) -> list[str]:
    """Warnings about the answer from outputs; arguments as in `calibrated_warnings_for`."""
    warnings = _common_warnings(assessment, n, shift)
    e = assessment
    may_be_inputs = _is_open(e, shift) and not e.accepts_class_shares
    less_sure = e.confidence_error > _LESS_SURE * e.source_error
    if may_be_inputs and len(e.shares) > 2 and less_sure and e.predicted_distance < _PART_OF_COT * e.cot:
        warnings.append(
            "The model is less sure than on the source, but predicts the classes in similar shares: it may have lost "
            "more confidence than accuracy, and the error may lie below the range. A few labels would decide."
        )
    return warnings


def calibrated_warnings_for(assessment: Assessment, n: int, shift: str, low: float) -> list[str]:
    """Warnings about the answer from calibration sets.

    Args:
        assessment: What the outputs say under each hypothesis.
        n: Number of labelled samples of the source.
        shift: What the user says of the shift: "any", "classes" or "inputs".
        low: Lower end of the interval.
    """
    warnings = _common_warnings(assessment, n, shift)
    if _is_open(assessment, shift) and assessment.adapted_error < low:
        warnings.append(
            f"Confidence, adapted to the likeliest class shares, expects an error of "
            f"{percent(assessment.adapted_error)}, below the interval: if class shares have changed too, the error may "
            "be lower than the interval says. The true class shares or a few labels would decide."
        )
    return warnings


def _common_warnings(assessment: Assessment, n: int, shift: str) -> list[str]:
    """Warnings about either answer; arguments as in `calibrated_warnings_for`."""
    e: Assessment = assessment
    warnings: list[str] = []
    classes = len(e.shares)
    if classes <= MOST_CLASSES and n < _FEWEST_PER_CLASS * classes:
        warnings.append(
            f"The source has {n:,} labelled samples of {classes} classes; with so few of each the tests accept changes "
            "that more samples would refute, and the range may not hold."
        )
    if _is_open(e, shift) and e.distance > _LARGE_CHANGE and e.resolution < _LITTLE_RESOLUTION:
        warnings.append(
            f"If only class shares had changed, it would be by {100 * e.distance:.0f} points, but the outputs hardly "
            "reveal the classes, so this is not told from other changes, and the range may not hold. The true class "
            "shares or a few labels would decide."
        )
    onto_own_shares = shift != CLASSES and not e.has_known_shares
    if onto_own_shares and not e.accepts_no_shift and e.cot < e.source_error:
        warnings.append(
            f"The outputs have changed, yet COT finds a smaller error than the {percent(e.source_error)} of the "
            "source: models can be surer of what they do not know, and the error is often outside of such a range, "
            "mostly above it. A few labels would decide."
        )
    return warnings


def _is_open(assessment: Assessment, shift: str) -> bool:
    """Whether something changed and the user has not said what."""
    return shift == ANY and not assessment.accepts_no_shift and not assessment.has_known_shares
