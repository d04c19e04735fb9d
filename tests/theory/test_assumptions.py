"""Diagnostics of the assumptions, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from projnorm_theory import LinearPair, check_assumptions, min_norm_solution, ood_loss, proposition_bound
from projnorm_theory.assumptions import bound_tightness, covariate_shift
from tests.strategies import general_designs, shared_span_designs
from tests.theory import definitions


@given(shared_span_designs(orthogonal_tails=True))
def test_every_assumption_reads_as_met_where_it_is(design):
    report = check_assumptions(design.X, design.Y, design.X_ood, design.Y_ood, k=design.k)
    assert report.covariate_shift.residual < 1e-10
    assert report.covariate_shift.ood_floor < 1e-20
    assert not report.covariate_shift.trivial
    assert report.covariate_shift.stacked_rank == len(design.X) + len(design.X_ood) - design.k
    assert report.norms.rho == pytest.approx(1.0, rel=1e-6)
    assert report.norms.rho == pytest.approx(1.0, abs=1e-6)
    assert max(report.span_gap, report.leak, report.overlap) < 1e-8
    assert report.interpolates


@given(general_designs())
def test_measurements_agree_with_the_definitions(design):
    X, X_ood, Y, Y_ood = design.X, design.X_ood, design.Y, design.Y_ood
    report = check_assumptions(X, Y, X_ood, Y_ood, k=1)
    theta = min_norm_solution(X, Y).theta
    assert report.norms.rho == pytest.approx(definitions.rho(X, X_ood, design.theta_star), rel=1e-7)
    assert report.norms.train_norm == pytest.approx(np.linalg.norm(theta), rel=1e-8)
    scale = definitions.loss_scale(X_ood, design.theta_star)
    assert report.test_loss == pytest.approx(ood_loss(theta, X_ood, Y_ood), abs=1e-9 * scale)
    assert report.projnorm_linear == pytest.approx(definitions.projnorm(theta, X_ood), abs=1e-9 * np.linalg.norm(theta))
    u, v = np.linalg.svd(X)[2][0], np.linalg.svd(X_ood)[2][0]
    tail, tail_ood = definitions.projector(X) - np.outer(u, u), definitions.projector(X_ood) - np.outer(v, v)
    assert report.leak == pytest.approx(np.linalg.norm(tail_ood @ tail, 2), abs=1e-8)
    rest = theta - np.outer(v, v) @ theta
    if np.linalg.norm(rest) > 1e-6 * np.linalg.norm(theta):
        assert report.overlap == pytest.approx(np.linalg.norm(tail_ood @ rest) / np.linalg.norm(rest), abs=1e-6)


@given(general_designs())
def test_covariate_shift_residual_is_that_of_the_stacked_system(design):
    rng = np.random.default_rng(0)
    Y, Y_ood = rng.standard_normal(design.Y.shape), rng.standard_normal(design.Y_ood.shape)
    stacked, responses = np.vstack([design.X, design.X_ood]), np.vstack([Y, Y_ood])
    # Rows of very different size make the rank of the stack a matter of taste; bring both sets to one scale.
    scale = np.linalg.norm(design.X, 2) / np.linalg.norm(design.X_ood, 2)
    stacked = np.vstack([design.X, design.X_ood * scale])
    solution = np.linalg.lstsq(stacked, responses, rcond=1e-9)[0]
    expected = np.linalg.norm(stacked @ solution - responses) / np.linalg.norm(responses)
    shift = covariate_shift(LinearPair.from_features(design.X, design.X_ood * scale), Y, Y_ood)
    assert shift.residual == pytest.approx(expected, abs=1e-7)
    assert shift.stacked_rank == np.linalg.matrix_rank(stacked, tol=1e-9 * np.linalg.norm(stacked, 2))
    assert shift.trivial == (shift.stacked_rank == len(stacked))


def test_independent_stacked_rows_make_the_residual_trivial_and_the_report_says_so():
    rng = np.random.default_rng(0)
    report = check_assumptions(
        rng.standard_normal((4, 20)), rng.standard_normal(4), rng.standard_normal((5, 20)), rng.standard_normal(5), k=2
    )
    assert report.covariate_shift.trivial
    assert report.covariate_shift.residual < 1e-14
    assert "zero by construction" in str(report)


def test_labels_outside_the_column_space_set_a_floor_for_the_loss():
    rng = np.random.default_rng(0)
    X, X_ood, Y, Y_ood = (rng.standard_normal(shape) for shape in ((4, 6), (20, 6), (4,), (20,)))
    report = check_assumptions(X, Y, X_ood, Y_ood, k=1)
    best = np.linalg.lstsq(X_ood, Y_ood)[0]
    assert report.covariate_shift.ood_floor == pytest.approx(np.mean((X_ood @ best - Y_ood) ** 2))
    assert report.covariate_shift.ood_floor < report.test_loss


def test_zero_labels_do_not_break_the_report():
    rng = np.random.default_rng(0)
    report = check_assumptions(rng.standard_normal((3, 8)), np.zeros(3), rng.standard_normal((4, 8)), np.zeros(4), k=1)
    assert report.covariate_shift.residual == 0.0
    assert np.isnan(report.norms.rho)
    assert "nan" in str(report)


def test_the_report_prints_as_an_aligned_table():
    rng = np.random.default_rng(0)
    X, X_ood = rng.standard_normal((9, 4)), rng.standard_normal((5, 4))
    lines = str(check_assumptions(X, rng.standard_normal(9), X_ood, rng.standard_normal(5), k=2)).splitlines()
    assert lines[0].split() == ["quantity", "measured", "ideal", "reading"]
    assert set(lines[1]) == {"-"}
    assert len(lines) == 14
    column = lines[0].index("measured")
    assert all(line[column - 1] == " " and line[column] != " " for line in lines[2:])
    assert "does not interpolate" in "\n".join(lines)


@given(shared_span_designs(orthogonal_tails=True))
def test_tightness_at_the_true_k_is_the_paper_interval_over_the_loss(design):
    pair = LinearPair.from_features(design.X, design.X_ood)
    curves = check_assumptions(pair, design.Y, Y_ood=design.Y_ood, k=design.k).tightness
    loss = definitions.loss_of_truth(design.X, design.X_ood, design.theta_star)
    interval = proposition_bound(pair, design.Y, k=design.k)
    at = list(curves.k).index(design.k)
    assert curves.upper_over_loss[at] == pytest.approx(interval.upper / loss, rel=1e-6)
    assert curves.lower_over_loss[at] == pytest.approx(interval.lower / loss, rel=1e-6)
    assert curves.lower_over_loss[at] <= 1 + 1e-6 <= curves.upper_over_loss[at] + 2e-6
    assert curves.span_gap[at] < 1e-8
    assert curves.overlap[at] < 1e-8


def test_tightness_covers_every_k_up_to_a_hundred_then_thins_out():
    rng = np.random.default_rng(0)
    pair = LinearPair.from_features(rng.standard_normal((130, 300)), rng.standard_normal((140, 300)))
    Y, Y_ood = rng.standard_normal(130), rng.standard_normal(140)
    ks = bound_tightness(pair, Y, Y_ood).k
    np.testing.assert_array_equal(ks[:100], np.arange(1, 101))
    assert ks[-1] == 130
    assert len(ks) < 110
    chosen = bound_tightness(pair, Y, Y_ood, ks=[1, 50, 130])
    np.testing.assert_array_equal(chosen.k, [1, 50, 130])
    assert chosen.upper_over_loss[-1] > 0.0


def test_gram_blocks_and_features_report_alike():
    rng = np.random.default_rng(0)
    X, X_ood = rng.standard_normal((6, 30)), rng.standard_normal((5, 30))
    Y, Y_ood = rng.standard_normal((6, 2)), rng.standard_normal((5, 2))
    of_features = check_assumptions(X, Y, X_ood, Y_ood, k=2)
    of_gram = check_assumptions(LinearPair.from_gram(X @ X.T, X_ood @ X.T, X_ood @ X_ood.T), Y, Y_ood=Y_ood, k=2)
    for name in ("span_gap", "leak", "overlap", "test_loss", "projnorm_linear"):
        assert getattr(of_gram, name) == pytest.approx(getattr(of_features, name), rel=1e-6)
    assert of_gram.train_decay.exponent == pytest.approx(of_features.train_decay.exponent, rel=1e-8)
    assert of_gram.ood_decay.low <= of_gram.ood_decay.exponent <= of_gram.ood_decay.high
    np.testing.assert_allclose(of_gram.alignment.matrix, of_features.alignment.matrix, atol=1e-9)
