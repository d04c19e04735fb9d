"""Rounding widens an interval: what rounding hides must never make it narrower, at any scale and condition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from projnorm_theory import (
    InputError,
    LinearPair,
    RowSpace,
    generalised_bound,
    joint_interval,
    joint_interval_from_gram,
    min_norm_solution,
    projnorm_linear,
    projnorm_linear_of_pair,
    sharp_interval,
    spectrum,
)
from projnorm_theory.trust_region import extreme_on_sphere
from tests.strategies import general_designs
from tests.theory import definitions


def _gram_pair(X, X_ood):
    X, X_ood = np.asarray(X, dtype=float), np.asarray(X_ood, dtype=float)
    return LinearPair.from_gram(X @ X.T, X_ood @ X.T, X_ood @ X_ood.T)


@given(general_designs(decades=12.0), st.floats(0.9, 2.0))
def test_gram_intervals_agree_with_those_of_features_or_are_wider(design, factor):
    rho = factor * definitions.rho(design.X, design.X_ood, design.theta_star)
    of_features, of_gram = LinearPair.from_features(design.X, design.X_ood), _gram_pair(design.X, design.X_ood)
    try:
        exact = sharp_interval(of_features, design.Y, rho=rho)
    except InputError:
        assume(False)
    # The ends before rounding widens them: the losses of the two ground truths that attain them.
    lower, upper = (
        np.linalg.norm(of_features.ood_singular_values[:, None] * shift) ** 2 / of_features.n_ood
        for shift in (exact.lower_shift, exact.upper_shift)
    )
    slack = 1e-9 + of_features.sine_error
    assert exact.lower <= lower * (1 + 1e-9)
    assert exact.upper >= upper * (1 - 1e-9)
    for interval in (sharp_interval, generalised_bound):
        wider = interval(of_gram, design.Y, rho=rho)
        assert wider.lower <= lower * (1 + slack) + 1e-3 * slack * upper
        assert wider.upper >= upper * (1 - slack)


@pytest.mark.parametrize("decay", [4, 5, 6])
def test_power_law_kernels_no_longer_narrow_the_interval(decay):
    rng = np.random.default_rng(decay)
    scales = np.arange(1, 201) ** (-decay / 2)
    X, X_ood = (rng.standard_normal((40, 200)) * scales for _ in "ab")
    Y = X @ rng.standard_normal(200)
    exact, of_gram = sharp_interval(X, Y, X_ood), sharp_interval(_gram_pair(X, X_ood), Y)
    assert of_gram.lower <= exact.lower
    assert exact.upper <= of_gram.upper <= 1.001 * exact.upper


@pytest.mark.parametrize(("angle", "upper"), [(0.05, 3.995), (9e-9, 4.0)])
def test_a_weak_training_direction_does_not_blur_a_strong_one(angle, upper):
    X, X_ood = [[1.0, 0.0, 0.0], [0.0, 1e-6, 0.0]], [[math.cos(angle), 0.0, math.sin(angle)]]
    for pair in (LinearPair.from_features(X, X_ood), _gram_pair(X, X_ood)):
        assert sharp_interval(pair, [1.0, 0.0]).upper == pytest.approx(upper, rel=1e-3)
        assert not generalised_bound(pair, [1.0, 0.0], k=1).valid


def test_a_fit_that_gram_matrices_cannot_resolve_has_no_upper_end():
    """The second row is 1e-12 of the first: its square is lost in the kernel, and with it most of theta."""
    X, X_ood, Y = [[1.0, 0.0, 0.0], [0.0, 1e-12, 0.0]], [[1.0, 1.0, 1.0]], [1.0, 1.0]
    interval = sharp_interval(_gram_pair(X, X_ood), Y)
    assert (interval.lower, interval.upper) == (0.0, math.inf)
    assert "leave the fit undecided" in interval.assumptions[0]
    assert generalised_bound(_gram_pair(X, X_ood), Y).upper == math.inf
    assert joint_interval(_gram_pair(X, X_ood), Y, eta=2.0).upper == math.inf
    X, X_ood = np.array(X), np.array(X_ood)
    stated = LinearPair.from_gram(X @ X.T, X_ood @ X.T, X_ood @ X_ood.T, rcond=1e-6)
    assert math.isfinite(sharp_interval(stated, Y).upper), "a rank that the caller states is taken at its word"


def test_the_error_estimate_follows_the_pseudo_labels():
    """Labels along a weak direction of the shifted kernel: the retrained weights are long, and so is their error."""
    rng = np.random.default_rng(0)
    V = np.linalg.qr(rng.standard_normal((30, 12)))[0]
    X, X_ood = V[:, :6].T, (V[:, 6:] * np.array([1, 1, 1, 1, 1, 1e-6])).T + 0.1 * V[:, :6].T
    X_ood[-1] *= 1e-6
    Y, labels = rng.standard_normal(6), np.ones(6)
    exact = projnorm_linear_of_pair(LinearPair.from_features(X, X_ood), Y, pseudo_labels=labels)
    of_gram = projnorm_linear_of_pair(_gram_pair(X, X_ood), Y, pseudo_labels=labels)
    assert abs(of_gram.value**2 - exact.value**2) <= of_gram.error_estimate
    assert of_gram.error_estimate > 1e6 * projnorm_linear_of_pair(_gram_pair(X, X_ood), Y).error_estimate


@given(general_designs(decades=4.0), st.integers(0, 2**32 - 1))
def test_the_error_estimate_covers_the_error_with_any_pseudo_labels(design, seed):
    labels = np.random.default_rng(seed).standard_normal(design.Y_ood.shape)
    of_features, of_gram = LinearPair.from_features(design.X, design.X_ood), _gram_pair(design.X, design.X_ood)
    assume((of_features.train_rank, of_features.ood_rank) == (of_gram.train_rank, of_gram.ood_rank))
    for pseudo_labels in (None, labels):
        exact = projnorm_linear_of_pair(of_features, design.Y, pseudo_labels=pseudo_labels)
        approximate = projnorm_linear_of_pair(of_gram, design.Y, pseudo_labels=pseudo_labels)
        assert abs(approximate.value**2 - exact.value**2) <= approximate.error_estimate + 1e-12 * exact.value**2


def test_float32_features_keep_the_rank_that_rounding_leaves_them():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 10)) @ rng.standard_normal((10, 200))
    theta = rng.standard_normal(200)
    exact = projnorm_linear(theta, X).value
    coarse = X.astype(np.float32)
    assert projnorm_linear(theta, coarse).value == pytest.approx(exact, rel=1e-5)
    assert (
        RowSpace.from_matrix(coarse).rank == spectrum(coarse).rank == min_norm_solution(coarse, np.ones(40)).rank == 10
    )
    assert LinearPair.from_features(coarse, coarse).ood_rank == 10
    assert LinearPair.from_features(coarse, X).sine_unit > 1e6 * LinearPair.from_features(X, X).sine_unit


@pytest.mark.parametrize("scales", [(1e100, 1e-150, 1e150), (1e-150, 1e150, 1e-150), (1e-100, 1e-100, 1e-100)])
def test_intervals_scale_with_the_data_however_far(scales):
    rng = np.random.default_rng(0)
    X, X_ood, Y = rng.standard_normal((6, 20)), rng.standard_normal((5, 20)), rng.standard_normal(6)
    in_x, in_y, in_ood = scales
    factor = (in_y / in_x * in_ood) ** 2
    for interval in (sharp_interval, generalised_bound, lambda *data: joint_interval(*data, eta=1.5)):
        plain, scaled = interval(X, Y, X_ood), interval(in_x * X, in_y * Y, in_ood * X_ood)
        assert scaled.lower == pytest.approx(factor * plain.lower, rel=1e-9)
        assert scaled.upper == pytest.approx(factor * plain.upper, rel=1e-9)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("tiny", [1e-20, 1e-100, 1e-152, 1e-160, 1e-300])
def test_a_trust_region_problem_that_is_nearly_hard_has_the_hard_value(tiny, largest):
    curvatures = np.array([1.0, 2.0, 5.0])
    centre, limit = (np.array([0.1, 0.3, last]) for last in (tiny, 0.0))
    if not largest:
        centre, limit = centre[::-1], limit[::-1]
    for radius in (0.15, 0.2, 2.0, 5.0):
        found, hard = (extreme_on_sphere(curvatures, at[:, None], radius, largest=largest) for at in (centre, limit))
        assert found.value == pytest.approx(hard.value, rel=1e-12)
        assert np.linalg.norm(found.point) == pytest.approx(radius, rel=1e-12)


def test_a_loss_of_zero_is_never_outside():
    assert generalised_bound([[2.0]], [3.0], [[5.0]]).lower == 0.0


def test_the_top_span_need_only_lie_in_the_training_row_space():
    """The shared direction is the second of the training set and the first of the shifted one."""
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.standard_normal((8, 8)))[0]
    X = np.diag([10.0, 3.0, 1.0]) @ Q[:3]
    X_ood = np.diag([100.0, 1.0]) @ np.vstack([Q[1], 0.6 * Q[2] + 0.8 * Q[3]])
    Y = rng.standard_normal(3)
    at_one, at_zero, sharp = (
        generalised_bound(X, Y, X_ood, k=1),
        generalised_bound(X, Y, X_ood),
        sharp_interval(X, Y, X_ood),
    )
    assert at_one.valid
    assert at_one.span_gap < 1e-14
    assert at_one.lower == pytest.approx(sharp.lower, rel=1e-9)
    assert at_one.upper == pytest.approx(sharp.upper, rel=1e-9)
    assert at_zero.upper > 1000 * at_one.upper


def test_one_free_direction_leaves_a_gap_that_the_interval_does_not_show():
    """With a range of rho the losses of the two branches need not meet; the docstring of SharpInterval says so."""
    X, X_ood, Y = [[1.0, 0.0]], [[0.6, 0.8]], [1.0]
    interval = sharp_interval(X, Y, X_ood, rho=(0.9, 1.1))
    losses = [(rho + sign * 0.6) ** 2 for rho in np.linspace(0.9, 1.1, 100) for sign in (-1, 1)]
    assert min(losses) == pytest.approx(interval.lower)
    assert max(losses) == pytest.approx(interval.upper)
    between = [loss for loss in losses if 0.26 < loss < 2.2]
    assert not between


@pytest.mark.parametrize("condition", [1e6, 1e9, 1e12])
def test_an_invertible_design_never_excludes_the_loss_of_zero(condition):
    """Rounding turns the fit by up to the condition number, and with it the length that the shifted row sees."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        U, V = (np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in "ab")
        X, X_ood = (U * np.array([1.0, condition**-0.5, 1 / condition])) @ V.T, rng.standard_normal((1, 3))
        rho = abs(X_ood[0] @ V[:, 0]) / np.linalg.norm(X_ood)
        assert generalised_bound(X, X @ V[:, 0], X_ood, rho=rho).lower == 0.0
        assert sharp_interval(X, X @ V[:, 0], X_ood, rho=rho).lower == 0.0


