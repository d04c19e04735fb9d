"""ProjNormLinear: its invariances, and one value by every route."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from projnorm_theory import (
    LinearPair,
    RowSpace,
    min_norm_solution,
    projnorm_linear,
    projnorm_linear_from_gram,
    projnorm_linear_of_pair,
)
from simulations.designs import haar
from tests.strategies import EPS, general_designs, generators, matrices
from tests.theory import definitions


@given(matrices(), generators)
def test_agrees_with_the_definition(X_ood, rng):
    theta = rng.standard_normal((X_ood.shape[1], 2))
    result = projnorm_linear(theta, X_ood)
    assert result.value == pytest.approx(definitions.projnorm(theta, X_ood), abs=1e-9)
    assert result.rank == np.linalg.matrix_rank(X_ood)


@given(matrices(), generators)
def test_is_the_distance_to_the_model_trained_on_its_own_pseudo_labels(X_ood, rng):
    theta = rng.standard_normal(X_ood.shape[1])
    retrained = min_norm_solution(X_ood, X_ood @ theta).theta
    assert projnorm_linear(theta, X_ood).value == pytest.approx(np.linalg.norm(theta - retrained), abs=1e-9)


@given(matrices(), generators)
def test_is_zero_if_and_only_if_theta_lies_in_the_row_space(X_ood, rng):
    inside = X_ood.T @ rng.standard_normal(X_ood.shape[0])
    inside /= np.linalg.norm(inside)
    assert projnorm_linear(inside, X_ood).value <= 1e-11
    outside = RowSpace.from_matrix(X_ood).residual(rng.standard_normal(X_ood.shape[1]))
    assume(np.linalg.norm(outside) > 1e-3)
    assert projnorm_linear(inside + outside, X_ood).value == pytest.approx(np.linalg.norm(outside), rel=1e-8)


@given(matrices(columns=st.integers(4, 16)), generators, st.integers(1, 4))
def test_more_ood_rows_never_increase_the_norm(X_ood, rng, extra):
    theta = rng.standard_normal(X_ood.shape[1])
    more = np.vstack([X_ood, np.linalg.norm(X_ood) * rng.standard_normal((extra, X_ood.shape[1]))])
    assert projnorm_linear(theta, more).value <= projnorm_linear(theta, X_ood).value + 1e-9


@given(matrices(), generators)
def test_invertible_mixing_of_the_rows_changes_nothing(X_ood, rng):
    theta = rng.standard_normal(X_ood.shape[1])
    m = len(X_ood)
    mixing = haar(rng, m, m) * rng.uniform(0.5, 2.0, m) @ haar(rng, m, m)
    assert projnorm_linear(theta, mixing @ X_ood).value == pytest.approx(projnorm_linear(theta, X_ood).value, abs=1e-9)


@given(matrices(), generators)
def test_rotation_of_the_space_changes_nothing(X_ood, rng):
    theta, rotation = rng.standard_normal(X_ood.shape[1]), haar(rng, X_ood.shape[1], X_ood.shape[1])
    rotated = projnorm_linear(rotation @ theta, X_ood @ rotation.T)
    assert rotated.value == pytest.approx(projnorm_linear(theta, X_ood).value, abs=1e-9)


@given(matrices(), generators, st.floats(-1e6, 1e6))
def test_scales_with_theta(X_ood, rng, factor):
    theta = rng.standard_normal(X_ood.shape[1])
    scaled = projnorm_linear(factor * theta, X_ood).value
    assert scaled == pytest.approx(abs(factor) * projnorm_linear(theta, X_ood).value, abs=1e-9 * abs(factor))


@given(matrices(), generators, st.integers(2, 4))
def test_several_outputs_add_in_quadrature(X_ood, rng, outputs):
    theta = rng.standard_normal((X_ood.shape[1], outputs))
    each = [projnorm_linear(theta[:, j], X_ood).value for j in range(outputs)]
    assert projnorm_linear(theta, X_ood).value == pytest.approx(np.linalg.norm(each), abs=1e-9)


@given(general_designs())
def test_features_pair_and_gram_matrices_give_the_same_value(design):
    X, X_ood, Y = design.X, design.X_ood, design.Y
    expected = definitions.projnorm(min_norm_solution(X, Y).theta, X_ood)
    theta_norm = np.linalg.norm(min_norm_solution(X, Y).theta)
    of_pair = projnorm_linear_of_pair(LinearPair.from_features(X, X_ood), Y)
    assert of_pair.value == pytest.approx(expected, abs=1e-9 * theta_norm)
    assert of_pair.theta_norm == pytest.approx(theta_norm, rel=1e-9)
    assert of_pair.error_estimate == 0.0
    of_gram = projnorm_linear_from_gram(X @ X.T, Y, X_ood @ X.T, X_ood @ X_ood.T)
    assert abs(of_gram.value**2 - expected**2) <= of_gram.error_estimate + 1e-12 * theta_norm**2


@given(matrices(full_rank=True, decades=5.0), matrices(full_rank=True, decades=5.0), generators, st.floats(0.0, 1.0))
def test_error_estimate_of_the_gram_route_is_honest(X, X_ood, rng, closeness):
    d = max(X.shape[1], X_ood.shape[1])
    X, X_ood = (np.pad(A, ((0, 0), (0, d - A.shape[1]))) for A in (X, X_ood))
    # Weights near the shifted row space are where the two terms of the square cancel.
    theta = X.T @ rng.standard_normal(len(X))
    Y = X @ ((1 - closeness) * theta / np.linalg.norm(theta) + closeness * RowSpace.from_matrix(X_ood).project(theta))
    result = projnorm_linear_from_gram(X @ X.T, Y, X_ood @ X.T, X_ood @ X_ood.T)
    assume(result.train_rank == len(X) and result.rank == len(X_ood))
    exact = projnorm_linear_of_pair(LinearPair.from_features(X, X_ood), Y)
    assert abs(result.value**2 - exact.value**2) <= result.error_estimate
    cond, size = max(np.linalg.cond(X), np.linalg.cond(X_ood)), max(40, len(X), len(X_ood))
    assert result.error_estimate <= 6.001 * size * EPS * (cond * result.theta_norm) ** 2


@given(general_designs(), st.floats(1e-3, 10.0), st.floats(1e-3, 10.0))
def test_ridge_follows_its_formula(design, ridge_train, ridge_ood):
    X, X_ood, Y = design.X, design.X_ood, design.Y
    a, b = ridge_train * np.linalg.norm(X, 2) ** 2, ridge_ood * np.linalg.norm(X_ood, 2) ** 2
    K, C, K_ood = X @ X.T, X_ood @ X.T, X_ood @ X_ood.T
    alpha = np.linalg.solve(K + a * np.eye(len(K)), Y)
    beta = np.linalg.solve(K_ood + b * np.eye(len(K_ood)), C @ alpha)
    square = np.trace(alpha.T @ K @ alpha - 2 * beta.T @ C @ alpha + beta.T @ K_ood @ beta)
    result = projnorm_linear_from_gram(K, Y, C, K_ood, ridge=(a, b))
    assert result.value**2 == pytest.approx(square, rel=1e-8, abs=1e-10 * np.linalg.norm(X.T @ alpha) ** 2)
    assert result.ridge == (a, b)
    of_features = projnorm_linear_of_pair(LinearPair.from_features(X, X_ood), Y, ridge=(a, b))
    assert of_features.value == pytest.approx(result.value, rel=1e-5, abs=1e-5 * result.theta_norm)


def test_one_ridge_serves_both_matrices():
    rng = np.random.default_rng(0)
    pair, Y = LinearPair.from_features(rng.standard_normal((4, 9)), rng.standard_normal((5, 9))), rng.standard_normal(4)
    assert projnorm_linear_of_pair(pair, Y, ridge=0.3).value == projnorm_linear_of_pair(pair, Y, ridge=(0.3, 0.3)).value


def test_full_rank_in_every_direction_leaves_nothing():
    rng = np.random.default_rng(0)
    assert projnorm_linear(rng.standard_normal(4), rng.standard_normal((9, 4))).value == 0.0


@pytest.mark.parametrize(
    "coarse", [(True, True, True), (False, False, True), (False, True, False), (True, False, False)]
)
def test_error_estimate_covers_kernels_rounded_to_float32(coarse):
    rng = np.random.default_rng(0)
    for _ in range(20):
        spectrum = np.logspace(0, -rng.uniform(0, 2), 30)
        X, X_ood = (haar(rng, 30, 30) * spectrum @ haar(rng, 90, 30).T for _ in range(2))
        Y = X @ rng.standard_normal(90)
        blocks = [X @ X.T, X_ood @ X.T, X_ood @ X_ood.T]
        rounded = [block.astype(np.float32) if c else block for block, c in zip(blocks, coarse, strict=True)]
        result = projnorm_linear_from_gram(rounded[0], Y, rounded[1], rounded[2])
        if result.train_rank == result.rank == 30:
            exact = projnorm_linear_of_pair(LinearPair.from_features(X, X_ood), Y)
            assert abs(result.value**2 - exact.value**2) <= result.error_estimate


def test_error_estimate_does_not_vanish_with_the_shifted_kernel():
    rng = np.random.default_rng(0)
    X = haar(rng, 6, 6) * np.logspace(0, -5, 6) @ haar(rng, 20, 6).T
    Y = rng.standard_normal(6)
    result = projnorm_linear_from_gram(X @ X.T, Y, np.zeros((2, 6)), np.zeros((2, 2)))
    exact = np.linalg.norm(min_norm_solution(X, Y).theta)
    assert 0.0 < abs(result.value**2 - exact**2) <= result.error_estimate


@given(generators, st.integers(2, 6), st.integers(2, 6), st.sampled_from([0.0, 0.3, 2.0]))
def test_with_labels_from_elsewhere_it_is_the_distance_between_two_trained_models(rng, n, m, ridge):
    X, X_ood = rng.standard_normal((n, 15)), rng.standard_normal((m, 15))
    Y, Y_ood = rng.standard_normal((n, 2)), rng.standard_normal((m, 2))
    theta, theta_ood = (A.T @ np.linalg.solve(A @ A.T + ridge * np.eye(len(A)), B) for A, B in ((X, Y), (X_ood, Y_ood)))
    expected = np.linalg.norm(theta - theta_ood)
    for pair in (LinearPair.from_features(X, X_ood), LinearPair.from_gram(X @ X.T, X_ood @ X.T, X_ood @ X_ood.T)):
        found = projnorm_linear_of_pair(pair, Y, ridge=ridge, pseudo_labels=Y_ood)
        assert found.value == pytest.approx(expected, rel=1e-6)
        own = projnorm_linear_of_pair(pair, Y, ridge=ridge)
        same = projnorm_linear_of_pair(pair, Y, ridge=ridge, pseudo_labels=X_ood @ theta)
        assert same.value == pytest.approx(own.value, rel=1e-6)


def test_pseudo_labels_that_do_not_fit_are_refused():
    rng = np.random.default_rng(0)
    pair = LinearPair.from_features(rng.standard_normal((4, 9)), rng.standard_normal((3, 9)))
    with pytest.raises(ValueError, match="`pseudo_labels` must have 2 outputs like `Y`; got 1"):
        projnorm_linear_of_pair(pair, np.ones((4, 2)), pseudo_labels=np.ones((3, 1)))
