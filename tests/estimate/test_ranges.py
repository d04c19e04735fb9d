"""The answer from outputs alone: limits of what the assessment says, and what moves the ends of the range."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from projnorm.estimate.hypotheses import ALPHA, BOTH, CLASS_SHARES, INPUTS, NO_SHIFT, Assessment, HypothesisTests
from projnorm.estimate.ranges import range_from_methods, range_from_outputs, sampling_noise
from projnorm.estimators.doc import DoC
from projnorm.estimators.scaling import Scaling
from projnorm.estimators.shift_test import HotellingTest as Result
from tests.small import gaussian_outputs

YES, NO = Result(0.5, 10.0, 12, 300.0), Result(1e-9, 90.0, 12, 300.0)
SIZES = (1000, 500)


def assessment(no_shift=NO, class_shares=NO, classes=3, **values) -> Assessment:
    errors = {"source_error": 0.1, "confidence_error": 0.12, "adapted_error": 0.16, "cot": 0.2, "cot_adapted": 0.3}
    rest = {"distance": 0.0, "excess": 0.0, "resolution": 0.8, "predicted_distance": 0.2}
    rest["shares"] = np.full(classes, 1 / classes)
    return Assessment(no_shift=no_shift, class_shares=class_shares, **(errors | rest | values))


@pytest.mark.parametrize(
    ("assessed", "shift", "error"),
    [
        (assessment(YES, YES), "any", 0.12),
        (assessment(YES, NO), "any", 0.12),
        (assessment(NO, YES), "any", 0.16),
        (assessment(NO, NO), "any", 0.2),
        *((assessment(no, shares), "classes", 0.16) for no in (YES, NO) for shares in (YES, NO)),
        *((assessment(no, shares), "inputs", 0.2) for no in (YES, NO) for shares in (YES, NO)),
    ],
)
def test_the_hypothesis_that_is_not_refuted_or_is_stated_gives_the_error(assessed, shift, error):
    answer = range_from_outputs(assessed, shift, SIZES, 0.9)
    assert answer.value == pytest.approx(error)
    assert 0.0 <= answer.low < answer.value < answer.high <= 1.0


def test_with_two_classes_cot_has_the_more_weight_the_less_class_shares_explain():
    errors = [
        range_from_outputs(assessment(classes=2, excess=excess, cot=0.3), "any", SIZES, 0.9).value
        for excess in (0.0, 0.01, 0.1, 1.0, 1e9)
    ]
    assert errors[0] == pytest.approx(0.12)
    assert errors == sorted(errors)
    assert errors[-1] == pytest.approx(0.3)
    near = range_from_outputs(assessment(classes=2, excess=0.01, cot=0.125), "any", SIZES, 0.9)
    assert near.value == pytest.approx(0.12, abs=1e-4), "what hardly differs is not switched between"


def test_the_range_spans_what_hypotheses_say_that_are_not_refuted():
    for assessed, errors in ((assessment(YES, YES), (0.1, 0.12, 0.16)), (assessment(NO, YES), (0.12, 0.16))):
        answer = range_from_outputs(assessed, "any", (10**9, 10**9), 0.9)
        assert answer.low < min(errors)
        assert answer.high > max(errors)
    # COT is too low where networks are sure of their mistakes, so the range goes beyond it.
    refuted = range_from_outputs(assessment(), "any", (10**9, 10**9), 0.9)
    assert refuted.high - 0.2 > 0.2 - refuted.low > 0.0


@pytest.mark.parametrize("shift", ["any", "classes", "inputs"])
@pytest.mark.parametrize(
    "assessed", [assessment(YES, YES), assessment(NO, YES), assessment(), assessment(classes=2, excess=0.1)]
)
def test_the_range_widens_with_the_level_and_narrows_with_samples(assessed, shift):
    by_level = [range_from_outputs(assessed, shift, SIZES, level) for level in (0.01, 0.5, 0.9, 0.999)]
    by_size = [range_from_outputs(assessed, shift, (1000, m), 0.9) for m in (1, 30, 300, 10**6)]
    for narrow, wide in [*pairwise(by_level), *pairwise(by_size[::-1])]:
        assert narrow.value == wide.value
        assert wide.low <= narrow.low <= narrow.value <= narrow.high <= wide.high
        assert wide.high - wide.low > narrow.high - narrow.low


def test_errors_beyond_zero_and_one_are_cut():
    for value, end in ((-0.1, 0.0), (1.2, 1.0)):
        assessed = assessment(YES, YES, confidence_error=value, source_error=value, adapted_error=value)
        answer = range_from_outputs(assessed, "any", SIZES, 0.9)
        assert answer.value == end
        assert 0.0 <= answer.low < answer.high <= 1.0
        assert end in (answer.low, answer.high)


def test_sampling_noise_is_that_of_two_counted_errors():
    rng = np.random.default_rng(0)
    n, m, p = 200, 80, 0.2
    difference = rng.binomial(n, p, 40_000) / n - rng.binomial(m, p, 40_000) / m
    # Half a sample is added, which is 0.6 % of a deviation here.
    assert sampling_noise(p, n, m) == pytest.approx(math.hypot(float(difference.std()), 0.5 / m), rel=0.02)
    noises = [sampling_noise(p, n, m) for m in (1, 10, 100, 1000, 10**6)]
    assert noises == sorted(noises, reverse=True)
    for error in (0.0, 1.0):
        assert 0.0 < sampling_noise(error, 60, 60) < 0.05


def test_named_methods_give_their_mean_and_a_range_over_them():
    answer = range_from_methods([0.1, 0.3], SIZES, 0.9)
    assert answer.value == pytest.approx(0.2)
    assert answer.low < 0.1
    assert answer.high > 0.3


def fitted(source, **options) -> HypothesisTests:
    return HypothesisTests.fit(Scaling.fit(source)(source), source, **options)


def test_errors_under_each_hypothesis_by_hand():
    rng = np.random.default_rng(0)
    source, target = gaussian_outputs(1000, [1 / 3] * 3, rng), gaussian_outputs(800, [0.7, 0.2, 0.1], rng)
    scaling = Scaling.fit(source)
    assessed = fitted(source).assess(scaling(target.without_labels()), target.without_labels())
    results = {result.name: result for result in assessed.results}
    assert list(results) == [NO_SHIFT, CLASS_SHARES, INPUTS, BOTH]
    assert results[NO_SHIFT].error == source.error
    assert results[NO_SHIFT].refuted
    assert results[NO_SHIFT].p_value < ALPHA
    assert not results[CLASS_SHARES].refuted
    assert assessed.accepts_class_shares
    assert not assessed.accepts_no_shift
    assert assessed.confidence_error == pytest.approx(DoC().fit(scaling(source)).score(scaling(target)))
    np.testing.assert_allclose(assessed.shares, [0.7, 0.2, 0.1], atol=0.05)
    assert assessed.distance == pytest.approx(0.7 - 1 / 3, abs=0.05)
    assert assessed.adapted_error == pytest.approx(target.error, abs=0.03)
    # COT onto equal shares has to move a third of the samples to classes that they are not of.
    assert results[INPUTS].error > target.error + 0.1
    assert math.isnan(results[INPUTS].p_value)
    assert not results[INPUTS].refuted
    assert results[BOTH].error < results[INPUTS].error


def test_known_shares_are_used_and_tested():
    rng = np.random.default_rng(1)
    source, target = gaussian_outputs(1000, [1 / 3] * 3, rng), gaussian_outputs(800, [0.7, 0.2, 0.1], rng)
    right, wrong = (
        fitted(source, known_shares=np.array(one)).assess(Scaling.fit(source)(target), target)
        for one in ([0.7, 0.2, 0.1], [0.1, 0.2, 0.7])
    )
    assert right.accepts_class_shares
    assert not wrong.accepts_class_shares
    np.testing.assert_array_equal(wrong.shares, [0.1, 0.2, 0.7])
    assert right.cot == pytest.approx(target.error, abs=0.03)
    assert wrong.cot > 0.4
    assert right.adapted_error == pytest.approx(target.error, abs=0.03)


def test_resolution_is_one_for_sure_and_right_outputs_and_none_for_useless_ones():
    rng = np.random.default_rng(2)
    labels = rng.integers(3, size=300)
    sure = gaussian_outputs(300, [1 / 3] * 3, rng, spread=0.1)
    assert fitted(sure).resolution > 0.99
    useless = replace(sure, logits=rng.standard_normal((300, 3)), labels=labels)
    assert fitted(useless).resolution < 0.1
    single = replace(sure, labels=np.zeros(300, np.int64))
    assert fitted(single).resolution == 0.0
