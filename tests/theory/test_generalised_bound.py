"""The generalised bound: always at k = 0, at the true k on shared spans, and the paper's where the overlap is zero."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from projnorm_theory import LinearPair, generalised_bound, min_norm_solution, proposition_bound, sharp_interval
from simulations import counterexample, spectral_design
from tests.strategies import general_designs, shared_span_designs
from tests.theory import definitions


@given(general_designs())
def test_holds_at_k_zero_on_every_design(design):
    loss = definitions.loss_of_truth(design.X, design.X_ood, design.theta_star)
    rho = definitions.rho(design.X, design.X_ood, design.theta_star)
    interval = generalised_bound(design.X, design.Y, design.X_ood, rho=rho)
    slack = 1e-9 * definitions.loss_scale(design.X_ood, design.theta_star)
    assert interval.valid
    assert interval.lower - slack <= loss <= interval.upper + slack


@given(shared_span_designs(orthogonal_tails=False, rho=st.floats(1.0, 3.0)))
def test_holds_at_the_true_k_on_shared_spans(design):
    loss = definitions.loss_of_truth(design.X, design.X_ood, design.theta_star)
    rho = definitions.rho(design.X, design.X_ood, design.theta_star)
    interval = generalised_bound(design.X, design.Y, design.X_ood, k=design.k, rho=rho)
    slack = 1e-9 * definitions.loss_scale(design.X_ood, design.theta_star)
    assert interval.valid
    assert interval.span_gap < 1e-8
    assert interval.lower - slack <= loss <= interval.upper + slack


@given(shared_span_designs(orthogonal_tails=False))
def test_projnorm_is_what_the_overlap_leaves_of_the_tail(design):
    interval = generalised_bound(design.X, design.Y, design.X_ood, k=design.k)
    theta = min_norm_solution(design.X, design.Y).theta
    top = np.linalg.svd(design.X)[2][: design.k]
    tail = theta - top.T @ (top @ theta)
    square = (1 - interval.overlap**2) * np.linalg.norm(tail) ** 2
    assert interval.projnorm_linear**2 == pytest.approx(square, rel=1e-6, abs=1e-9 * np.linalg.norm(theta) ** 2)


@given(shared_span_designs(orthogonal_tails=True))
def test_reduces_to_the_paper_bound_where_the_overlap_is_zero(design):
    pair = LinearPair.from_features(design.X, design.X_ood)
    paper, ours = proposition_bound(pair, design.Y, k=design.k), generalised_bound(pair, design.Y, k=design.k)
    assert ours.overlap < 1e-10
    assert ours.lower == pytest.approx(paper.lower, rel=1e-8)
    assert ours.upper == pytest.approx(paper.upper, rel=1e-8)


@pytest.mark.parametrize("phi", [0.1, 0.7, 1.5, 2.5])
def test_the_counterexample_attains_both_ends(phi):
    design = counterexample(phi, root="tan")
    interval = generalised_bound(design.X, design.Y, design.X_ood, k=1)
    ends = sorted([math.tan(phi / 2) ** 2, 1 / math.tan(phi / 2) ** 2])
    assert interval.overlap == pytest.approx(abs(math.cos(phi)))
    assert [2 * interval.ratio_lower, 2 * interval.ratio_upper] == pytest.approx(ends, rel=1e-9)


@given(shared_span_designs(orthogonal_tails=False), st.floats(1.0, 2.0), st.floats(0.0, 1.0))
def test_a_range_of_rho_covers_every_rho_in_it(design, low, width):
    pair = LinearPair.from_features(design.X, design.X_ood)
    wide = generalised_bound(pair, design.Y, k=design.k, rho=(low, low + width))
    for rho in np.linspace(low, low + width, 5):
        inner = generalised_bound(pair, design.Y, k=design.k, rho=rho)
        assert wide.lower <= inner.lower * (1 + 1e-9)
        assert inner.upper <= wide.upper * (1 + 1e-9)


def test_a_tilted_span_is_reported_not_raised():
    spectrum = [10.0, 9.0, 1.0, 0.5]
    tilted = spectral_design(
        np.random.default_rng(0),
        train_singular_values=spectrum,
        ood_singular_values=spectrum,
        dim=12,
        k=2,
        span_tilt=0.03,
    )
    interval = generalised_bound(tilted.X, tilted.Y, tilted.X_ood, k=2)
    assert not interval.valid
    assert interval.span_gap == pytest.approx(math.sin(0.03), rel=1e-6)
    assert interval.eigengap == pytest.approx(1 - 1 / 81, rel=1e-6)


def test_a_small_tilt_breaks_the_bound_at_positive_k_for_some_truths():
    """Why `valid` exists: with the spans 0.03 rad apart the k > 0 interval misses a good share of the losses."""
    rng = np.random.default_rng(0)
    misses = 0
    for _ in range(200):
        spectrum = np.concatenate([50 * np.sort(1 + rng.random(2))[::-1], 10.0 ** -np.sort(rng.uniform(0, 2, 3))])
        design = spectral_design(
            rng, train_singular_values=spectrum, ood_singular_values=spectrum, dim=20, k=2, span_tilt=0.03
        )
        loss = definitions.loss_of_truth(design.X, design.X_ood, design.theta_star)
        misses += not generalised_bound(design.X, design.Y, design.X_ood, k=2).contains(loss, rtol=1e-9)
    assert misses > 10


def test_a_fully_shared_row_space_leaves_no_loss():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3, 6))
    X_ood = rng.standard_normal((3, 3)) @ X
    interval = generalised_bound(X, rng.standard_normal(3), X_ood, k=3)
    assert interval.lower == 0.0
    assert interval.upper < 1e-22
    assert math.isnan(interval.ratio_lower)
    assert math.isnan(interval.ratio_upper)


def test_responses_that_cannot_be_interpolated_are_reported():
    rng = np.random.default_rng(0)
    interval = generalised_bound(rng.standard_normal((9, 4)), rng.standard_normal(9), rng.standard_normal((2, 4)))
    assert not interval.interpolates
    assert interval.training_residual > 0.1
    assert "does not interpolate" in interval.assumptions[0]


def test_a_truth_shorter_than_what_is_seen_of_it_bounds_the_loss_from_below():
    """With rho below the overlap, the shifted rows are known to see less of theta* than of theta."""
    rng = np.random.default_rng(0)
    X, X_ood = rng.standard_normal((8, 20)), rng.standard_normal((8, 20))
    Y = rng.standard_normal(8)
    pair = LinearPair.from_features(X, X_ood)
    overlap = generalised_bound(pair, Y).overlap
    interval = generalised_bound(pair, Y, rho=(0.0, 0.5 * overlap))
    theta = min_norm_solution(X, Y).theta
    seen = np.linalg.norm(definitions.projector(X_ood) @ theta)
    smallest = pair.ood_eigenvalues[-1] / 8
    assert interval.lower == pytest.approx(smallest * (0.5 * seen) ** 2, rel=1e-9)
    assert interval.lower <= sharp_interval(pair, Y, rho=(0.0, 0.5 * overlap)).lower


def test_the_eigengap_is_that_of_the_shifted_spectrum():
    for train, ood in (([10.0, 9.0, 1.0], [10.0, 2.0, 1.9]), ([10.0, 2.0, 1.9], [10.0, 9.0, 1.0])):
        design = spectral_design(
            np.random.default_rng(0), train_singular_values=train, ood_singular_values=ood, dim=8, k=2
        )
        interval = generalised_bound(design.X, design.Y, design.X_ood, k=2)
        assert interval.eigengap == pytest.approx(1 - (ood[2] / ood[1]) ** 2, rel=1e-6)


@pytest.mark.parametrize("scale", [1e-170, 1e-100, 1e100])
def test_the_scale_of_the_responses_does_not_matter(scale):
    rng = np.random.default_rng(0)
    X, X_ood, Y = rng.standard_normal((4, 9)), rng.standard_normal((3, 9)), rng.standard_normal(4)
    for interval in (proposition_bound(X, scale * Y, X_ood, k=1), generalised_bound(X, scale * Y, X_ood)):
        assert math.isfinite(interval.ratio_upper) or scale < 1e-150
    plain, scaled = sharp_interval(X, Y, X_ood), sharp_interval(X, scale * Y, X_ood)
    assert scaled.upper == pytest.approx(plain.upper * scale * scale, rel=1e-9)
