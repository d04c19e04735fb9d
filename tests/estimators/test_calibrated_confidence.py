"""CBPE and PAPE: against NannyML and scikit-learn, and on shifts of inputs whose answer is known."""

from __future__ import annotations

import math
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.special import softmax
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedShuffleSplit

from projnorm import estimators
from projnorm.core.errors import InputError
from projnorm.estimators.isotonic import Isotonic, _separation, _stratified_tests, needs_calibration
from projnorm.outputs.outputs import Outputs


@given(
    n=st.integers(1, 40),
    levels=st.integers(2, 30),
    sharp=st.sampled_from([1.0, 40.0]),
    weighted=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_isotonic_calibration_is_that_of_scikit_learn(n, levels, sharp, weighted, seed):
    rng = np.random.default_rng(seed)
    # Few levels give ties; sharp logits probabilities within rounding of 0 and 1.
    x, new = (softmax(sharp * rng.integers(levels, size=(m, 3)) / levels, axis=1)[:, 0] for m in (n, 50))
    is_class, weights = rng.random(n) < x, rng.uniform(0.1, 2.0, n) if weighted else None
    expected = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(x, is_class, weights).predict(new)
    np.testing.assert_allclose(Isotonic.fit(x, is_class, weights)(new), expected, atol=1e-9)


def test_samples_of_no_weight_count_as_none():
    x, is_class = np.array([0.1, 0.2, 0.3, 0.4]), np.array([False, True, False, True])
    found = Isotonic.fit(x, is_class, np.array([1.0, 0.0, 1.0, 1.0]))
    np.testing.assert_allclose(found(x), Isotonic.fit(x[[0, 2, 3]], is_class[[0, 2, 3]])(x))


@given(n=st.integers(20, 60), inside=st.integers(2, 18), seed=st.integers(0, 100))
def test_the_held_out_tenths_and_the_area_are_those_of_scikit_learn(n, inside, seed):
    rng = np.random.default_rng(seed)
    is_class = rng.permutation(np.arange(n) < inside)
    expected = [
        test for _, test in StratifiedShuffleSplit(10, test_size=0.1, random_state=42).split(is_class, is_class)
    ]
    for found, tests in zip(_stratified_tests(is_class, math.ceil(0.1 * n)), expected, strict=True):
        np.testing.assert_array_equal(found, tests)
    x = np.round(rng.random(n), 1)
    assert _separation(x, is_class) == pytest.approx(roc_auc_score(is_class, x))


def draw(n, classes, sharp, shift, seed):
    """Logits that are calibrated where `sharp` is one and `shift` zero, and labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=n)
    points = 1.5 * np.eye(classes)[labels] + rng.standard_normal((n, classes))
    points[:, 0] += shift
    return 1.5 * sharp * points, labels


# Made with nannyml 0.13.1: CBPE(problem_type="classification_binary", y_pred_proba="p1") for two classes, else
# "classification_multiclass" with all of them, metrics=["accuracy"], chunk_number=1; fit on the first draw below, with
# probabilities softmax(logits) and predictions argmax, estimate of the second. One less `value`.
NANNYML = {
    (2, 1.0): 0.1418899049614485,  # not calibrated
    (2, 4.0): 0.1390254424931825,
    (3, 1.0): 0.23355734403449457,
    (3, 4.0): 0.2323283870265448,
    (3, 0.4): 0.24653050128826537,
    (5, 1.5): 0.322529381521369,
}


@pytest.mark.parametrize(("classes", "sharp"), NANNYML)
def test_cbpe_is_that_of_nannyml(classes, sharp):
    logits, labels = draw(1000, classes, sharp, 0.0, 0)
    fitted = estimators.CBPE().fit(Outputs(logits, labels=labels))
    target = Outputs(draw(600, classes, sharp, 0.8, 1)[0])
    error = NANNYML[classes, sharp]
    assert fitted.score(target) == pytest.approx(error, abs=1e-12)


def test_calibrated_confidence_by_hand():
    half, sure = Isotonic(np.array([0.6, 0.8]), np.array([0.5, 1.0])), Isotonic(np.array([0.5]), np.array([0.0]))
    rows = Outputs(np.log([[0.3, 0.7], [0.05, 0.95], [0.4, 0.6]]))
    # The second class: halfway between the knots, flat beyond, at the first.
    assert estimators.CBPE((None, half)).score(rows) == pytest.approx(1 - (0.75 + 1.0 + 0.5) / 3)
    # 0.2, 1.0 and 0.3 calibrated to 0.2, 1.0 and 0 are divided by 1.2; where all are zero the classes are equal.
    three = Outputs(np.log([[0.2, 0.5, 0.3]]))
    assert estimators.CBPE((None, Isotonic(np.array([0.5]), np.array([1.0])), sure)).score(three) == pytest.approx(
        1 / 6
    )
    assert estimators.CBPE((sure, sure, sure)).score(three) == pytest.approx(2 / 3)


def test_calibration_is_used_where_it_helps():
    logits, labels = draw(1000, 2, 1.0, 0.0, 0)
    rows = softmax(logits, axis=1)[:, 1]
    assert not needs_calibration(rows, labels == 1)
    assert needs_calibration(rows**3, labels == 1)
    assert not needs_calibration(np.where(labels == 1, 0.6, 0.5), labels == 1)  # told apart without an error
    assert not needs_calibration(rows[:12], np.arange(12) == 0)  # a single member


def two_groups(n, share, seed):
    """In the first group probabilities are calibrated, in the second, which has this share, they are far too sure."""
    rng = np.random.default_rng(seed)
    group = rng.random(n) < share
    sure = rng.uniform(0.5, 0.95, n)
    right = rng.random(n) < np.where(group, 0.5 + 0.2 * (sure - 0.5), sure)
    predicted = rng.integers(2, size=n)
    rows = np.where(np.arange(2) == predicted[:, None], sure[:, None], 1.0 - sure[:, None])
    inputs = np.column_stack([group, rng.standard_normal(n)]).astype(float)
    inputs[rng.random(n) < 0.1, 1] = math.nan
    return Outputs(np.log(rows), labels=np.where(right, predicted, 1 - predicted), inputs=inputs)


def test_pape_follows_a_shift_of_inputs_that_cbpe_does_not_see():
    source = two_groups(3000, 0.3, 0)
    fitted = estimators.PAPE().fit(source)
    for share in (0.0, 0.9):
        target = two_groups(3000, share, 1)
        ratio = np.where(source.inputs[:, 0] == 1.0, share / 0.3, (1 - share) / 0.7)
        assert np.abs(fitted.weights(target) - ratio).mean() < 0.15
        # The standard error of either set is 0.009.
        assert fitted.score(target) == pytest.approx(target.error, abs=0.03)
        assert abs(estimators.CBPE().fit(source).score(target) - target.error) > 0.03


def test_pape_says_what_it_lacks():
    source = two_groups(50, 0.5, 0)
    images = replace(source, inputs=np.zeros((50, 2, 2, 3), np.uint8))
    names = replace(source, inputs=np.array([["a", "b"]] * 50))
    for other in (images, names, replace(source, inputs=None)):
        with pytest.raises(InputError, match="PAPE needs inputs that are a table of numbers; the source has none"):
            estimators.PAPE().fit(other)
        with pytest.raises(InputError, match="PAPE needs inputs that are a table of numbers; the target has none"):
            estimators.PAPE().fit(source).score(other)
    with patch("projnorm.estimators.pape.find_spec", return_value=None):
        assert "scikit-learn: pip install" in estimators.PAPE.lacking(source)
    assert math.isfinite(estimators.PAPE().fit(source).score(source.take(np.array([0]))))
