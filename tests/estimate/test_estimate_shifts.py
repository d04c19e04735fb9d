"""`estimate_error` under shifts whose kind is known: what it answers, what it refutes, and what it warns of."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from projnorm.core.errors import InputError
from projnorm.estimate.estimate import estimate_error
from projnorm.estimators.cot import COT
from projnorm.estimators.scaling import Scaling
from projnorm.outputs.outputs import Outputs
from tests.small import gaussian_outputs

ALIKE, OTHER = [0.25] * 4, [0.7, 0.2, 0.1, 0.0]


@pytest.fixture(scope="module")
def source() -> Outputs:
    return gaussian_outputs(1500, ALIKE, np.random.default_rng(0))


def target(shares=ALIKE, seed=1, m=800, **how) -> Outputs:
    return gaussian_outputs(m, shares, np.random.default_rng(seed), **how)


def fainter(outputs: Outputs) -> Outputs:
    """Inputs whose classes are nearer to each other by a quarter; at a half the range is too low by 5 points."""
    points = outputs.features - 0.5 * np.eye(4)[outputs.labels]
    return replace(outputs, logits=2.0 * points, features=points)


@pytest.mark.parametrize("seed", range(3))
def test_without_a_shift_the_outputs_show_none(source, seed):
    estimate = estimate_error(None, source, target(seed=10 + seed))
    assert estimate.not_refuted == ("no shift", "class shares", "inputs", "class shares and inputs")
    assert "The outputs show no shift." in estimate.sentence
    assert estimate.based_on == ("DoC",)
    assert estimate.low <= estimate.truth <= estimate.high
    assert estimate.error == pytest.approx(estimate.truth, abs=0.04)
    assert not estimate.warnings


@pytest.mark.parametrize("shares", [OTHER, [0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.1, 0.9]])
def test_a_change_of_class_shares_alone_is_named_and_the_error_is_right(source, shares):
    estimate = estimate_error(None, source, target(shares))
    assert "A change of class shares alone explains the outputs." in estimate.sentence
    assert estimate.not_refuted[0] == "class shares"
    assert estimate.based_on == ("MLLS",)
    assert estimate.error == pytest.approx(estimate.truth, abs=0.03)
    assert estimate.low <= estimate.truth <= estimate.high
    np.testing.assert_allclose(estimate.class_shares, shares, atol=0.06)
    # One line of COT would be wrong by far.
    assert {hypothesis.name: hypothesis.error for hypothesis in estimate.hypotheses}["inputs"] > estimate.truth + 0.15


def test_a_change_of_the_inputs_refutes_both_and_is_answered_by_cot(source):
    new = fainter(target())
    estimate = estimate_error(None, source, new)
    assert estimate.not_refuted == ("inputs", "class shares and inputs")
    assert "Inputs have changed: the error is" in estimate.sentence
    assert "if class shares are those of the source, and" in estimate.sentence
    assert "the true class shares or a few labels would decide" in estimate.sentence
    scaling = Scaling.fit(source)
    assert estimate.error == pytest.approx(COT().fit(scaling(source)).score(scaling(new)))
    assert estimate.low <= estimate.truth <= estimate.high
    assert estimate.error > estimate.source_error + 0.02


def test_what_the_user_says_of_the_shift_is_obeyed(source):
    shares, inputs = target(OTHER), fainter(target())
    stated = estimate_error(None, source, shares, shift="inputs")
    assert stated.based_on == ("COT",)
    assert stated.error > stated.truth + 0.15
    wrong = estimate_error(None, source, inputs, shift="classes")
    assert wrong.based_on == ("MLLS",)
    assert any("more than these has changed" in warning for warning in wrong.warnings)
    right = estimate_error(None, source, shares, shift="classes")
    assert right.error == pytest.approx(right.truth, abs=0.03)
    assert not right.warnings


def test_known_class_shares_as_numbers_and_by_class_are_the_same(source):
    new = target(OTHER)
    by_number = estimate_error(None, source, new, class_shares=OTHER)
    by_class = estimate_error(None, source, new, class_shares={"0": 0.7, 1: 0.2, 2: 0.1})
    assert by_number.class_shares == pytest.approx(OTHER)
    assert by_number.to_dict() == by_class.to_dict()
    assert by_number.error == pytest.approx(by_number.truth, abs=0.03)
    moved = estimate_error(None, source, new, class_shares=OTHER, shift="inputs")
    assert moved.error == pytest.approx(moved.truth, abs=0.04)
    unlike = estimate_error(None, source, new, class_shares=OTHER[::-1])
    assert "class shares" not in unlike.not_refuted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shift": "both"}, "`shift` must be one of any, classes, inputs, label, covariate; got 'both'"),
        ({"class_shares": [0.5, 0.5]}, "`class_shares` must be 4 numbers from 0 to 1, one for each class"),
        ({"class_shares": [1.5, -0.5, 0.0, 0.0]}, "`class_shares` must be 4 numbers from 0 to 1"),
        ({"class_shares": [math.nan, 0.5, 0.5, 0.0]}, "`class_shares` must be 4 numbers from 0 to 1"),
        ({"class_shares": [0.5, 0.1, 0.1, 0.1]}, "`class_shares` must add up to 1; got 0.8"),
        ({"class_shares": ["many", 0.1, 0.1, 0.1]}, "`class_shares` must be numbers; got"),
        ({"class_shares": {0: 0.5, "cat": 0.5}}, "`class_shares` has the class 'cat', which the model does not have"),
    ],
)
def test_what_cannot_be_stated_is_said_in_a_line(source, options, message):
    with pytest.raises(InputError, match=message):
        estimate_error(None, source, target(), **options)


def test_a_source_in_another_order_is_warned_of(source):
    turned = replace(source, labels=(source.labels + 1) % 4)
    estimate = estimate_error(None, turned, target())
    assert any(
        "are its labels in another order, or are source and target swapped?" in warning for warning in estimate.warnings
    )


def test_outputs_that_say_little_are_warned_of_where_class_shares_seem_to_change_much():
    weak = gaussian_outputs(2000, [0.5, 0.5], np.random.default_rng(0), spread=4.0)
    alike, other = (target(shares, m=2000, spread=4.0) for shares in ([0.5, 0.5], [0.02, 0.98]))
    assert not estimate_error(None, weak, alike).warnings
    (warning,) = estimate_error(None, weak, other).warnings
    assert "the outputs hardly reveal the classes" in warning


def test_one_sample_says_little_and_it_is_said(source):
    estimate = estimate_error(None, source, source.take(np.arange(1)))
    assert estimate.high - estimate.low > 0.5
    assert estimate.warnings == ("The target has 1 sample; so few say little.",)


def test_a_model_that_made_no_mistake_is_not_said_to_make_none():
    rng = np.random.default_rng(0)
    sure = gaussian_outputs(60, ALIKE, rng, spread=0.1)
    assert sure.error == 0.0
    estimate = estimate_error(None, sure, gaussian_outputs(60, ALIKE, rng, spread=0.1))
    assert estimate.error < 0.01
    assert estimate.high > 0.01, "sixty samples without an error are no proof"


def test_own_decisions_are_what_the_error_is_of():
    rng = np.random.default_rng(0)

    def drawn(threshold):
        one = gaussian_outputs(2000, [0.8, 0.2], rng)
        return replace(one, predictions=(one.logits[:, 1] - one.logits[:, 0] > threshold).astype(np.int64))

    for threshold in (-3.0, 2.0):
        estimate = estimate_error(None, drawn(threshold), drawn(threshold))
        assert estimate.error == pytest.approx(estimate.truth, abs=0.03)
        assert estimate.low <= estimate.truth <= estimate.high


@pytest.mark.parametrize(
    ("known", "new"),
    [
        (Outputs(np.tile([1.0, 0.0], (40, 1)), labels=np.arange(40) % 2), None),
        (Outputs(np.tile([1.0, 0.0, 0.0], (40, 1)), labels=np.arange(40) % 3), None),
        (Outputs(1e4 * np.eye(3)[np.arange(40) % 3], labels=np.arange(40) % 3), Outputs(np.zeros((5, 3)))),
        (Outputs(5.0 * np.eye(3)[np.arange(40) % 3], labels=np.zeros(40, np.int64)), Outputs(np.eye(3))),
        (Outputs(np.array([[2.0, 0.0]]), labels=np.array([0])), Outputs(np.array([[0.0, 1.0]]))),
    ],
)
@pytest.mark.filterwarnings("error")
def test_odd_outputs_give_finite_answers(known, new):
    estimate = estimate_error(None, known, known if new is None else new)
    assert 0.0 <= estimate.low <= estimate.error <= estimate.high <= 1.0
    assert all(math.isfinite(hypothesis.error) for hypothesis in estimate.hypotheses)
    assert np.isfinite(estimate.class_shares).all()


def test_the_same_seed_gives_the_same_numbers_to_the_last_bit(source):
    first, second = (estimate_error(None, source, target(OTHER), methods="cheap").to_dict() for _ in range(2))
    assert json.dumps(first) == json.dumps(second)
