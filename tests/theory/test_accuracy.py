"""Accuracy against answers that are exact: dyadic by construction, or rational arithmetic.

A Hadamard matrix of order 16 over 4 is orthogonal and has entries +-1/4. Singular values that are powers of two keep
every product exact, so the matrices below have exactly the row spaces and spectra they are said to have.
"""

from __future__ import annotations

from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
from scipy.linalg import hadamard

from projnorm_theory import LinearPair, RowSpace, min_norm_solution, projnorm_linear, projnorm_linear_of_pair
from projnorm_theory.factor import factor
from tests.strategies import EPS

H16, H64 = hadamard(16) / 4.0, hadamard(64) / 8.0
LOG2_CONDITIONS = [0, 5, 10, 13, 16, 20, 26]


def exact_design(log2_condition: int, first: int) -> np.ndarray:
    """16 x 64, rows spanning columns first..first+15 of H64, singular values from 1 down to 2^-log2_condition."""
    exponents = np.round(np.linspace(0, log2_condition, 16)).astype(int)
    return H16 * 2.0**-exponents @ H64[:, first : first + 16].T


@pytest.mark.parametrize("log2_condition", LOG2_CONDITIONS)
@pytest.mark.parametrize("method", ["auto", "svd"])
def test_minimum_norm_solution_is_exact_to_eps_cond(log2_condition, method):
    X = exact_design(log2_condition, first=0)
    exact = H64[:, :16] @ (np.arange(16) - 8.0)
    theta = min_norm_solution(X, X @ exact, method=method).theta
    assert np.linalg.norm(theta - exact) <= 1e3 * EPS * 2**log2_condition * np.linalg.norm(exact)


@pytest.mark.parametrize("log2_condition", LOG2_CONDITIONS)
@pytest.mark.parametrize("shared", [0, 8, 16])
def test_projnorm_is_exact_to_eps_cond(log2_condition, shared):
    X_ood = exact_design(log2_condition, first=16 - shared)
    coefficients = np.arange(16) - 8.0
    theta = H64[:, :16] @ coefficients
    exact = np.linalg.norm(coefficients[: 16 - shared])
    tolerance = 1e3 * EPS * 2**log2_condition * np.linalg.norm(coefficients)
    assert abs(projnorm_linear(theta, X_ood).value - exact) <= tolerance
    assert abs(np.linalg.norm(RowSpace.from_matrix(X_ood).residual(theta)) - exact) <= tolerance


@pytest.mark.parametrize("log2_condition", LOG2_CONDITIONS)
@pytest.mark.parametrize("shared", [0, 8, 16])
def test_projnorm_of_a_pair_is_exact_to_eps_cond(log2_condition, shared):
    X, X_ood = exact_design(log2_condition, first=0), exact_design(log2_condition, first=16 - shared)
    coefficients = np.arange(16) - 8.0
    exact = np.linalg.norm(coefficients[: 16 - shared])
    value = projnorm_linear_of_pair(LinearPair.from_features(X, X_ood), X @ (H64[:, :16] @ coefficients)).value
    assert abs(value - exact) <= 1e3 * EPS * 2**log2_condition * np.linalg.norm(coefficients)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("log_condition", [0, 2, 4, 5, 6, 8])
def test_generic_matrices_agree_with_rational_arithmetic(seed, log_condition):
    """The float64 matrices are taken as rationals and the projections computed with no rounding at all."""
    rng = np.random.default_rng(seed)
    n, d = 4, 7
    spectrum = np.logspace(0, -log_condition, n)
    X, X_ood = (_haar(rng, n) * spectrum @ _haar(rng, d)[:n] for _ in range(2))
    Y = rng.standard_normal(n)
    exact = _exact_min_norm(X, Y)
    solution = min_norm_solution(X, Y)
    cond = np.linalg.cond(X)
    exact_floats = np.array([float(value) for value in exact])
    assert np.linalg.norm(solution.theta - exact_floats) <= 1e3 * EPS * cond * np.linalg.norm(exact_floats)

    theta = [Fraction(value) for value in exact_floats]
    outputs = [sum(Fraction(x) * t for x, t in zip(row, theta, strict=True)) for row in X_ood]
    projected = _exact_min_norm(X_ood, outputs)
    exact_value = sqrt(sum((a - b) ** 2 for a, b in zip(theta, projected, strict=True)))
    value = projnorm_linear(exact_floats, X_ood).value
    assert abs(value - exact_value) <= 1e3 * EPS * np.linalg.cond(X_ood) * np.linalg.norm(exact_floats)


@pytest.mark.parametrize("log2_condition", [0, 10, 13])
def test_refinement_leaves_nothing_in_the_row_space(log2_condition):
    """What the Cholesky route leaves of the row space is rounding of theta, not of theta times the condition."""
    X_ood = exact_design(log2_condition, first=0)
    gram = factor(X_ood, precision=EPS, method="gram")
    theta = np.random.default_rng(0).standard_normal((64, 3))
    assert np.linalg.norm(X_ood @ gram.residual(theta)) <= 100 * EPS * np.linalg.norm(theta)


@pytest.mark.parametrize("rcond", [None, 1e-4, 1e-3, 1e-2])
def test_a_stated_cut_off_is_kept_by_every_route(rcond):
    X = exact_design(12, first=0)
    expected = int(np.sum(np.linalg.svd(X, compute_uv=False) > (rcond or 0.0)))
    assert min_norm_solution(X, np.ones(16), rcond=rcond).rank == expected
    assert projnorm_linear(np.ones(64), X, rcond=rcond).rank == expected


def test_badly_scaled_rows_are_solved_exactly():
    X = np.diag([1e150, 1e-150, 1.0]) @ np.eye(3, 6)
    np.testing.assert_allclose(min_norm_solution(X, [1e150, 1e-150, 2.0], rcond=0.0).theta[:3], [1.0, 1.0, 2.0])
    tiny = 1e-170 * np.eye(2, 5)
    np.testing.assert_allclose(min_norm_solution(tiny, [1e-170, 2e-170]).theta[:2], [1.0, 2.0])
    assert projnorm_linear([3.0, 4.0, 5.0, 0.0, 0.0], tiny).value == pytest.approx(5.0)


def _haar(rng: np.random.Generator, size: int) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((size, size)))[0]


def _exact_min_norm(X: np.ndarray, Y) -> list[Fraction]:
    """``X^T (X X^T)^-1 Y`` by Gaussian elimination over the rationals."""
    rows = [[Fraction(float(x)) for x in row] for row in X]
    n = len(rows)
    system = [
        [sum(a * b for a, b in zip(rows[i], rows[j], strict=True)) for j in range(n)] + [Fraction(Y[i])]
        for i in range(n)
    ]
    for i in range(n):
        pivot = next(r for r in range(i, n) if system[r][i] != 0)
        system[i], system[pivot] = system[pivot], system[i]
        for r in range(n):
            if r != i:
                factor = system[r][i] / system[i][i]
                system[r] = [a - factor * b for a, b in zip(system[r], system[i], strict=True)]
    alpha = [system[i][n] / system[i][i] for i in range(n)]
    return [sum(alpha[i] * rows[i][j] for i in range(n)) for j in range(X.shape[1])]
