"""Closed forms against simulation, and their limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from projnorm_theory import deterministic_projnorm, min_norm_solution, projnorm_linear, toy_asymptotics


def _within(samples, theory: float, bias: float) -> bool:
    """Whether a mean agrees with theory to four standard errors and a finite-size bias of relative size `bias`."""
    mean, error = np.mean(samples), np.std(samples, ddof=1) / math.sqrt(len(samples))
    return abs(mean - theory) <= 4 * error + bias * abs(theory)


@pytest.mark.parametrize("m", [20, 60, 140])
@pytest.mark.parametrize("decay", [0.0, 0.5, 1.0])
def test_projnorm_concentrates_on_its_deterministic_value(m, decay):
    rng = np.random.default_rng(0)
    s = np.arange(1, 201) ** -decay
    theta = rng.standard_normal(200) * np.arange(1, 201) ** -0.3
    squares = [projnorm_linear(theta, rng.standard_normal((m, 200)) * np.sqrt(s)).value ** 2 for _ in range(60)]
    result = deterministic_projnorm(theta, s, m)
    assert _within(squares, result.value**2, bias=1 / result.effective)


@given(st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=30), st.integers(1, 29))
def test_kappa_solves_its_equation(s, m):
    kappa = deterministic_projnorm(np.ones(len(s)), s, m).kappa
    if m >= len(s):
        assert kappa == 0.0
    else:
        assert np.sum(np.array(s) / (np.array(s) + kappa)) == pytest.approx(m, rel=1e-10)


@given(st.integers(2, 50), st.integers(1, 49), st.floats(1e-3, 1e3))
def test_isotropic_rows_miss_the_share_of_dimensions_they_do_not_span(d, m, variance):
    value = deterministic_projnorm(np.eye(d, 1), np.full(d, variance), m).value
    assert value**2 == pytest.approx(max(0.0, 1 - m / d), abs=1e-12)


def test_enough_rows_leave_only_the_directions_of_zero_variance():
    result = deterministic_projnorm([3.0, 4.0, 12.0], [1.0, 0.0, 0.0], 1)
    assert (result.kappa, result.value) == (0.0, pytest.approx(math.hypot(4, 12)))
    assert result.effective == math.inf
    assert deterministic_projnorm([1.0, 1.0], [1.0, 2.0], 2).value == 0.0
    assert deterministic_projnorm([1.0, 1.0], [0.0, 0.0], 5).value == pytest.approx(math.sqrt(2))


@given(st.floats(0.0, 10.0), st.integers(20, 60), st.integers(1, 60), st.integers(1, 120))
def test_toy_projnorm_is_the_deterministic_one_of_its_covariance(sigma, d1, d2, m):
    toy = toy_asymptotics(sigma, d1=d1, d2=d2, n=10, m=m)
    covariance = np.concatenate([np.ones(d1), np.full(d2, sigma**2)])
    theta = np.concatenate([np.full(d1, toy.theta_norm / math.sqrt(d1)), np.zeros(d2)])
    general = deterministic_projnorm(theta, covariance, m)
    assert float(toy.projnorm_linear) == pytest.approx(general.value, rel=1e-6, abs=1e-8)
    assert float(toy.effective) == pytest.approx(min(10 * (1 - 10 / d1), general.effective), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("outputs", ["sign", "one-hot"])
@pytest.mark.parametrize(("n", "m"), [(100, 100), (100, 150), (600, 100), (225, 100)])
def test_toy_closed_forms_agree_with_simulation(n, m, outputs):
    d1, d2, trials = 200, 100, 100
    rng = np.random.default_rng(0)
    sigmas = np.array([0.0, 1.0, 3.0])
    toy = toy_asymptotics(sigmas, d1=d1, d2=d2, n=n, m=m, outputs=outputs)
    errors, norms, confidences, losses, lengths = (np.zeros((trials, 3)) for _ in range(5))
    for trial in range(trials):
        X = np.hstack([rng.standard_normal((n, d1)), np.zeros((n, d2))])
        theta = min_norm_solution(X, _responses(np.sign(X[:, 0] + X[:, -1]), outputs)).theta
        base = rng.standard_normal((m, d1 + d2))
        for j, sigma in enumerate(sigmas):
            X_ood = base * np.concatenate([np.ones(d1), np.full(d2, sigma)])
            predicted, labels = X_ood @ theta, np.sign(X_ood[:, 0] + X_ood[:, -1])
            margin = 2 * predicted[:, 0] if outputs == "sign" else predicted[:, 0] - predicted[:, 1]
            errors[trial, j] = np.mean(np.sign(margin) != labels)
            norms[trial, j] = projnorm_linear(theta, X_ood).value ** 2
            confidences[trial, j] = np.mean(1 / (1 + np.exp(-np.abs(margin))))
            losses[trial, j] = np.mean(np.sum((predicted - _responses(labels, outputs)) ** 2, axis=1))
            lengths[trial, j] = np.sum(theta**2)
    for j in range(3):
        assert _within(errors[:, j], toy.test_error[j], bias=0.02)
        assert _within(norms[:, j], toy.projnorm_linear[j] ** 2, bias=0.02)
        assert _within(confidences[:, j], toy.confidence[j], bias=0.02)
        assert _within(losses[:, j], toy.squared_loss[j], bias=0.02)
        assert _within(lengths[:, j], toy.theta_norm[j] ** 2, bias=0.02)


def _responses(labels, outputs):
    """Labels +-1 as one column, or as one column a class."""
    return labels[:, None] if outputs == "sign" else np.stack([(1 + labels) / 2, (1 - labels) / 2], axis=1)


def test_both_readings_err_alike_but_have_other_norms():
    sigmas, sizes = np.linspace(0, 5, 4), {"d1": 1000, "d2": 500, "n": 500, "m": 500}
    sign, one_hot = (toy_asymptotics(sigmas, **sizes, outputs=outputs) for outputs in ("sign", "one-hot"))
    assert np.array_equal(sign.test_error, one_hot.test_error)
    assert np.array_equal(sign.kappa, one_hot.kappa)
    # Half the square of the constant's weights, n / (d1 - n - 1), and half that of the sign's.
    np.testing.assert_allclose(one_hot.theta_norm**2, (500 / 499 + sign.theta_norm**2) / 2)
    np.testing.assert_allclose(one_hot.projnorm_linear / one_hot.theta_norm, sign.projnorm_linear / sign.theta_norm)
    assert np.all(one_hot.confidence < sign.confidence)


def test_the_numbers_of_the_design_note_are_reproduced():
    toy = toy_asymptotics([0, 1, 3, 5], d1=1000, d2=500, n=500, m=500)
    np.testing.assert_allclose(toy.test_error, [0.340, 0.389, 0.451, 0.470], atol=6e-4)
    np.testing.assert_allclose(toy.projnorm_linear, [0.584, 0.675, 0.751, 0.777], atol=6e-4)


def test_confidence_does_not_depend_on_sigma():
    toy = toy_asymptotics(np.linspace(0, 5, 11), d1=1000, d2=500, n=500, m=500)
    assert np.ptp(toy.confidence) == 0.0
    assert np.ptp(toy.theta_norm) == 0.0
    assert np.ptp(toy.test_error) > 0.1


@pytest.mark.parametrize(("n", "expected"), [(1, 0.5), (10**7, None)])
def test_confidence_between_a_coin_and_certainty(n, expected):
    toy = toy_asymptotics(0.0, d1=10**6, d2=1, n=n, m=5)
    draws = np.abs(np.random.default_rng(0).standard_normal(10**6))
    monte_carlo = np.mean(1 / (1 + np.exp(-2 * float(toy.theta_norm) * draws)))
    assert float(toy.confidence) == pytest.approx(monte_carlo, abs=2e-3)
    if expected is not None:
        assert float(toy.confidence) == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize(
    ("sigma", "m"), [(0.0, 10), (0.0, 25), (2.0, 40), (2.0, 41)], ids=["m = d1", "m > d1", "m = d", "m > d"]
)
def test_enough_shifted_rows_bring_projnorm_to_zero(sigma, m):
    toy = toy_asymptotics(sigma, d1=10, d2=30, n=5, m=m)
    assert float(toy.kappa) == 0.0
    assert float(toy.projnorm_linear) == 0.0


def test_shape_follows_sigma():
    assert toy_asymptotics(1.0, d1=10, d2=5, n=5, m=5).test_error.shape == ()
    assert toy_asymptotics([[0.0, 1.0]], d1=10, d2=5, n=5, m=5).confidence.shape == (1, 2)


@pytest.mark.parametrize("n", [7, 8, 9, 10, 11, 12, 13])
def test_sample_counts_near_the_dimension_are_refused(n):
    with pytest.raises(ValueError, match=r"`n` must be at most d1 - 4 = 6 or at least d1 \+ 4 = 14.*got " + str(n)):
        toy_asymptotics(1.0, d1=10, d2=5, n=n, m=5)


def test_spectra_over_hundreds_of_decades_are_served():
    result = deterministic_projnorm([1.0, 1.0, 1.0], [1e150, 1e-200, 1e-200], 1)
    assert result.value == pytest.approx(math.sqrt(2), rel=1e-6)


def test_kappa_is_accurate_at_its_turning_point():
    """At m = d1 and a tiny sigma, kappa is the geometric mean of what the two blocks would give."""
    toy = toy_asymptotics(1e-8, d1=1000, d2=500, n=500, m=1000)
    kappa = float(toy.kappa)
    assert 1000 / (1 + kappa) + 500 * 1e-16 / (1e-16 + kappa) == pytest.approx(1000, rel=1e-12)
    assert kappa == pytest.approx(1e-8 * math.sqrt(0.5), rel=1e-7)
    assert np.all(np.isfinite(toy_asymptotics(1e76, d1=1000, d2=500, n=500, m=300).projnorm_linear))


def test_the_norm_just_above_the_dimension_agrees_with_simulation():
    """Where n - d1 is small its exact offset matters."""
    rng = np.random.default_rng(0)
    squares = []
    for _ in range(2000):
        X = rng.standard_normal((52, 40))
        theta = np.linalg.solve(X.T @ X, X.T @ np.sign(X[:, 0]))
        squares.append(theta @ theta)
    assert _within(squares, float(toy_asymptotics(0.0, d1=40, d2=1, n=52, m=5).theta_norm) ** 2, bias=0.02)
