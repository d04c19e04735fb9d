"""The joint interval: it contains the loss, a ground truth sits on each end, and kernels give the same."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from projnorm_theory import (
    InputError,
    LinearPair,
    joint_interval,
    joint_interval_from_gram,
    joint_ratio,
    min_norm_solution,
    ood_loss,
)
from simulations.designs import haar
from tests.strategies import general_designs, shared_span_designs
from tests.theory import definitions


def _blocks(X, X_ood):
    return X @ X.T, X_ood @ X.T, X_ood @ X_ood.T


@given(st.one_of(general_designs(), shared_span_designs(orthogonal_tails=False)))
def test_contains_the_true_loss_on_every_design(design):
    X, X_ood, theta_star = design.X, design.X_ood, design.theta_star
    loss = definitions.loss_of_truth(X, X_ood, theta_star)
    slack = 1e-9 * definitions.loss_scale(X_ood, theta_star)
    eta = joint_ratio(X, design.Y, X_ood, design.Y_ood)
    for interval in (
        joint_interval(X, design.Y, X_ood, eta=eta),
        joint_interval(LinearPair.from_gram(*_blocks(X, X_ood)), design.Y, eta=eta),
        joint_interval(X, design.Y, X_ood, eta=(1.0, 1.1 * eta)),
    ):
        assert interval.lower - slack <= loss <= interval.upper + slack


@given(st.one_of(general_designs(), shared_span_designs(orthogonal_tails=False)))
def test_eta_is_the_ratio_of_lengths_in_the_stacked_rows(design):
    X, X_ood, theta_star = design.X, design.X_ood, design.theta_star
    stacked = definitions.projector(np.vstack([X, X_ood])) @ theta_star
    expected = np.linalg.norm(stacked) / np.linalg.norm(definitions.projector(X) @ theta_star)
    assert joint_ratio(X, design.Y, X_ood, design.Y_ood) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("kind", ["general", "few features", "rank deficient"])
def test_is_attained_by_a_ground_truth_at_each_end(kind, outputs):
    """Checked from the definitions alone: same training labels, the stated eta, the stated loss."""
    rng = np.random.default_rng(0)
    d = 8 if kind == "few features" else 20
    X, X_ood = rng.standard_normal((6, d)), rng.standard_normal((5, d))
    if kind == "rank deficient":
        X, X_ood = np.vstack([X, X[:2]]), np.vstack([X_ood, X[0] + X[1], X_ood[:2]])
    Y = X @ rng.standard_normal((d, outputs))
    eta = 1.5
    interval = joint_interval(X, Y, X_ood, eta=eta)
    theta = min_norm_solution(X, Y).theta
    # Directions outside the training row space, with the loss they cost: the right singular vectors of X~ (I - P).
    _, roots, directions = np.linalg.svd(X_ood @ (np.eye(d) - definitions.projector(X)), full_matrices=False)
    directions = directions[roots > 1e-10]
    for direction, end in ((directions[0], interval.upper), (directions[-1], interval.lower)):
        length = math.sqrt(eta**2 - 1) * np.linalg.norm(theta)
        truth = theta + length * np.outer(direction, np.eye(outputs)[0])
        np.testing.assert_allclose(X @ truth, Y, atol=1e-10)
        stacked = definitions.projector(np.vstack([X, X_ood])) @ truth
        assert np.linalg.norm(stacked) / np.linalg.norm(theta) == pytest.approx(eta, rel=1e-10)
        assert ood_loss(theta, X_ood, X_ood @ truth) == pytest.approx(end, rel=1e-9)


@pytest.mark.parametrize("m", [7, 90])  # the extreme eigenvalues by decomposition, and by the Lanczos method
@pytest.mark.parametrize("outputs", [1, 4])
def test_kernels_and_features_give_the_same_interval(m, outputs):
    rng = np.random.default_rng(m)
    X, X_ood, Y = rng.standard_normal((30, 200)), rng.standard_normal((m, 200)), rng.standard_normal((30, outputs))
    from_features = joint_interval(X, Y, X_ood, eta=(1.2, 1.5))
    k_train, k_ood_train, k_ood = _blocks(X, X_ood)
    by_cholesky = joint_interval_from_gram(k_train, Y, k_ood_train, k_ood, eta=(1.2, 1.5))
    of_pair = joint_interval(LinearPair.from_gram(k_train, k_ood_train, k_ood), Y, eta=(1.2, 1.5))
    for name in ("ratio_lower", "ratio_upper", "projnorm_linear"):
        assert getattr(of_pair, name) == pytest.approx(getattr(from_features, name), rel=1e-6), name
    for interval, rel in ((by_cholesky, 3e-4), (of_pair, 1e-6)):
        for name in ("lower", "upper", "smallest", "largest"):
            assert getattr(interval, name) == pytest.approx(getattr(from_features, name), rel=rel), name
        assert interval.lower <= from_features.lower * (1 + 1e-12)
        assert interval.upper >= from_features.upper * (1 - 1e-12)


@given(general_designs(decades=6.0), st.floats(1.0, 5.0))
def test_kernels_give_the_same_interval_or_a_wider_one(design, eta):
    X, X_ood = design.X, design.X_ood
    k_train, k_ood_train, k_ood = _blocks(X, X_ood)
    try:
        exact = joint_interval(X, design.Y, X_ood, eta=eta)
    except InputError:
        assume(False)
    for interval in (
        joint_interval_from_gram(k_train, design.Y, k_ood_train, k_ood, eta=eta),
        joint_interval(LinearPair.from_gram(k_train, k_ood_train, k_ood), design.Y, eta=eta),
    ):
        assert interval.lower <= exact.lower * (1 + 1e-9)
        assert interval.upper >= exact.upper * (1 - 1e-9)


def test_is_continuous_in_the_angle_where_the_ratio_interval_is_not():
    """One shifted row that nearly lies in the training row space: the loss it can have goes to zero with the angle."""
    for angle in (1e-1, 1e-4, 1e-7):
        interval = joint_interval([[1.0, 0.0]], [1.0], [[math.cos(angle), math.sin(angle)]], eta=2.0)
        assert interval.upper == pytest.approx(3 * math.sin(angle) ** 2, rel=1e-6)
        assert interval.lower == pytest.approx(interval.upper, rel=1e-6)


@pytest.mark.parametrize("outside", [0.0, 1e-8, 1e-7, 1e-6, 1e-3, 1.0])
def test_contains_the_loss_without_slack_however_close_to_one_eta_is(outside):
    """Near one the rounding of eta decides the length outside the training row space, so eta is rounded outwards."""
    X, X_ood, rng = [[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]], np.random.default_rng(0)
    assert joint_interval(X, [1.0], X_ood, eta=joint_ratio(X, [1.0], X_ood, [outside])).contains(outside**2)
    for end in (0, -1):
        X, X_ood = rng.standard_normal((5, 20)), rng.standard_normal((4, 20))
        P = definitions.projector(X)
        direction = np.linalg.svd(X_ood @ (np.eye(20) - P), full_matrices=False)[2][end]
        truth = P @ rng.standard_normal(20) + outside * direction
        interval = joint_interval(X, X @ truth, X_ood, eta=joint_ratio(X, X @ truth, X_ood, X_ood @ truth))
        assert interval.contains(np.linalg.norm(X_ood @ (outside * direction)) ** 2 / 4)


def test_shared_kernels_leave_the_lower_end_in_doubt():
    """Gram matrices cannot tell a shared direction from one that is nearly shared, so no positive lower end is safe."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5, 20))
    X_ood, Y = np.vstack([X[:1], rng.standard_normal((2, 20))]), rng.standard_normal(5)
    k_train, k_ood_train, k_ood = _blocks(X, X_ood)
    assert joint_interval(X, Y, X_ood, eta=2.0).lower > 0.0
    assert joint_interval(LinearPair.from_gram(k_train, k_ood_train, k_ood), Y, eta=2.0).lower == 0.0
    assert joint_interval_from_gram(k_train, Y, k_ood_train, k_ood, eta=2.0).lower == 0.0