def test_a_rho_that_leaves_next_to_no_length_is_rounded_outwards():
    """The shifted rows see all of theta and one new direction, so the radius is a difference of close squares."""
    for seed in range(50):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((2, 8))
        X_ood, theta = np.vstack([X, rng.standard_normal((1, 8))]), X.T @ rng.standard_normal(2)
        new = X_ood[2] - definitions.projector(X) @ X_ood[2]
        truth = theta + 1e-8 * np.linalg.norm(theta) * new / np.linalg.norm(new)
        interval = sharp_interval(X, X @ theta, X_ood, rho=1.0)
        assert interval.contains(np.linalg.norm(X_ood @ (truth - theta)) ** 2 / 3)


def test_what_is_taken_for_shared_is_said():
    """A sine that rounding could explain is a convention, not a fact, and belongs to the assumptions."""
    X, X_ood = [[1.0, 0.0, 0.0]], [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    for interval in (sharp_interval(X, [1.0], X_ood, rho=1.2), joint_interval(X, [1.0], X_ood, eta=1.2)):
        assert any("count as shared, their sines being zero to rounding: 1" in line for line in interval.assumptions)
    assert not any("shared" in line for line in sharp_interval([[1.0, 0.0]], [1.0], [[0.0, 1.0]]).assumptions)


@pytest.mark.parametrize("seed", range(10))
def test_coarse_kernels_contain_the_interval_of_the_features(seed):
    """Blocks rounded to float32: the error of the norm, of the Schur complement and of the eigenvalues all count."""
    rng = np.random.default_rng(seed)
    scales = 10.0 ** -rng.uniform(0, 2, 12)
    X, X_ood = rng.standard_normal((5, 12)) * scales, rng.standard_normal((4, 12)) * scales
    Y = X @ rng.standard_normal(12)
    blocks = [block.astype(np.float32) for block in (X @ X.T, X_ood @ X.T, X_ood @ X_ood.T)]
    pair, (k_train, k_ood_train, k_ood) = LinearPair.from_gram(*blocks), blocks
    for exact, coarse in (
        (joint_interval(X, Y, X_ood, eta=1.5), joint_interval_from_gram(k_train, Y, k_ood_train, k_ood, eta=1.5)),
        (joint_interval(X, Y, X_ood, eta=1.5), joint_interval(pair, Y, eta=1.5)),
        (sharp_interval(X, Y, X_ood, rho=1.5), sharp_interval(pair, Y, rho=1.5)),
    ):
        assert coarse.lower <= exact.lower
        assert coarse.upper >= exact.upper


def test_eigenvalues_of_a_flat_edge_are_moved_outwards():
    """The Lanczos method stops short of the extreme eigenvalues; its tolerance makes up for it."""
    rng = np.random.default_rng(0)
    X, X_ood, Y = rng.standard_normal((50, 1200)), rng.standard_normal((400, 1200)), rng.standard_normal(50)
    exact = joint_interval(X, Y, X_ood, eta=1.5)
    by_cholesky = joint_interval_from_gram(X @ X.T, Y, X_ood @ X.T, X_ood @ X_ood.T, eta=1.5)
    assert by_cholesky.smallest <= exact.smallest
    assert by_cholesky.largest >= exact.largest


def test_the_ends_allow_for_the_stated_errors_of_the_norm_and_of_the_eigenvalues():
    """Section 10 of docs/theory.md: what `TrainingFit` and the pair say of their errors is in the ends."""
    rng = np.random.default_rng(0)
    X, X_ood, Y = rng.standard_normal((5, 12)), rng.standard_normal((4, 12)), rng.standard_normal(5)
    blocks = (block.astype(np.float32) for block in (X @ X.T, X_ood @ X.T, X_ood @ X_ood.T))
    pair = LinearPair.from_gram(*blocks)
    fit, eta, rho = pair.fit(Y), 1.5, 1.5
    longest = (fit.norm + fit.norm_error) * pair.schur_singular_values()[0]
    assert joint_interval(pair, Y, eta=eta).upper >= (eta**2 - 1) * longest**2 / 4
    sharp, t = sharp_interval(pair, Y, rho=rho), pair.ood_singular_values
    nominal = np.linalg.norm(t[:, None] * sharp.upper_shift) ** 2
    assert sharp.upper >= (nominal + pair.noise * ((1 + rho) * t[0] * fit.norm) ** 2) / 4
