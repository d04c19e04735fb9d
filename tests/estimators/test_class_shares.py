"""Scaled probabilities and class shares from them: against general optimisers, by hand, and on drawn label shifts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax, softmax

from projnorm import estimators
from projnorm.estimators.class_shares import (
    black_box_shares,
    confusion_shares,
    label_shares,
    maximum_likelihood_shares,
    regularised_shares,
)
from projnorm.estimators.softmax import COLDEST, HOTTEST, BiasCorrected, fit_temperature
from projnorm.estimators.transport import transport
from projnorm.outputs.outputs import Outputs
from tests.small import gaussian_outputs

CLASSES = 4
EQUAL = np.full(CLASSES, 1 / CLASSES)


def draw(n, shares, seed, spread=1.0):
    """Calibrated logits under equal shares, where classes are normal around the corners; and labels."""
    outputs = gaussian_outputs(n, shares, np.random.default_rng(seed), spread=spread)
    return outputs.logits, outputs.known_labels


def likelihood(rows, source, shares) -> float:
    return float(np.mean(np.log((rows / source) @ shares)))


@given(m=st.integers(1, 30), classes=st.integers(2, 5), alike=st.booleans(), seed=st.integers(0, 1000))
def test_the_likeliest_shares_are_those_of_a_general_optimiser(m, classes, alike, seed):
    rng = np.random.default_rng(seed)
    rows, source = rng.dirichlet(np.ones(classes), m), rng.dirichlet(5.0 * np.ones(classes))
    if alike:  # two classes that nothing tells apart
        rows[:, 1] = rows[:, 0] * source[1] / source[0]
    found = maximum_likelihood_shares(rows, source)
    assert found.min() >= 0.0
    assert found.sum() == pytest.approx(1.0)
    best = minimize(
        lambda shares: -likelihood(rows, source, np.maximum(shares, 0.0)),
        np.full(classes, 1 / classes),
        method="SLSQP",
        bounds=[(0.0, 1.0)] * classes,
        constraints={"type": "eq", "fun": lambda shares: shares.sum() - 1.0},
        options={"ftol": 1e-10},
    )
    assert likelihood(rows, source, found) >= -best.fun - 1e-8
    # No class would raise the likelihood: the proof of a maximum.
    assert ((rows / source) / ((rows / source) @ found)[:, None]).mean(axis=0).max() <= 1.0 + 1e-8


def test_the_likeliest_shares_are_a_fixed_point_of_expectation_maximisation():
    rows = softmax(draw(300, [0.7, 0.3, 0.0, 0.0], 0)[0], axis=1)
    found = maximum_likelihood_shares(rows, EQUAL)
    posterior = rows * found
    np.testing.assert_allclose((posterior / posterior.sum(axis=1, keepdims=True)).mean(axis=0), found, atol=1e-7)
    np.testing.assert_allclose(found, [0.7, 0.3, 0.0, 0.0], atol=0.06)


def test_classes_without_a_source_share_get_none_and_impossible_rows_say_nothing():
    rows = np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1]])
    found = maximum_likelihood_shares(rows, np.array([0.5, 0.5, 0.0]))
    assert found[2] == 0.0
    np.testing.assert_allclose(found[:2], maximum_likelihood_shares(rows[:, :2], np.array([0.5, 0.5])))
    # The third row is impossible under both classes, and equally so.
    np.testing.assert_allclose(maximum_likelihood_shares(np.eye(3), np.array([0.5, 0.5, 0.0])), [0.5, 0.5, 0.0])


def test_black_box_shares_solve_the_confusion_by_hand():
    confusion = np.array([[0.375, 0.125], [0.125, 0.375]])
    # 0.9 * 0.75 + 0.1 * 0.25 = 0.7 predicted as the first.
    np.testing.assert_allclose(black_box_shares(confusion, np.array([0.7, 0.3])), [0.9, 0.1])
    # An exact solution would give the second class a negative share.
    np.testing.assert_allclose(black_box_shares(confusion, np.array([0.9, 0.1])), [1.0, 0.0])
    counted = confusion_shares(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]), 2)
    np.testing.assert_allclose(counted, [[0.25, 0.25], [0.0, 0.5]])


@given(labels=st.sampled_from([4, 100, 100_000]), blur=st.floats(0.0, 1.0), seed=st.integers(0, 1000))
def test_regularised_shares_minimise_their_objective(labels, blur, seed):
    rng = np.random.default_rng(seed)
    confusion = (1.0 - blur) * np.diag(EQUAL) + blur / CLASSES**2
    confusion = confusion * rng.uniform(0.5, 1.5, (CLASSES, CLASSES))
    confusion /= confusion.sum()
    wanted = rng.dirichlet(np.ones(CLASSES))
    log = np.log(2 * CLASSES / 0.05)
    penalty = 0.01 * 3 * (2 * log / (3 * labels) + np.sqrt(2 * log / labels))

    def objective(weights):
        return np.linalg.norm(confusion @ weights - wanted) + penalty * np.linalg.norm(weights - 1.0)

    source = confusion.sum(axis=0)
    # Shares are normalised weights, and the weights are those of the best scale.
    shares = regularised_shares(confusion, wanted, labels)
    assert shares.sum() == pytest.approx(1.0)
    found = minimize_scalar(lambda scale: objective(scale * shares / source), bounds=(0.0, 3.0), method="bounded").fun
    starts = [np.ones(CLASSES), shares / source, rng.uniform(0.0, 2.0, CLASSES)]
    best = min(minimize(objective, x, method="L-BFGS-B", bounds=[(0.0, None)] * CLASSES).fun for x in starts)
    assert found <= best + 1e-4


def test_regularised_shares_stay_with_the_source_where_the_confusion_says_nothing():
    source = np.array([0.4, 0.3, 0.2, 0.1])
    confusion = np.outer(np.full(CLASSES, 0.25), source)
    np.testing.assert_allclose(regularised_shares(confusion, np.full(CLASSES, 0.25), 500), source, atol=1e-6)


METHODS = [estimators.MLLS, estimators.RLLS, estimators.BBSE]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_the_error_follows_a_change_of_class_shares(method):
    # The network is blind for the difference of the last two classes, so that errors differ by class.
    def outputs(n, shares, seed):
        logits, labels = draw(n, shares, seed)
        logits[:, 2:] = 0.5 * logits[:, 2:] + 0.25 * logits[:, 2:].sum(axis=1, keepdims=True)
        return Outputs(logits, labels=labels)

    source = outputs(4000, EQUAL, 0)
    fitted = method().fit(source)
    for shares in ([0.9, 0.1, 0.0, 0.0], [0.0, 0.05, 0.9, 0.05], [0.8, 0.0, 0.0, 0.2]):
        target = outputs(4000, shares, 1)
        assert abs(target.error - source.error) > 0.02
        assert fitted.score(target) == pytest.approx(target.error, abs=0.02)
        np.testing.assert_allclose(fitted.shares(target), label_shares(target.labels, CLASSES), atol=0.06)


def test_likeliest_shares_are_more_accurate_than_those_of_predicted_classes():
    source = Outputs(*draw(2000, EQUAL, 0, spread=2.0)[:1], labels=draw(2000, EQUAL, 0, spread=2.0)[1])
    fitted, distances = [method().fit(source) for method in METHODS], []
    for seed in range(1, 9):
        shares = np.random.default_rng(seed).dirichlet(np.ones(CLASSES))
        logits, labels = draw(500, shares, seed, spread=2.0)
        truth = label_shares(labels, CLASSES)
        distances.append([np.abs(one.shares(Outputs(logits)) - truth).sum() for one in fitted])
    likeliest, _, black_box = np.mean(distances, axis=0)
    assert likeliest < 0.9 * black_box


def test_transport_onto_estimated_shares_follows_a_change_of_shares_and_plain_cot_does_not():
    logits, labels = draw(2000, EQUAL, 0)
    source = Outputs(3.0 * logits, labels=labels)  # three times too sure
    logits, labels = draw(2000, [0.8, 0.2, 0.0, 0.0], 1)
    target = Outputs(3.0 * logits, labels=labels)
    found = estimators.COTMLLS().fit(source)
    expected = transport(softmax(3.0 * logits / found.temperature, axis=1), found.label_shift.shares(target)).cost
    assert found.score(target) == pytest.approx(expected)
    # Its probabilities are still those under the source's shares, so it is not exact.
    assert expected == pytest.approx(target.error, abs=0.06)
    assert estimators.COT().fit(source).score(target) > target.error + 0.2
    # Adapted to the new shares they are, and what is left is noise.
    assert estimators.COTAdapted().fit(source).score(target) == pytest.approx(target.error, abs=0.02)


def test_adapted_transport_by_hand():
    scaling = BiasCorrected(1.0, np.zeros(2))
    rows = np.array([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3], [0.8, 0.2]])
    fitted = estimators.COTAdapted(scaling, np.array([0.5, 0.5]), np.zeros(2), source_classes=2)
    target = Outputs(np.log(rows))
    q = maximum_likelihood_shares(rows, np.array([0.5, 0.5]))
    adapted = rows * q / (rows @ q)[:, None]
    expected = cost_of_two_classes(adapted, q[1]) + np.mean(adapted.max(axis=1) - adapted[np.arange(4), [0, 1, 0, 0]])
    assert fitted.score(target) == pytest.approx(expected)


def cost_of_two_classes(rows, share):
    """The rows that lean most to the second class fill its share; one of them in part."""
    order = np.argsort(-rows[:, 1])
    taken = np.clip(len(rows) * share - np.arange(len(rows)), 0.0, 1.0)
    return np.mean(taken * rows[order, 0] + (1.0 - taken) * rows[order, 1])


def test_temperature_is_found_from_log_probabilities_that_are_nearly_zero():
    logits, labels = draw(500, EQUAL, 3)
    rows = softmax(logits, axis=1)
    rows[rows < 0.05] = 0.0
    rows[np.arange(500), labels] = np.maximum(rows[np.arange(500), labels], 0.05)
    logs = np.log(np.maximum(rows / rows.sum(axis=1, keepdims=True), 1e-30))

    def loss(log_inverse):
        return -log_softmax(np.exp(log_inverse) * logs, axis=1)[np.arange(500), labels].mean()

    best = minimize_scalar(loss, bounds=(-3.0, 3.0), method="bounded", options={"xatol": 1e-9}).x
    assert fit_temperature(logs, labels) == pytest.approx(np.exp(-best), rel=1e-5)
    assert fit_temperature(logs + 1e6, labels) == pytest.approx(np.exp(-best), rel=1e-4)
    assert fit_temperature(np.zeros((3, 2)), np.array([0, 1, 1])) in (COLDEST, HOTTEST)


def test_bias_correction_is_the_penalised_maximum_of_a_general_optimiser():
    logits, labels = draw(200, EQUAL, 4)
    logits = 2.0 * logits + np.array([1.0, 0.0, -1.0, 0.5])

    def loss(parameters):
        logs = log_softmax(logits * parameters[0] + parameters[1:], axis=1)
        return -logs[np.arange(200), labels].mean() + 0.5 * np.sum(parameters[1:] ** 2) / 200

    best = minimize(
        loss,
        np.array([1.0, 0.0, 0.0, 0.0, 0.0]),
        method="Nelder-Mead",
        options={"xatol": 1e-8, "fatol": 1e-14, "maxiter": 9000},
    )
    found = BiasCorrected.fit(logits, labels)
    np.testing.assert_allclose([1.0 / found.temperature, *found.bias], best.x, atol=1e-4)
    np.testing.assert_allclose(found.probabilities(logits), softmax(logits / found.temperature + found.bias, axis=1))


def test_bias_correction_makes_mean_probabilities_the_class_shares_and_undoes_a_bias():
    logits, labels = draw(20_000, [0.4, 0.3, 0.2, 0.1], 5)
    bias = np.array([2.0, 0.0, -1.0, -1.0])
    found = BiasCorrected.fit(3.0 * (logits + bias), labels)
    np.testing.assert_allclose(
        found.probabilities(3.0 * (logits + bias)).mean(axis=0), label_shares(labels, 4), atol=1e-3
    )
    assert found.temperature == pytest.approx(3.0, rel=0.05)
    expected = np.log([0.4, 0.3, 0.2, 0.1]) - bias
    np.testing.assert_allclose(found.bias, expected - expected.mean(), atol=0.1)


@pytest.mark.parametrize("n", [1, 3, 40])
def test_classes_without_a_sample_and_tiny_sources_keep_biases_finite(n):
    logits, labels = draw(n, [0.6, 0.4, 0.0, 0.0], 6)
    found = BiasCorrected.fit(logits, labels)
    assert np.abs(found.bias).max() < 5.0
    assert COLDEST * 0.999 <= found.temperature <= HOTTEST * 1.001
    fitted = estimators.MLLS().fit(Outputs(logits, labels=labels))
    assert 0.0 <= fitted.score(Outputs(draw(50, EQUAL, 7)[0])) <= 1.0
