"""The sharp interval: it contains the truth, nothing tighter could, and a ground truth sits on each end."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from projnorm_theory import (
    InfeasibleRatioError,
    InputError,
    LinearPair,
    attaining_truths,
    generalised_bound,
    min_norm_solution,
    ood_loss,
    sharp_ends,
    sharp_interval,
)
from simulations import counterexample
from simulations.designs import Design, haar
from tests.strategies import general_designs, shared_span_designs
from tests.theory import definitions


@given(general_designs())
def test_contains_the_true_loss_on_every_design(design):
    loss = definitions.loss_of_truth(design.X, design.X_ood, design.theta_star)
    rho = definitions.rho(design.X, design.X_ood, design.theta_star)
    interval = sharp_interval(design.X, design.Y, design.X_ood, rho=rho)
    slack = 1e-8 * definitions.loss_scale(design.X_ood, design.theta_star)
    assert interval.lower - slack <= loss <= interval.upper + slack


@given(shared_span_designs(orthogonal_tails=False, rho=st.floats(1.0, 3.0)))
def test_contains_the_true_loss_on_shared_spans(design):
    loss = definitions.loss_of_truth(design.X, design.X_ood, design.theta_star)
    rho = definitions.rho(design.X, design.X_ood, design.theta_star)
    interval = sharp_interval(design.X, design.Y, design.X_ood, rho=rho)
    assert interval.free_dim == len(design.X_ood) - design.k
    assert interval.contains(loss, rtol=1e-8)


@given(st.one_of(general_designs(), shared_span_designs(orthogonal_tails=False)))
def test_lies_inside_the_generalised_bound(design):
    rho = definitions.rho(design.X, design.X_ood, design.theta_star)
    pair = LinearPair.from_features(design.X, design.X_ood)
    sharp = sharp_interval(pair, design.Y, rho=rho)
    for k in {0, design.k}:
        wide = generalised_bound(pair, design.Y, k=k, rho=rho)
        slack = 1e-8 * wide.upper + 1e-14 * definitions.loss_scale(design.X_ood, design.theta_star)
        assert wide.lower - slack <= sharp.lower <= sharp.upper <= wide.upper + slack


def _with_kind(kind: str, outputs: int, rng: np.random.Generator) -> Design:
    n, m = 6, 5
    if kind == "general":
        X, X_ood = rng.standard_normal((n, 20)), rng.standard_normal((m, 20))
    elif kind == "shared span":
        U = haar(rng, 20, n + m - 2)
        V = np.hstack([U[:, :2] @ haar(rng, 2, 2), (U[:, 2:5] + U[:, n : n + 3]) / np.sqrt(2)])
        X = haar(rng, n, n) * np.array([9, 8, 3, 2, 1, 0.5]) @ U[:, :n].T
        X_ood = haar(rng, m, m) * np.array([9, 8, 3, 2, 1]) @ V.T
    elif kind == "few features":
        X, X_ood = rng.standard_normal((n, 8)), rng.standard_normal((m, 8))
    else:
        X = rng.standard_normal((n, 3)) @ rng.standard_normal((3, 12))
        X_ood = np.vstack([rng.standard_normal((2, 2)) @ rng.standard_normal((2, 12)), X[:2], np.zeros((1, 12))])
    return Design(X, X_ood, rng.standard_normal((X.shape[1], outputs)), k=0)


@pytest.mark.parametrize("kind", ["general", "shared span", "few features", "rank deficient"])
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rho", ["measured", "larger", "range"])
def test_is_attained_by_a_ground_truth_at_each_end(kind, outputs, seed, rho):
    """Checked from the definitions alone: same training labels, the stated norm ratio, the stated loss."""
    design = _with_kind(kind, outputs, np.random.default_rng(seed))
    X, X_ood, Y = design.X, design.X_ood, design.Y
    measured = definitions.rho(X, X_ood, design.theta_star)
    asked = {"measured": measured, "larger": 1.7 * measured, "range": (0.9 * measured, 1.2 * measured)}[rho]
    truths = attaining_truths(X, Y, X_ood, rho=asked)
    interval = truths.interval
    theta = min_norm_solution(X, Y).theta
    low, high = asked if isinstance(asked, tuple) else (asked, asked)
    assert interval.free_dim > 0
    assert interval.lower < interval.upper
    for truth, end in ((truths.best, interval.lower), (truths.worst, interval.upper)):
        np.testing.assert_allclose(X @ truth, Y, atol=1e-9 * np.abs(Y).max())
        assert low * (1 - 1e-8) <= definitions.rho(X, X_ood, truth) <= high * (1 + 1e-8)
        assert ood_loss(theta, X_ood, X_ood @ truth) == pytest.approx(end, rel=1e-7, abs=1e-9 * interval.upper)


@given(general_designs(), st.integers(0, 2**32 - 1))
def test_no_random_ground_truth_beats_the_ends(design, seed):
    """An independent search: truths drawn on the sphere the interval optimises over never leave it."""
    X, X_ood, Y = design.X, design.X_ood, design.Y
    rho = definitions.rho(X, X_ood, design.theta_star)
    interval = sharp_interval(X, Y, X_ood, rho=rho)
    P, P_ood = definitions.projector(X), definitions.projector(X_ood)
    theta = P @ design.theta_star
    target = np.linalg.norm(P_ood @ design.theta_star)
    rng = np.random.default_rng(seed)
    slack = 1e-7 * definitions.loss_scale(X_ood, design.theta_star)
    for _ in range(20):
        direction = rng.standard_normal(theta.shape)
        direction -= P @ direction
        if np.linalg.norm(direction) < 1e-2:  # rounding is all that is left of it
            continue
        start, step = P_ood @ theta, P_ood @ direction
        roots = np.roots([np.sum(step**2), 2 * np.sum(start * step), np.sum(start**2) - target**2])
        for z in roots[np.isreal(roots)].real:
            if abs(z) * np.linalg.norm(direction) < 1e4 * np.linalg.norm(design.theta_star):
                loss = definitions.loss_of_truth(X, X_ood, theta + z * direction)
                assert interval.lower - slack <= loss <= interval.upper + slack


@pytest.mark.parametrize("phi", [0.1, 0.7, 1.5])
def test_ends_on_the_two_roots_of_the_counterexample(phi):
    design = counterexample(phi, root="cot")
    interval = sharp_interval(design.X, design.Y, design.X_ood)
    assert interval.free_dim == 1
    assert 2 * interval.ratio_lower == pytest.approx(math.tan(phi / 2) ** 2, rel=1e-9)
    assert 2 * interval.ratio_upper == pytest.approx(1 / math.tan(phi / 2) ** 2, rel=1e-9)


@given(general_designs(), st.floats(0.0, 0.5), st.floats(0.0, 2.0))
def test_a_range_of_rho_covers_every_rho_in_it(design, below, above):
    pair = LinearPair.from_features(design.X, design.X_ood)
    rho = definitions.rho(design.X, design.X_ood, design.theta_star)
    wide = sharp_interval(pair, design.Y, rho=((1 - below) * rho, (1 + above) * rho))
    if wide.free_dim == 0:
        return
    for inner_rho in np.linspace(rho, (1 + above) * rho, 4):
        inner = sharp_interval(pair, design.Y, rho=inner_rho)
        slack = 1e-9 * wide.upper
        assert wide.lower - slack <= inner.lower
        assert inner.upper <= wide.upper + slack


def test_a_range_that_allows_the_seen_length_reaches_zero_loss():
    rng = np.random.default_rng(0)
    X, X_ood, Y = rng.standard_normal((5, 20)), rng.standard_normal((4, 20)), rng.standard_normal(5)
    theta = min_norm_solution(X, Y).theta
    seen = np.linalg.norm(definitions.projector(X_ood) @ theta) / np.linalg.norm(theta)
    assert sharp_interval(X, Y, X_ood, rho=(0.5 * seen, 2 * seen)).lower == pytest.approx(0.0, abs=1e-20)
    below, above = sharp_interval(X, Y, X_ood, rho=(0.0, 0.5 * seen)), sharp_interval(X, Y, X_ood, rho=(2 * seen, 3))
    assert below.lower == pytest.approx(sharp_interval(X, Y, X_ood, rho=0.5 * seen).lower)
    assert above.lower == pytest.approx(sharp_interval(X, Y, X_ood, rho=2 * seen).lower)


def test_orthogonal_row_spaces_are_the_hard_case():
    """Theta is seen nowhere, so the ends are the extreme eigenvalues: rho^2 ||theta||^2 lambda / m."""
    X, X_ood = np.hstack([np.eye(3), np.zeros((3, 4))]), np.hstack([np.zeros((4, 3)), np.diag([4.0, 3.0, 2.0, 1.0])])
    interval = sharp_interval(X, [1.0, 2.0, 2.0], X_ood, rho=0.5)
    assert interval.lower == pytest.approx(0.25 * 9 * 1 / 4)
    assert interval.upper == pytest.approx(0.25 * 9 * 16 / 4)
    truths = attaining_truths(X, [1.0, 2.0, 2.0], X_ood, rho=0.5)
    assert np.linalg.norm(truths.worst[3:]) == pytest.approx(1.5)


def test_rows_inside_the_training_row_space_fix_rho_and_the_loss():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((5, 12)), rng.standard_normal(5)
    X_ood = rng.standard_normal((2, 5)) @ X
    theta = min_norm_solution(X, Y).theta
    rho = np.linalg.norm(definitions.projector(X_ood) @ theta) / np.linalg.norm(theta)
    for allowed in (rho, (0.0, 1.0)):
        interval = sharp_interval(X, Y, X_ood, rho=allowed)
        assert interval.free_dim == 0
        assert interval.lower == 0.0
        assert interval.upper < 1e-22
    with pytest.raises(ValueError, match=rf"`rho` must be {rho:.6g}: the rows of `X_ood` lie in the row space of `X`"):
        sharp_interval(X, Y, X_ood, rho=1.0)


def test_the_smallest_feasible_rho_is_named():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5, 12))
    X_ood, Y = np.vstack([X[:2], rng.standard_normal((2, 12))]), rng.standard_normal(5)
    smallest = None
    with pytest.raises(ValueError, match=r"`rho` must be at least 0\.\d+") as caught:
        sharp_interval(X, Y, X_ood, rho=1e-3)
    smallest = float(str(caught.value).split("at least ")[1].split(",")[0])
    assert sharp_interval(X, Y, X_ood, rho=smallest * (1 + 1e-5)).upper >= 0.0
    with pytest.raises(ValueError, match="`rho` must be at least"):
        sharp_interval(X, Y, X_ood, rho=smallest * (1 - 1e-5))


def test_gram_blocks_give_the_same_interval():
    rng = np.random.default_rng(0)
    X, X_ood, Y = rng.standard_normal((6, 30)), rng.standard_normal((5, 30)), rng.standard_normal((6, 2))
    of_features = sharp_interval(X, Y, X_ood, rho=1.2)
    of_gram = sharp_interval(LinearPair.from_gram(X @ X.T, X_ood @ X.T, X_ood @ X_ood.T), Y, rho=1.2)
    assert of_gram.lower == pytest.approx(of_features.lower, rel=1e-8)
    assert of_gram.upper == pytest.approx(of_features.upper, rel=1e-8)


@pytest.mark.parametrize("log_condition", [2, 6, 8])
def test_small_eigenvalues_keep_the_lower_end_sharp(log_condition):
    """The truth moves along the smallest direction only, so its loss sits near the lower end, far below the scale."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        V = haar(rng, 12, 4)
        X = rng.standard_normal((3, 12))
        X_ood = haar(rng, 4, 4) * np.logspace(0, -log_condition, 4) @ V.T
        theta = min_norm_solution(X, rng.standard_normal(3)).theta
        N = definitions.projector(X)
        lift = V[:, -1] - N @ V[:, -1]
        # A move that changes only the last coordinate of V^T theta*.
        W = np.zeros(4)
        W[-1] = np.linalg.norm(theta)
        F = V - N @ V
        truth = theta + F @ np.linalg.solve(V.T @ F, W)
        rho = np.linalg.norm(V.T @ truth) / np.linalg.norm(theta)
        interval = sharp_interval(X, X @ theta, X_ood, rho=rho)
        loss = (10.0**-log_condition * W[-1]) ** 2 / 4
        assert lift.any()
        assert 0.0 < interval.lower <= loss * (1 + 1e-5)
        assert generalised_bound(X, X @ theta, X_ood, rho=rho).lower <= interval.lower * (1 + 1e-5)


def test_ends_are_nan_only_where_no_ground_truth_has_the_ratio():
    X, Y = [[1.0, 0.0]], [2.0]
    assert np.isnan(sharp_ends(X, Y, [[3.0, 0.0]], rho=2.0)).all()
    interval = sharp_interval(X, Y, [[0.6, 0.8]])
    assert sharp_ends(X, Y, [[0.6, 0.8]]).tolist() == [interval.lower, interval.upper]
    with pytest.raises(InfeasibleRatioError, match="`rho` must be"):
        sharp_interval(X, Y, [[3.0, 0.0]], rho=2.0)
    with pytest.raises(InputError, match="`Y` must be finite"):
        sharp_ends(X, [np.nan], [[3.0, 0.0]])