def test_an_ill_conditioned_kernel_goes_through_its_eigenvalues():
    rng = np.random.default_rng(0)
    X = haar(rng, 6, 6) * np.logspace(0, -6.5, 6) @ haar(rng, 30, 6).T
    X_ood, theta_star = rng.standard_normal((4, 30)), rng.standard_normal(30)
    k_train, k_ood_train, k_ood = _blocks(X, X_ood)
    interval = joint_interval_from_gram(k_train, X @ theta_star, k_ood_train, k_ood, eta=1.5)
    exact = joint_interval(X, X @ theta_star, X_ood, eta=1.5)
    assert interval.lower <= exact.lower < exact.upper <= interval.upper


def test_a_wider_range_of_eta_gives_a_wider_interval_and_one_gives_none():
    rng = np.random.default_rng(0)
    X, X_ood, Y = rng.standard_normal((4, 12)), rng.standard_normal((3, 12)), rng.standard_normal(4)
    narrow, wide = (joint_interval(X, Y, X_ood, eta=eta) for eta in ((1.4, 1.6), np.array([1.2, 1.8])))
    assert wide.lower < narrow.lower < narrow.upper < wide.upper
    alone = joint_interval(X, Y, X_ood, eta=1.0)
    assert alone.lower == 0.0
    assert alone.upper < 1e-12


def test_says_what_is_wrong_with_eta():
    X, X_ood = [[1.0, 0.0]], [[0.0, 1.0]]
    with pytest.raises(InputError, match=r"`eta` must be at least 1: .*; got 0\.5"):
        joint_interval(X, [1.0], X_ood, eta=0.5)
    with pytest.raises(InputError, match=r"`eta` must be 1: the rows of `X_ood` lie in the row space of `X`"):
        joint_interval(X, [1.0], [[2.0, 0.0]], eta=1.5)
    assert joint_interval(X, [1.0], [[2.0, 0.0]], eta=(1.0, 2.0)).upper < 1e-22
    with pytest.raises(InputError, match=r"`eta` must be at least 1: .*got \(0\.2, 1\.5\)"):
        joint_interval(X, [1.0], X_ood, eta=(0.2, 1.5))
    with pytest.raises(InputError, match="`Y` must not be fitted by zero weights: `eta` is a ratio"):
        joint_interval_from_gram([[1.0]], [0.0], [[0.0]], [[1.0]], eta=2.0)
    with pytest.raises(InputError, match=r"`k_ood_train` must have shape \(1, 1\)"):
        joint_interval_from_gram([[1.0]], [1.0], [[0.0, 1.0]], [[1.0]], eta=2.0)
    with pytest.raises(InputError, match="`Y_ood` is required"):
        joint_ratio(X, [1.0], X_ood)
