"""The paper's Proposition: true as its proof reads it, false in the two ways it is printed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from projnorm_theory import check_assumptions, min_norm_solution, ood_loss, projnorm_linear, proposition_bound
from simulations import counterexample
from tests.strategies import shared_span_designs
from tests.theory import definitions


@given(shared_span_designs(orthogonal_tails=True))
def test_the_paper_bound_holds_with_orthogonal_tails(design):
    loss = definitions.loss_of_truth(design.X, design.X_ood, design.theta_star)
    interval = proposition_bound(design.X, design.Y, design.X_ood, k=design.k)
    assert interval.valid
    assert interval.contains(loss, rtol=1e-9)
    projnorm = definitions.projnorm(min_norm_solution(design.X, design.Y).theta, design.X_ood)
    assert interval.ratio_lower * (1 - 1e-8) <= loss / projnorm**2 <= interval.ratio_upper * (1 + 1e-8)


@given(shared_span_designs(orthogonal_tails=True))
def test_the_ends_are_eigenvalues_over_m_times_projnorm_squared(design):
    interval = proposition_bound(design.X, design.Y, design.X_ood, k=design.k)
    m = len(design.X_ood)
    eigenvalues = np.sort(np.linalg.eigvalsh(design.X_ood @ design.X_ood.T))[::-1]
    assert interval.ratio_upper == pytest.approx(eigenvalues[design.k] / m, rel=1e-8)
    assert interval.ratio_lower == pytest.approx(eigenvalues[m - 1] / m, rel=1e-5)
    assert interval.upper == pytest.approx(interval.ratio_upper * interval.projnorm_linear**2, rel=1e-12)


@given(shared_span_designs(orthogonal_tails=True, decades=0.0))
def test_eigenvalues_of_the_covariance_itself_are_off_by_the_factor_m(design):
    """The statement calls lambda the eigenvalues of X~^T X~ / m; dividing by m once more misses the loss."""
    m = len(design.X_ood)
    loss = ood_loss(min_norm_solution(design.X, design.Y).theta, design.X_ood, design.Y_ood)
    interval = proposition_bound(design.X, design.Y, design.X_ood, k=design.k)
    covariance_eigenvalues = np.linalg.eigvalsh(design.X_ood @ design.X_ood.T / m)[::-1]
    as_printed = covariance_eigenvalues[design.k] / m * interval.projnorm_linear**2
    assert interval.upper == pytest.approx(m * as_printed, rel=1e-8)
    assert loss > as_printed * (1 + 1e-6), "flat tail: the loss sits at the upper end, m >= 2 times the printed one"


@pytest.mark.parametrize("phi", np.radians([5, 30, 60, 85, 89.9, 95, 150]))
@pytest.mark.parametrize("root", ["tan", "cot"])
def test_counterexample_with_trivially_intersecting_tails_breaks_the_paper_bound(phi, root):
    """Both ground truths satisfy the printed assumptions; the ratio is tan^2(phi/2) or cot^2(phi/2), not 1."""
    design = counterexample(phi, root=root)
    stacked_tails = np.vstack([design.X[1], design.X_ood[1]])
    assert np.linalg.matrix_rank(stacked_tails) == 2, "the tails meet in zero only"
    report = check_assumptions(design.X, design.Y, design.X_ood, design.Y_ood, k=1)
    assert report.covariate_shift.residual < 1e-14
    assert report.norms.rho == pytest.approx(1.0, abs=1e-12)
    assert report.span_gap < 1e-14
    assert report.leak == pytest.approx(abs(math.cos(phi)))

    theta = min_norm_solution(design.X, design.Y).theta
    loss, projnorm = ood_loss(theta, design.X_ood, design.Y_ood), projnorm_linear(theta, design.X_ood).value
    expected = math.tan(phi / 2) ** 2 if root == "tan" else 1 / math.tan(phi / 2) ** 2
    assert 2 * loss / projnorm**2 == pytest.approx(expected, rel=1e-9)
    interval = proposition_bound(design.X, design.Y, design.X_ood, k=1)
    assert interval.ratio_lower == pytest.approx(0.5)
    assert interval.ratio_upper == pytest.approx(0.5)
    assert not interval.contains(loss, rtol=1e-6)
    assert not interval.valid
    assert any("orthogonal to it" in assumption for assumption in interval.assumptions)


@given(shared_span_designs(orthogonal_tails=False), st.integers(0, 1))
def test_k_zero_assumes_disjoint_row_spaces(design, k):
    interval = proposition_bound(design.X, design.Y, design.X_ood, k=k)
    assert interval.k == k
    assert interval.eigengap <= 1.0
    assert interval.lower <= interval.upper
