"""The laws of a projector, and the factorisation behind it."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from projnorm_theory import RowSpace
from tests.strategies import EPS, generators, matrices
from tests.theory import definitions


@given(matrices(), generators)
def test_projection_is_idempotent(X, rng):
    space, theta = RowSpace.from_matrix(X), rng.standard_normal(X.shape[1])
    once = space.project(theta)
    assert np.linalg.norm(space.project(once) - once) <= 50 * EPS * np.linalg.norm(theta)


@given(matrices(), generators)
def test_projection_is_symmetric(X, rng):
    space = RowSpace.from_matrix(X)
    a, b = rng.standard_normal((2, X.shape[1]))
    assert abs(space.project(a) @ b - a @ space.project(b)) <= 50 * EPS * np.linalg.norm(a) * np.linalg.norm(b)


@given(matrices(), generators)
def test_projection_is_a_contraction(X, rng):
    theta = rng.standard_normal(X.shape[1])
    assert np.linalg.norm(RowSpace.from_matrix(X).project(theta)) <= (1 + 50 * EPS) * np.linalg.norm(theta)


@given(matrices())
def test_range_of_the_projection_is_the_row_space(X):
    space = RowSpace.from_matrix(X)
    np.testing.assert_allclose(space.project(X.T), X.T, atol=100 * EPS * np.linalg.norm(X))
    assert space.rank == np.linalg.matrix_rank(X) == np.linalg.matrix_rank(np.vstack([X, space.basis.T * X.max()]))


@given(matrices(), generators)
def test_projection_and_residual_split_theta_at_a_right_angle(X, rng):
    space, theta = RowSpace.from_matrix(X), rng.standard_normal((X.shape[1], 2))
    projected, rest = space.project(theta), space.residual(theta)
    np.testing.assert_allclose(projected + rest, theta, atol=1e-13)
    assert np.abs(X @ rest).max() <= 100 * EPS * np.linalg.norm(X) * np.linalg.norm(theta)


@given(matrices(), generators)
def test_projection_agrees_with_the_explicit_projector(X, rng):
    theta = rng.standard_normal(X.shape[1])
    np.testing.assert_allclose(RowSpace.from_matrix(X).project(theta), definitions.projector(X) @ theta, atol=1e-10)


@given(matrices())
def test_eigenvalues_and_basis_diagonalise_the_second_moment(X):
    space = RowSpace.from_matrix(X)
    assert np.all(np.diff(space.eigenvalues) <= 0)
    np.testing.assert_allclose(space.basis.T @ space.basis, np.eye(space.rank), atol=100 * EPS)
    rebuilt = (space.basis * space.eigenvalues) @ space.basis.T
    np.testing.assert_allclose(rebuilt, X.T @ X, atol=100 * EPS * np.linalg.norm(X) ** 2)


@given(matrices(), st.integers(1, 4), generators)
def test_duplicated_and_zero_rows_change_nothing(X, copies, rng):
    theta = rng.standard_normal(X.shape[1])
    padded = np.vstack([X, X[:copies], np.zeros((2, X.shape[1]))])
    assert RowSpace.from_matrix(padded).rank == RowSpace.from_matrix(X).rank
    np.testing.assert_allclose(
        RowSpace.from_matrix(padded).project(theta), RowSpace.from_matrix(X).project(theta), atol=1e-10
    )


def test_residual_is_exactly_zero_where_the_rows_span_everything():
    X = np.random.default_rng(0).standard_normal((7, 4))
    assert not RowSpace.from_matrix(X).residual(np.ones(4)).any()


def test_zero_matrix_has_an_empty_row_space():
    space = RowSpace.from_matrix(np.zeros((3, 5)))
    assert space.rank == 0
    assert space.basis.shape == (5, 0)
    np.testing.assert_array_equal(space.project(np.ones(5)), np.zeros(5))
    np.testing.assert_array_equal(space.residual(np.ones(5)), np.ones(5))
    np.testing.assert_array_equal(space.solve(np.ones(3)), np.zeros(5))


def test_rcond_sets_the_rank():
    X = np.diag([1.0, 1e-3, 1e-6])
    assert [RowSpace.from_matrix(X, rcond=rcond).rank for rcond in (None, 1e-4, 1e-2)] == [3, 2, 1]


def test_coordinates_reassemble_to_the_projection():
    X = np.random.default_rng(1).standard_normal((3, 6))
    space = RowSpace.from_matrix(X)
    np.testing.assert_allclose(space.basis @ space.coordinates(np.arange(6.0)), space.project(np.arange(6.0)))
