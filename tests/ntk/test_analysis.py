"""The theory on kernels equals the theory on the features they come from."""

from __future__ import annotations

import numpy as np
import pytest

from ntk import Responses, analyse_target, analyse_train, predict_target
from projnorm_theory import (
    LinearPair,
    alignment,
    generalised_bound,
    min_norm_solution,
    projnorm_linear,
    sharp_interval,
    spectrum,
)

CLASSES = 3


@pytest.fixture
def drawn():
    rng = np.random.default_rng(0)
    X, X_ood = rng.normal(size=(20, 90)) * np.arange(1, 91) ** -0.5, rng.normal(size=(16, 90))
    return X, X_ood, rng.integers(CLASSES, size=20), rng.integers(CLASSES, size=16)


def analysed(drawn, **options):
    X, X_ood, labels, labels_ood = drawn
    responses = Responses.of(labels, CLASSES)
    train = analyse_train(X @ X.T, responses)
    return train, analyse_target(train, X_ood @ X.T, X_ood @ X_ood.T, labels_ood, **options), responses


def test_responses_are_centred_one_hot_rows():
    responses = Responses.of(np.array([0, 0, 1, 2]), CLASSES)
    np.testing.assert_allclose(responses.train.sum(axis=0), 0.0, atol=1e-15)
    np.testing.assert_allclose(responses.centre, [0.5, 0.25, 0.25])
    np.testing.assert_allclose(responses.ood(np.array([1]))[0], [-0.5, 0.75, -0.25])


def test_kernels_tell_what_features_tell(drawn):
    X, X_ood, _, labels_ood = drawn
    train, found, responses = analysed(drawn)
    Y, Y_ood = responses.train, responses.ood(labels_ood)
    theta = min_norm_solution(X, Y).theta
    outputs = X_ood @ theta
    assert found.prediction.projnorm == pytest.approx(projnorm_linear(theta, X_ood).value, rel=1e-6)
    assert found.prediction.theta_norm == pytest.approx(np.linalg.norm(theta), rel=1e-8)
    assert found.test_loss == pytest.approx(np.sum((outputs - Y_ood) ** 2) / 16, rel=1e-8)
    np.testing.assert_array_equal(found.prediction.predicted, (outputs + responses.centre).argmax(axis=1))
    assert found.prediction.error == np.mean(found.prediction.predicted != labels_ood)
    np.testing.assert_allclose(train.eigenvalues, spectrum(X).eigenvalues, rtol=1e-8)
    np.testing.assert_allclose(found.eigenvalues, spectrum(X_ood).eigenvalues, rtol=1e-8)
    np.testing.assert_allclose(found.alignment.matrix, alignment(X, X_ood, 16).matrix, atol=1e-6)
    pair = LinearPair.of(X, X_ood)
    rho = np.linalg.norm(np.linalg.pinv(X_ood) @ Y_ood) / np.linalg.norm(theta)
    assert found.rho == pytest.approx(rho, rel=1e-8)
    for ours, direct in (
        (found.generalised, generalised_bound(pair, Y, k=0, rho=rho)),
        (found.sharp, sharp_interval(pair, Y, rho=rho)),
    ):
        assert ours is not None
        assert (ours.lower, ours.upper) == pytest.approx((direct.lower, direct.upper), rel=1e-5)
        assert ours.lower <= found.test_loss <= ours.upper
    assert found.warnings == ()
    assert train.warning == ""


def test_a_ridge_is_the_ridge_regression_of_kernels(drawn):
    X, X_ood, labels, labels_ood = drawn
    _, found, responses = analysed(drawn, ridge=0.7)
    K = X @ X.T
    alpha = np.linalg.solve(K + 0.7 * np.eye(20), responses.train)
    np.testing.assert_array_equal(found.prediction.predicted, (X_ood @ X.T @ alpha + responses.centre).argmax(axis=1))
    theta = X.T @ alpha
    relearnt = X_ood.T @ np.linalg.solve(X_ood @ X_ood.T + 0.7 * np.eye(16), X_ood @ theta)
    assert found.prediction.projnorm == pytest.approx(np.linalg.norm(theta - relearnt), rel=1e-6)
    assert found.prediction.ridge == 0.7
    train = analyse_train(K, Responses.of(labels, CLASSES))
    alone = predict_target(train, X_ood @ X.T, X_ood @ X_ood.T, labels_ood, ridge=0.7)
    assert alone.projnorm == found.prediction.projnorm


def test_a_tail_lost_in_single_precision_is_said_with_its_remedy():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(30, 40)) @ np.diag(10.0 ** -np.linspace(0, 6, 40))
    coarse = (X.astype(np.float32) @ X.astype(np.float32).T).astype(np.float64)
    responses = Responses.of(np.arange(30) % CLASSES, CLASSES)
    train = analyse_train((coarse + coarse.T) / 2, responses, accumulate="float32")
    assert "numerical rank" in train.warning
    assert 'accumulate="float64"' in train.warning
    small = analyse_train(np.diag([1.0, 1e-5]), responses, accumulate="float32").warning
    assert small.startswith("eigenvalues below 1.69e-05 are not told from rounding; the smallest is 1e-05; accumulate=")
    assert "float64" not in analyse_train(X @ X.T, responses, accumulate="float64").warning


def test_blocks_of_different_features_are_refused(drawn):
    X, X_ood, labels, labels_ood = drawn
    train = analyse_train(X @ X.T, Responses.of(labels, CLASSES))
    with pytest.raises(ValueError, match="`k_ood_train` does not fit"):
        analyse_target(train, 5 * X_ood @ X.T, X_ood @ X_ood.T, labels_ood)


def test_without_a_sharp_interval_the_reason_is_given(drawn):
    X, X_ood, labels, labels_ood = drawn
    X, X_ood = X[:, :12], X_ood[:, :12]
    train = analyse_train(X @ X.T, Responses.of(labels, CLASSES))
    found = analyse_target(train, X_ood @ X.T, X_ood @ X_ood.T, labels_ood)
    assert found.sharp is None
    assert any("no sharp interval: " in warning for warning in found.warnings)
    assert any("numerical rank 12 of 16" in warning for warning in found.warnings)
