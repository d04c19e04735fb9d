"""When a range is likely not to hold: what the outputs show of it, each a warning that a reader can act on.

The conditions and their thresholds were chosen on the misses and hits of the benchmark, each suite predicted from the
others; docs/which-method.md says how many of both carry a warning.
"""

from __future__ import annotations

from projnorm.core.formatting import percent
from projnorm.estimate.hypotheses import Assessment
from projnorm.estimators.shift_test import MOST_CLASSES

# Outputs that reveal less of the classes than this do not tell so large a change of class shares from other changes.
_LITTLE_RESOLUTION, _LARGE_CHANGE = 0.45, 0.4
# A model has lost confidence where it expects this many times the error of the source, and the change of its predicted
# classes makes up less than this part of COT.
_LESS_SURE, _PART_OF_COT = 1.5, 0.75
# Labelled samples per class that the tests need, up to the number of classes of which each has a covariance of its own.
_FEWEST_PER_CLASS = 15


def warnings_for(assessment: Assessment, n: int, shift: str) -> list[str]:
    """Warnings about the answer from outputs; arguments as in `calibrated_warnings_for`."""
    found = _common_warnings(assessment, n, shift)
    e = assessment
    may_be_inputs = _is_open(e, shift) and not e.accepts_class_shares
    less_sure = e.confidence_error > _LESS_SURE * e.source_error
    if may_be_inputs and len(e.shares) > 2 and less_sure and e.predicted_distance < _PART_OF_COT * e.cot:
        found.append(
            "The model is less sure than on the source, but predicts the classes in similar shares: it may have lost "
            "more confidence than accuracy, and the error may lie below the range. A few labels would decide."
        )
    return found


def calibrated_warnings_for(assessment: Assessment, n: int, shift: str, low: float) -> list[str]:
    """Warnings about the answer from calibration sets.

    Args:
        assessment: What the outputs say under each hypothesis.
        n: Number of labelled samples of the source.
        shift: What the user says of the shift: "any", "classes" or "inputs".
        low: Lower end of the interval.
    """
    found = _common_warnings(assessment, n, shift)
    if _is_open(assessment, shift) and assessment.adapted_error < low:
        found.append(
            f"Confidence, adapted to the likeliest class shares, expects an error of "
            f"{percent(assessment.adapted_error)}, below the interval: if class shares have changed too, the error may "
            "be lower than the interval says. The true class shares or a few labels would decide."
        )
    return found


def _common_warnings(assessment: Assessment, n: int, shift: str) -> list[str]:
    """Warnings about either answer; arguments as in `calibrated_warnings_for`."""
    e, found = assessment, []
    classes = len(e.shares)
    if classes <= MOST_CLASSES and n < _FEWEST_PER_CLASS * classes:
        found.append(
            f"The source has {n:,} labelled samples of {classes} classes; with so few of each the tests accept changes "
            "that more samples would refute, and the range may not hold."
        )
    if _is_open(e, shift) and e.distance > _LARGE_CHANGE and e.resolution < _LITTLE_RESOLUTION:
        found.append(
            f"If only class shares had changed, it would be by {100 * e.distance:.0f} points, but the outputs say too "
            "little of the classes to tell this from other changes; the range may not hold. The true class shares or "
            "a few labels would decide."
        )
    onto_own_shares = shift != "classes" and not e.has_known_shares
    if onto_own_shares and not e.accepts_no_shift and e.cot < e.source_error:
        found.append(
            f"The outputs have changed, yet COT finds a smaller error than the {percent(e.source_error)} of the "
            "source: models can be surer of what they do not know, and the error is often outside of such a range, "
            "mostly above it. A few labels would decide."
        )
    return found


def _is_open(assessment: Assessment, shift: str) -> bool:
    """Whether something changed and the user has not said what."""
    return shift == "any" and not assessment.accepts_no_shift and not assessment.has_known_shares
