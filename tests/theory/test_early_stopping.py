"""Early stopping in closed form, against the iteration itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from projnorm_theory import LinearPair, min_norm_solution, projnorm_linear_after, projnorm_linear_of_pair
from tests.strategies import general_designs

STEPS = [0, 1, 2, 3, 10, 41]


def _iterate(X_ood: np.ndarray, labels: np.ndarray, steps: int, h: float) -> np.ndarray:
    """Gradient descent from zero on ``||X~ theta - labels||^2 / (2 m)``."""
    theta = np.zeros((X_ood.shape[1], labels.shape[1]))
    for _ in range(steps):
        theta = theta - h * X_ood.T @ (X_ood @ theta - labels) / len(X_ood)
    return theta


@given(general_designs(), st.floats(1e-3, 1.999), st.booleans())
def test_equals_the_iteration_for_own_and_foreign_labels(design, relative_step, own):
    X, X_ood, Y = design.X, design.X_ood, design.Y
    pair = LinearPair.from_features(X, X_ood)
    h = relative_step / np.linalg.norm(X_ood, 2) ** 2 * len(X_ood)
    theta = min_norm_solution(X, Y).theta
    labels = X_ood @ theta if own else np.cos(np.arange(Y.shape[1] * len(X_ood))).reshape(len(X_ood), -1)
    # Foreign labels need not fit the size of theta at all.
    labels = labels if own else labels * np.abs(X_ood @ theta).max()
    result = projnorm_linear_after(pair, Y, steps=STEPS, step_size=h, pseudo_labels=None if own else labels)
    for count, value in zip(STEPS, result.values, strict=True):
        expected = np.linalg.norm(theta - _iterate(X_ood, labels, count, h))
        assert value == pytest.approx(expected, rel=1e-8, abs=1e-8 * np.linalg.norm(theta))


@given(general_designs(), st.floats(1e-3, 1.999))
def test_starts_at_the_norm_of_theta_never_grows_and_ends_at_projnorm(design, relative_step):
    pair = LinearPair.from_features(design.X, design.X_ood)
    largest = projnorm_linear_after(pair, design.Y, steps=0, step_size=1e-300).largest_step
    result = projnorm_linear_after(pair, design.Y, steps=[0, 1, 2, 5, 10**18], step_size=relative_step / 2 * largest)
    projnorm = projnorm_linear_of_pair(pair, design.Y)
    rounding = 1e-12 * projnorm.theta_norm
    assert result.values[0] == pytest.approx(projnorm.theta_norm, rel=1e-9)
    assert np.all(np.diff(result.values) <= rounding)
    assert result.values[-1] == pytest.approx(projnorm.value, abs=rounding)
    assert result.limit == pytest.approx(projnorm.value, abs=rounding)


@given(general_designs(), st.integers(1, 10**6), st.floats(1e-3, 1.0))
def test_is_at_most_the_ridge_of_one_over_step_times_count(design, steps, relative_step):
    """``(1 - x)^T <= exp(-T x) <= 1 / (1 + T x)``, so stopping learns at least as much as that ridge."""
    pair = LinearPair.from_features(design.X, design.X_ood)
    h = relative_step / 2 * projnorm_linear_after(pair, design.Y, steps=0, step_size=1e-300).largest_step
    stopped = projnorm_linear_after(pair, design.Y, steps=steps, step_size=h)
    on_gram = float(stopped.equivalent_ridge) * pair.n_ood
    ridge = projnorm_linear_of_pair(pair, design.Y, ridge=(0.0, on_gram))
    assert float(stopped.values) <= ridge.value * (1 + 1e-9)


def test_steps_next_to_the_largest_one_keep_their_accuracy():
    """One direction with h l = 2 - 1e-9: after 1e9 steps e^-1 of theta is left, with the sign of the count."""
    pair = LinearPair.from_features([[1.0, 0.0]], [[1.0, 0.0]])
    result = projnorm_linear_after(pair, [1.0], steps=[0, 10**9, 10**9 + 1], step_size=2 - 1e-9)
    assert result.values.tolist() == pytest.approx([1.0, math.exp(-1), math.exp(-1)], rel=1e-6)
    odd = projnorm_linear_after(pair, [1.0], steps=[10**9, 10**9 + 1], step_size=2 - 1e-9, pseudo_labels=[2.0])
    assert odd.values.tolist() == pytest.approx([1 - 2 * math.exp(-1), 1 + 2 * math.exp(-1)], rel=1e-6)


def test_one_step_of_the_reciprocal_eigenvalue_learns_its_direction_at_once():
    pair = LinearPair.from_features([[1.0, 0.0]], [[1.0, 0.0]])
    assert projnorm_linear_after(pair, [1.0], steps=[0, 1, 2], step_size=1.0).values.tolist() == [1.0, 0.0, 0.0]


def test_keeps_the_shape_of_the_steps():
    pair = LinearPair.from_features([[3.0, 4.0]], [[2.0, 0.0]])
    result = projnorm_linear_after(pair, [5.0], steps=np.arange(6).reshape(2, 3), step_size=0.1)
    assert result.values.shape == result.steps.shape == result.equivalent_ridge.shape == (2, 3)
    assert result.equivalent_ridge[0, 0] == math.inf
    assert projnorm_linear_after(pair, [5.0], steps=3, step_size=0.1).values.shape == ()
