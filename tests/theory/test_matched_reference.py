"""A reference with other class shares: the proposition of docs/theory.md, section 7."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_allclose

from projnorm_theory import min_norm_solution, projnorm_linear_from_gram

SEEDS = st.integers(0, 2**32 - 1)


def ridge_fit(second_moment, theta, ridge):
    """What outputs of theta teach."""
    return np.linalg.solve(second_moment + ridge * np.eye(len(theta)), second_moment @ theta)


@given(SEEDS, st.floats(1e-3, 10.0))
def test_the_matched_distance_is_the_product_of_the_proposition(seed, ridge):
    rng = np.random.default_rng(seed)
    X, X_ood, theta = rng.standard_normal((9, 5)), rng.standard_normal((7, 5)) + 0.5, rng.standard_normal((5, 2))
    weights = rng.dirichlet(np.ones(9)) * 9
    C, S = (weights[:, None] * X).T @ X / 9, X_ood.T @ X_ood / 7
    difference = ridge_fit(C, theta, ridge) - ridge_fit(S, theta, ridge)
    eye = ridge * np.eye(5)
    expected = ridge * np.linalg.solve(S + eye, (C - S) @ np.linalg.solve(C + eye, theta))
    assert_allclose(difference, expected, rtol=1e-7, atol=1e-9)
    bound = np.linalg.norm(C - S, 2) * np.linalg.norm(theta) / ridge
    assert np.linalg.norm(difference) <= bound * (1 + 1e-9)
    # The weighted fit is the plain one of rows scaled by the roots of the weights.
    rows = np.sqrt(weights)[:, None] * X
    plain = np.linalg.solve(rows.T @ rows + 9 * eye, rows.T @ (rows @ theta))
    assert_allclose(plain, ridge_fit(C, theta, ridge), rtol=1e-7, atol=1e-9)


@given(SEEDS, st.integers(2, 5))
def test_weights_by_predicted_class_miss_by_the_error(seed, classes):
    rng = np.random.default_rng(seed)
    J = 0.1 * rng.dirichlet(np.ones(classes**2)).reshape(classes, classes)
    J[np.diag_indices(classes)] += 0.9 * rng.dirichlet(np.ones(classes))
    roots = rng.standard_normal((classes, classes, 4, 3))
    moments = roots @ roots.transpose(0, 1, 3, 2)
    ratios = rng.dirichlet(np.ones(classes)) / J.sum(axis=0)
    target = np.einsum("kj,j,kjab->ab", J, ratios, moments)
    predicted = J @ ratios / J.sum(axis=1)  # shares of predictions in the target over those in the source
    by_prediction = np.einsum("kj,k,kjab->ab", J, predicted, moments)
    error = 1.0 - np.trace(J)
    largest = max(np.linalg.norm(moment, 2) for moment in moments.reshape(-1, 4, 4))
    missed = np.linalg.norm(by_prediction - target, 2)
    assert missed <= 2 * largest * error * np.ptp(ratios) * (1 + 1e-9)
    # With a model that makes no mistake, nothing is missed.
    right = np.diag(J.sum(axis=0))
    assert_allclose(
        np.einsum("kj,k,kjab->ab", right, ratios, moments), np.einsum("kj,j,kjab->ab", right, ratios, moments)
    )


def test_without_a_ridge_weights_do_not_matter_unless_they_are_zero():
    rng = np.random.default_rng(0)
    X, theta = rng.standard_normal((6, 11)), rng.standard_normal(11)
    weights = rng.uniform(0.1, 3.0, 6)

    def solution(weights):
        rows = np.sqrt(weights)[:, None] * X
        return min_norm_solution(rows, rows @ theta).theta

    assert_allclose(solution(weights), solution(np.ones(6)), atol=1e-10)
    weights[:2] = 0.0
    kept = np.linalg.qr(X[2:].T)[0]
    assert_allclose(solution(weights), kept @ (kept.T @ theta), atol=1e-10)


@pytest.mark.parametrize("ridge", [0.0, 0.7])
def test_kernels_take_weights_as_scaled_rows(ridge):
    rng = np.random.default_rng(1)
    X, X_ood = rng.standard_normal((8, 30)), rng.standard_normal((6, 30))
    Y, labels = rng.standard_normal((8, 3)), rng.standard_normal((6, 3))
    roots = np.sqrt(rng.uniform(0.2, 2.0, 8))[:, None]

    def fit(rows, responses):
        return rows.T @ np.linalg.solve(rows @ rows.T + ridge * np.eye(len(rows)), responses)

    kernel, between = X @ X.T, X_ood @ X.T
    found = projnorm_linear_from_gram(
        roots * kernel * roots.T, roots * Y, between * roots.T, X_ood @ X_ood.T, ridge=ridge, pseudo_labels=labels
    )
    assert found.value == pytest.approx(np.linalg.norm(fit(roots * X, roots * Y) - fit(X_ood, labels)), rel=1e-7)
