"""Conformal intervals across families, against their definition and by coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.studies.conformal import FamilyResiduals, coverage, family_weights, weighted_quantile
from projnorm.core.statistics import Line


def test_families_weigh_alike_however_many_sets_they_have():
    weights = family_weights(np.array(["a", "a", "a", "b"]))
    np.testing.assert_allclose(weights, [1 / 9, 1 / 9, 1 / 9, 1 / 3])


def test_the_quantile_is_infinite_where_the_families_do_not_reach_it():
    for level, expected in ((0.25, 1.0), (0.26, 2.0), (0.75, 3.0), (0.76, math.inf)):
        assert weighted_quantile(np.array([3.0, 1.0, 2.0]), np.full(3, 0.25), level) == expected


def test_radius_and_probability_by_hand():
    # Nine families of one set each, predicted as they are; start 0, so that residuals are in units of 0.2 + predicted.
    predicted = np.full(9, 0.3)
    errors = 0.3 + 0.5 * np.array([-0.08, -0.06, -0.04, -0.02, 0.0, 0.02, 0.04, 0.06, 0.10])
    residuals = FamilyResiduals(predicted, errors, np.array(list("abcdefghi")), 0.0)
    for at, level, radius in ((0.3, 0.9, 0.05), (0.8, 0.9, 0.10), (0.3, 0.5, 0.02), (0.3, 0.91, math.inf)):
        assert residuals.radius(np.array(at), level) == pytest.approx(radius)
    # Four of nine residuals are above zero, each of weight a tenth; the family not seen counts half.
    for threshold, probability in ((0.3, 0.4 + 0.05), (0.9, 0.05), (0.0, 0.95)):
        assert residuals.probability_above(0.3, threshold) == pytest.approx(probability)
    assert residuals.mae == pytest.approx(np.abs(errors - predicted).mean())


def drawn(rng, families=19, sets=3):
    """Sets whose errors miss a line by something that families share, and by a little of their own."""
    names = np.repeat([f"f{i}" for i in range(families)], sets)
    scores = rng.uniform(0.0, 1.0, families * sets)
    errors = 0.1 + 0.5 * scores + np.repeat(0.03 * rng.standard_normal(families), sets)
    return scores, errors + 0.005 * rng.standard_normal(families * sets), names


def test_a_set_of_a_new_family_is_covered_as_often_as_promised():
    rng = np.random.default_rng(0)
    held, draws = 0, 400
    for _ in range(draws):
        scores, errors, families = drawn(rng, families=20)
        new = families == "f19"
        residuals = FamilyResiduals.from_scores(scores[~new], errors[~new], families[~new], Line.fitted, 0.1)
        predicted = Line.fitted(scores[~new], errors[~new]).predict(scores[new][:1])
        held += abs(predicted[0] - errors[new][0]) <= residuals.radius(predicted, 0.9)[0]
    # Four standard errors of a share of 400 draws.
    assert held / draws == pytest.approx(0.9, abs=4 * math.sqrt(0.09 / draws))


def test_measured_coverage_is_of_families_left_out():
    scores, errors, families = drawn(np.random.default_rng(1))
    measured = coverage(scores, errors, families, Line.fitted, 0.1, 0.9, rng=np.random.default_rng(0))
    assert 0.75 <= measured.share.value <= 1.0
    assert measured.share.low <= measured.share.value <= measured.share.high
    assert 0.0 < measured.width < 0.5
    # A family that is like no other is not covered, and seen to be not.
    errors[families == "f0"] += 0.4
    broken = coverage(scores, errors, families, Line.fitted, 0.1, 0.5, rng=np.random.default_rng(0))
    assert broken.share.value < measured.share.value


@pytest.mark.parametrize("count", [9, 2])
def test_coverage_is_unknown_where_every_interval_would_be_infinite(count):
    """Of nine families eight are left, which do not reach 90 %; one of two cannot be calibrated by the other."""
    scores, errors, families = drawn(np.random.default_rng(1), families=count)
    measured = coverage(scores, errors, families, Line.fitted, 0.1, 0.9, rng=np.random.default_rng(0))
    assert math.isnan(measured.share.value)
    with pytest.raises(ValueError, match="there must be two or more"):
        FamilyResiduals.from_scores(scores[:3], errors[:3], families[:3], Line.fitted, 0.1)
