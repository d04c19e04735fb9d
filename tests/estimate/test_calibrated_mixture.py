"""The answer from labelled shifted sets: the mixture of its two regressions, and whether intervals hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from projnorm.estimate.calibrated_mixture import _MOST_WEIGHT, CalibratedMixture, Mixture
from projnorm.estimate.calibration_sets import Draw
from projnorm.outputs.outputs import Outputs
from tests.estimate.test_ranges import NO, YES, assessment

SIZES = (1000, 500)


@pytest.mark.parametrize(
    "mixture",
    [
        Mixture((0.1, 0.4), (0.02, 0.1), 0.7),
        Mixture((0.3, 0.3), (0.05, 0.05), 0.2),
        Mixture((0.6, 0.1), (0.01, 0.02), 0.5),
        Mixture((0.6, 0.1), (0.01, 0.02), 1.0),
    ],
)
def test_below_a_quantile_is_its_part_of_the_mixture(mixture):
    for level in (0.05, 0.5, 0.95, 0.999):
        at = mixture.quantile(level)
        weights = (mixture.weight, 1.0 - mixture.weight)
        laws = list(zip(weights, mixture.means, mixture.deviations, strict=True))
        below = sum(weight * norm.cdf(at, mean, sd) for weight, mean, sd in laws)
        assert below == pytest.approx(level, abs=1e-9)
        start = min(mean - 12 * sd for _, mean, sd in laws)
        density = quad(lambda x, laws=laws: sum(w * norm.pdf(x, mean, sd) for w, mean, sd in laws), start, at)[0]
        assert density == pytest.approx(level, abs=1e-4)


def test_one_law_alone_has_its_own_quantiles():
    for level in (0.05, 0.5, 0.9):
        expected = norm.ppf(level, 0.2, 0.03)
        assert Mixture((0.2, 0.9), (0.03, 0.2), 1.0).quantile(level) == pytest.approx(expected, abs=1e-9)
        assert Mixture((0.9, 0.2), (0.2, 0.03), 0.0).quantile(level) == pytest.approx(expected, abs=1e-9)


def draw(error: float, family: str, *, has_other_shares: bool = False, size: int = 1000) -> Draw:
    """A draw with this error."""
    labels = (np.arange(size) < round(error * size)).astype(np.int64)
    outputs = Outputs(np.tile([1.0, 0.0], (size, 1)), labels=labels)
    return Draw(outputs, np.arange(size), family, has_other_shares=has_other_shares)


def learnt(seed: int = 0, families: int = 12, accepted: int = 0):
    """Sets whose error is a line in a score and off by what families share; with other shares it is twice the line.

    A second score tells draws with other shares apart.
    """
    rng = np.random.default_rng(seed)
    draws, first, second, assessments = [], [], [], []
    for family in range(families):
        off = 0.02 * rng.standard_normal()
        for has_other in (False, False, True, True):
            score = rng.uniform(0.05, 0.35)
            error = min(1.0, max(0.0, (2.0 if has_other else 1.0) * score + off))
            draws.append(draw(error, f"f{family}", has_other_shares=has_other))
            first.append(score)
            second.append(float(has_other) + 0.05 * rng.standard_normal())
            adapted = assessment(NO, YES, adapted_error=draws[-1].error - 0.03)
            assessments.append(adapted if len(assessments) < accepted else assessment())
    tables = {"A": np.array(first), "B": np.array(second)}
    return CalibratedMixture.fit(draws, tables, assessments, (("A",), ("A", "B")))


def test_a_target_is_predicted_by_the_regression_of_the_hypothesis_it_looks_like():
    mixture = learnt(families=60)  # this many draws outweigh the odds that shares stay as they are
    own, other = {"A": 0.2, "B": 0.0}, {"A": 0.2, "B": 1.0}
    assert mixture.interval(assessment(), own, "any", SIZES, 0.9).value == pytest.approx(0.2, abs=0.03)
    assert mixture.interval(assessment(), other, "any", SIZES, 0.9).value == pytest.approx(0.4, abs=0.06)
    assert mixture.interval(assessment(), other, "inputs", SIZES, 0.9).value == pytest.approx(0.2, abs=0.03)
    assert mixture.weight_of_inputs(own) > 0.9
    assert mixture.weight_of_inputs(other) < 0.5
    assert mixture.p_value_of_inputs(other) < 0.1 < mixture.p_value_of_inputs(own)


def test_weights_and_p_values_are_probabilities():
    mixture = learnt()
    for b in np.linspace(-3.0, 3.0, 13):
        scores = {"A": 0.2, "B": float(b)}
        assert 0.0 < mixture.weight_of_inputs(scores) < 1.0
        assert 0.0 < mixture.p_value_of_inputs(scores) <= 1.0
    alone = replace(mixture, other=np.empty(0))
    assert alone.weight_of_inputs({"A": 0.2, "B": 1.0}) == 1.0


def test_the_interval_never_leaves_the_other_hypothesis_out():
    mixture, scores = learnt(), {"A": 0.2, "B": 0.0}
    law = mixture.law(scores, assessment(), "any")
    assert law.weight > _MOST_WEIGHT
    any_shift, inputs = (
        mixture.interval(assessment(), scores, shift, (10**6, 10**6), 0.95) for shift in ("any", "inputs")
    )
    assert any_shift.high > inputs.high
    assert any_shift.high == pytest.approx(replace(law, weight=_MOST_WEIGHT).quantile(0.975), abs=1e-6)


def test_what_class_shares_explain_is_answered_by_outputs_and_by_what_was_missed():
    scores, accepted = {"A": 0.16, "B": 0.0}, assessment(NO, YES, adapted_error=0.16)
    few, many = learnt(), learnt(accepted=30)
    for mixture in (few, many):
        interval = mixture.interval(accepted, scores, "any", SIZES, 0.9)
        assert interval.value == pytest.approx(0.16)
        assert mixture.interval(assessment(), scores, "classes", SIZES, 0.9).value == pytest.approx(0.16)
    assert len(few.accepted) == 0
    # All estimates were three points too low, and nothing else.
    np.testing.assert_allclose(many.accepted[:, 1] - many.accepted[:, 0], 0.03, atol=1e-9)
    exact = many.interval(accepted, scores, "any", (10**9, 10**9), 0.9)
    assert (exact.low, exact.high) == pytest.approx((0.16, 0.19), abs=1e-3)


def test_class_shares_are_overruled_where_the_regressions_contradict_them():
    mixture = learnt(families=60)
    inputs, both = {"A": 0.3, "B": -0.5}, {"A": 0.3, "B": 1.0}
    misfit = replace(YES, statistic=15.0)
    for scores, error, test in ((inputs, 0.3, YES), (both, 0.6, misfit)):
        agrees, contradicts = (assessment(NO, test, adapted_error=adapted) for adapted in (error, 0.1))
        assert mixture.prefers_class_shares(agrees, scores, "any")
        assert not mixture.prefers_class_shares(contradicts, scores, "any")
        law = mixture.law(scores, contradicts, "any")
        assert mixture.interval(contradicts, scores, "any", SIZES, 0.9).value == pytest.approx(law.quantile(0.5))
        # What is stated is not overruled, and what the outputs refute is not taken.
        assert mixture.prefers_class_shares(contradicts, scores, "classes")
        assert not mixture.prefers_class_shares(agrees, scores, "inputs")
        assert not mixture.prefers_class_shares(assessment(NO, NO, adapted_error=error), scores, "any")
    # What class shares fit well is left to them, unless the target clearly has those of the source.
    assert mixture.prefers_class_shares(assessment(NO, YES, adapted_error=0.1), both, "any")


def test_intervals_are_no_narrower_than_sampling_noise_and_stay_inside():
    mixture = learnt()
    for score in (-1.0, 0.0, 0.2, 3.0):
        for m in (1, 20, 10**6):
            interval = mixture.interval(assessment(), {"A": score, "B": 0.0}, "any", (1000, m), 0.9)
            assert 0.0 <= interval.low <= interval.value <= interval.high <= 1.0
    one = mixture.interval(assessment(), {"A": 0.2, "B": 0.0}, "any", (1000, 1), 0.9)
    assert one.high - one.low > 0.5


def test_intervals_hold_on_a_new_family_as_often_as_they_say():
    held, draws = 0, 40
    for seed in range(draws):
        mixture, rng = learnt(seed, families=10), np.random.default_rng(1000 + seed)
        has_other, score = seed % 2, rng.uniform(0.05, 0.35)
        truth = (1 + has_other) * score + 0.02 * rng.standard_normal()
        scores = {"A": score, "B": has_other + 0.05 * rng.standard_normal()}
        interval = mixture.interval(assessment(), scores, "any", (10**6, 10**6), 0.9)
        held += interval.low <= truth <= interval.high
    assert held >= 31  # of 40 at 90 %, fewer than 31 has a probability of 0.5 %
