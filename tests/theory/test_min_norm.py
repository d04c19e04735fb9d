"""The minimum-norm solution: shortest, and where gradient descent and ridge regression end."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from projnorm_theory import RowSpace, min_norm_solution, ood_loss
from projnorm_theory.factor import METHODS
from simulations.designs import haar
from tests.strategies import EPS, generators, matrices


@given(matrices(), generators)
def test_agrees_with_the_pseudo_inverse(X, rng):
    Y = rng.standard_normal((X.shape[0], 2))
    expected = np.linalg.pinv(X, rcond=1e-11) @ Y
    solution = min_norm_solution(X, Y)
    np.testing.assert_allclose(solution.theta, expected, atol=1e-9 * np.linalg.norm(expected))
    assert solution.rank == np.linalg.matrix_rank(X)
    np.testing.assert_allclose(solution.residual_norm, np.linalg.norm(X @ expected - Y), atol=1e-10)


@given(matrices(full_rank=True), generators)
def test_interpolates_and_every_other_interpolator_is_longer(X, rng):
    Y = rng.standard_normal(X.shape[0])
    solution = min_norm_solution(X, Y)
    cond = np.linalg.cond(X)
    assert solution.residual_norm <= 1e3 * EPS * cond * np.linalg.norm(Y)
    other = solution.theta + RowSpace.from_matrix(X).residual(rng.standard_normal(X.shape[1]))
    assert np.linalg.norm(X @ other - Y) <= 1e3 * EPS * cond * (np.linalg.norm(Y) + np.linalg.norm(X))
    assert np.linalg.norm(solution.theta) <= np.linalg.norm(other) * (1 + 1e-9)


@given(matrices(decades=0.5), generators)
def test_is_the_limit_of_gradient_descent_from_zero(X, rng):
    Y = rng.standard_normal(X.shape[0])
    theta, step = np.zeros(X.shape[1]), 1 / np.linalg.norm(X, 2) ** 2
    for _ in range(2000):
        theta -= step * X.T @ (X @ theta - Y)
    expected = min_norm_solution(X, Y).theta
    np.testing.assert_allclose(theta, expected, atol=1e-8 * np.linalg.norm(expected) + 1e-300)


@given(matrices(decades=1.0), generators)
def test_is_the_limit_of_ridge_regression(X, rng):
    Y = rng.standard_normal(X.shape[0])
    expected = min_norm_solution(X, Y).theta
    smallest = RowSpace.from_matrix(X).eigenvalues[-1]
    errors = []
    for ridge in (1e-2, 1e-4):
        ridge_theta = X.T @ np.linalg.solve(X @ X.T + ridge * smallest * np.eye(len(X)), Y)
        errors.append(np.linalg.norm(ridge_theta - expected) / np.linalg.norm(expected))
    assert errors[0] <= 1.01e-2
    assert errors[1] <= 1.01e-4 + 1e-9


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(5, 5), (5, 12), (1, 3)])
def test_methods_agree_on_a_well_conditioned_matrix(method, shape):
    rng = np.random.default_rng(0)
    X, Y = haar(rng, shape[0], shape[0]) * 2.0 @ haar(rng, shape[1], shape[0]).T, rng.standard_normal(shape[0])
    solution = min_norm_solution(X, Y, method=method)
    np.testing.assert_allclose(solution.theta, np.linalg.pinv(X) @ Y, atol=1e-13)
    assert solution.method == ("gram" if method == "auto" else method)


@pytest.mark.parametrize(
    ("log_condition", "method"), [(2, "gram"), (6, "qr"), (15, "svd")], ids=["well", "ill", "deficient"]
)
def test_the_cheapest_accurate_method_is_taken(log_condition, method):
    rng = np.random.default_rng(0)
    X = haar(rng, 6, 6) * np.logspace(0, -log_condition, 6) @ haar(rng, 20, 6).T
    assert min_norm_solution(X, np.ones(6)).method == method


def test_tall_matrices_are_solved_by_least_squares():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((20, 5)), rng.standard_normal(20)
    solution = min_norm_solution(X, Y)
    assert (solution.method, solution.rank) == ("qr", 5)
    np.testing.assert_allclose(solution.theta, np.linalg.lstsq(X, Y)[0], atol=1e-12)
    assert solution.residual_norm > 1.0


def test_shape_of_theta_follows_the_responses():
    X = np.eye(3, 5)
    assert min_norm_solution(X, np.ones(3)).theta.shape == (5,)
    assert min_norm_solution(X, np.ones((3, 1))).theta.shape == (5, 1)
    assert min_norm_solution(X, np.ones((3, 4))).theta.shape == (5, 4)


@given(matrices(), generators, st.integers(1, 3))
def test_test_loss_is_the_mean_over_examples_of_the_sum_over_outputs(X, rng, outputs):
    theta = rng.standard_normal((X.shape[1], outputs))
    Y = rng.standard_normal((X.shape[0], outputs))
    by_hand = sum((X[i] @ theta[:, j] - Y[i, j]) ** 2 for i in range(len(X)) for j in range(outputs)) / len(X)
    assert ood_loss(theta, X, Y) == pytest.approx(by_hand, rel=1e-10)
