"""Warnings that a range may not hold: each condition by itself; what is known or shows no shift is not warned of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from projnorm.estimate.estimate import estimate_error
from projnorm.estimate.warnings import calibrated_warnings_for, warnings_for
from tests.estimate.test_ranges import NO, YES, assessment
from tests.small import gaussian_outputs

N = 1000
# Nothing to warn of: COT is above the source error, and the change of the predicted classes explains it.
SOUND = {"source_error": 0.1, "confidence_error": 0.12, "cot": 0.2, "predicted_distance": 0.18, "resolution": 0.8}


def sound(no_shift=NO, class_shares=NO, **values):
    return assessment(no_shift, class_shares, **(SOUND | values))


@pytest.mark.parametrize("assessed", [sound(), sound(NO, YES), sound(YES, YES)])
def test_an_answer_without_a_reason_for_doubt_is_not_warned_of(assessed):
    for shift in ("any", "classes", "inputs"):
        assert warnings_for(assessed, N, shift) == []
        assert calibrated_warnings_for(assessed, N, shift, 0.1) == []


SHARES = {"distance": 0.5, "resolution": 0.3}
BETTER = {"cot": 0.09, "predicted_distance": 0.09}
LESS_SURE = {"confidence_error": 0.18, "predicted_distance": 0.1}


@pytest.mark.parametrize(
    ("values", "needed", "expected"),
    [
        (SHARES, SHARES, "it would be by 50 points, but the outputs hardly reveal the classes"),
        (BETTER, ("cot",), "COT finds a smaller error than the 10.0 % of the source"),
        (LESS_SURE, LESS_SURE, "it may have lost more confidence than accuracy"),
    ],
)
def test_each_condition_is_a_warning_of_its_own(values, needed, expected):
    (warning,) = warnings_for(sound(**values), N, "any")
    assert expected in warning
    assert "a few labels would decide" in warning.lower()
    # Each part of a condition is needed, and there is no warning where there is no shift.
    assert warnings_for(sound(YES, YES, **values), N, "any") == []
    for name in needed:
        others = {one: value for one, value in values.items() if one != name}
        assert warnings_for(sound(**others), N, "any") == []


def test_what_the_user_states_is_not_doubted():
    for values in (SHARES, LESS_SURE):
        for shift in ("classes", "inputs"):
            assert warnings_for(sound(**values), N, shift) == []
        assert warnings_for(sound(**values, has_known_shares=True), N, "any") == []
    assert len(warnings_for(sound(**BETTER), N, "inputs")) == 1
    assert warnings_for(sound(**BETTER), N, "classes") == []
    assert warnings_for(sound(**BETTER, has_known_shares=True), N, "any") == []


def test_lost_confidence_is_told_from_a_change_of_two_classes_and_of_class_shares():
    assert warnings_for(sound(**LESS_SURE, classes=2), N, "any") == []
    assert warnings_for(sound(NO, YES, **LESS_SURE), N, "any") == []
    assert calibrated_warnings_for(sound(**LESS_SURE), N, "any", 0.1) == [], "calibration sets have lost confidence too"


def test_few_labelled_samples_of_each_class_are_warned_of():
    (warning,) = warnings_for(sound(YES, YES), 44, "any")
    assert "The source has 44 labelled samples of 3 classes" in warning
    assert warnings_for(sound(YES, YES), 45, "any") == []
    assert warnings_for(sound(YES, YES, classes=100), 500, "any") == [], "many classes share one covariance"


def test_an_interval_above_what_adapted_confidence_expects_is_warned_of():
    assessed = sound(adapted_error=0.16)
    (warning,) = calibrated_warnings_for(assessed, N, "any", 0.17)
    assert "expects an error of 16.0 %, below the interval" in warning
    assert calibrated_warnings_for(assessed, N, "any", 0.15) == []
    assert calibrated_warnings_for(assessed, N, "inputs", 0.17) == []
    assert calibrated_warnings_for(sound(YES, YES, adapted_error=0.16), N, "any", 0.17) == []


def test_a_model_that_lost_confidence_only_is_warned_of():
    source = gaussian_outputs(1500, [0.25] * 4, np.random.default_rng(0))
    target = gaussian_outputs(800, [0.25] * 4, np.random.default_rng(1))
    estimate = estimate_error(None, source, replace(target, logits=0.4 * target.logits))
    assert estimate.truth < estimate.low, "the classes are predicted as before"
    assert any("lost more confidence than accuracy" in warning for warning in estimate.warnings)
    assert not estimate_error(None, source, target).warnings
