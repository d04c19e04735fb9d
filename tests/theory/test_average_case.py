"""The average case: an exact law for isotropic truths, a wrong one for aligned truths, and the two corrections."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from scipy import stats

from projnorm_theory import LinearPair, average_ratio, min_norm_solution, scaled_loss, spherical_loss
from simulations.designs import haar
from tests.strategies import general_designs, generators, matrices, spectra
from tests.theory import definitions

LENGTHS = {
    "one length": lambda _: 1.0,
    "cubed Cauchy": lambda rng: rng.standard_cauchy() ** 3,
    "log-normal over forty decades": lambda rng: math.exp(20 * rng.standard_normal()),
    "two lengths": lambda rng: 10.0 ** rng.choice([-8, 8]),
}


def _power_law(rng: np.random.Generator, rows: int, dim: int, decay: float) -> np.ndarray:
    """Gaussian rows whose j-th coordinate has standard deviation ``j^-decay``."""
    return rng.standard_normal((rows, dim)) * np.arange(1.0, dim + 1) ** -decay


def _pair_of_kind(kind: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    X, X_ood = _power_law(rng, 12, 40, 1.0), _power_law(rng, 9, 40, 0.5)
    if kind == "rank deficient":
        X[6:] = rng.standard_normal((6, 6)) @ X[:6]
    elif kind == "shared directions":
        X_ood[:4] = rng.standard_normal((4, 12)) @ X
    elif kind == "more rows than features":
        X, X_ood = X @ haar(rng, 40, 11), X_ood @ haar(rng, 40, 11)
        X[:, 8:] = 0.0
    return X, X_ood


KINDS = ("general", "rank deficient", "shared directions", "more rows than features")


@pytest.mark.parametrize("length", LENGTHS)
def test_the_law_is_exact_whatever_the_law_of_the_length(length):
    _check_uniform("general", length, draws=150)


@pytest.mark.parametrize("kind", KINDS)
def test_the_law_counts_the_rank_of_the_training_inputs(kind):
    _check_uniform(kind, "cubed Cauchy", draws=150)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "length"), list(zip(KINDS, LENGTHS, strict=True)))
def test_the_law_is_exact_on_four_thousand_truths(kind, length):
    _check_uniform(kind, length, draws=4000)


def _check_uniform(kind: str, length: str, draws: int) -> None:
    """Kolmogorov-Smirnov: the probabilities of true losses under the law are uniform, and so are the p-values."""
    rng = np.random.default_rng(sum(map(ord, kind + length)))
    X, X_ood = _pair_of_kind(kind, rng)
    pair, outside = LinearPair.from_features(X, X_ood), X_ood @ (np.eye(X.shape[1]) - definitions.projector(X))
    probabilities, p_values = [], []
    for _ in range(draws):
        truth = rng.standard_normal(X.shape[1])
        truth *= LENGTHS[length](rng) / np.linalg.norm(truth)
        law = spherical_loss(pair, X @ truth)
        probabilities.append(law.cdf(np.sum((outside @ truth) ** 2) / len(X_ood)))
        p_values.append(law.isotropy_p_value)
    assert stats.kstest(probabilities, "uniform").pvalue > 1e-3
    assert stats.kstest(p_values, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("independent", [1, 2, 3])
def test_the_law_counts_the_outputs_that_vary_independently(independent):
    rng = np.random.default_rng(independent)
    X, X_ood = _pair_of_kind("rank deficient", rng)
    pair, outside = LinearPair.from_features(X, X_ood), X_ood @ (np.eye(40) - definitions.projector(X))
    probabilities = []
    for _ in range(200):
        truth = rng.standard_cauchy() * rng.standard_normal((40, independent)) @ haar(rng, 3, independent).T
        law = spherical_loss(pair, X @ truth, independent_outputs=independent)
        probabilities.append(law.cdf(np.sum((outside @ truth) ** 2) / len(X_ood)))
    assert stats.kstest(probabilities, "uniform").pvalue > 1e-3


def test_the_law_fails_on_aligned_truths_and_the_p_value_sees_it():
    rng = np.random.default_rng(0)
    X, X_ood = _power_law(rng, 40, 120, 1.0), _power_law(rng, 30, 120, 0.5)
    pair, outside = LinearPair.from_features(X, X_ood), X_ood @ (np.eye(120) - definitions.projector(X))
    covered, p_values = [], []
    for _ in range(40):
        truth = rng.standard_normal(120) / np.arange(1, 121)
        law = spherical_loss(pair, X @ truth)
        covered.append(0.05 < law.cdf(np.sum((outside @ truth) ** 2) / 30) < 0.95)
        p_values.append(law.isotropy_p_value)
    assert np.mean(covered) < 0.1
    assert np.median(p_values) < 1e-4


@given(generators, st.integers(1, 12), st.integers(1, 12), st.floats(0.1, 10.0))
def test_orthogonal_rows_and_a_flat_spectrum_give_the_f_distribution(rng, n, m, scale):
    axes = haar(rng, n + m + 1, n + m).T
    Y = rng.standard_normal(n)
    law = spherical_loss(axes[:n], Y, scale * axes[n:])
    exact = stats.f(m, n, scale=scale**2 * np.sum(Y**2) / n)
    assert law.quantile(0.9) == pytest.approx(exact.ppf(0.9), rel=1e-8)
    for p in (0.01, 0.5, 0.99):
        assert law.cdf(exact.ppf(p)) == pytest.approx(p, abs=1e-10)
    assert law.mean == (pytest.approx(exact.mean()) if n > 2 else math.inf)
    assert math.isnan(law.isotropy_p_value)


@given(general_designs())
def test_the_mean_is_the_trace_of_the_schur_complement(design):
    X, X_ood, Y = design.X, design.X_ood, design.Y
    law = spherical_loss(X, Y, X_ood)
    outputs, rank = Y.shape[1], np.linalg.matrix_rank(X, rtol=1e-11)
    outside = X_ood @ (np.eye(X.shape[1]) - definitions.projector(X))
    theta = definitions.projector(X) @ design.theta_star
    per_mean = outputs * np.sum(theta**2) / len(X_ood) * np.sum(outside**2)
    slack = 1e-9 * outputs * definitions.loss_scale(X_ood, theta)
    if rank * outputs > 2:
        assert law.mean == pytest.approx(per_mean / (rank * outputs - 2), rel=1e-7, abs=slack)
    else:
        assert law.mean in (0.0, math.inf)


@given(general_designs(), st.sampled_from([1e-6, 1e6]))
def test_the_law_scales_with_the_responses_and_the_shifted_inputs(design, factor):
    law, scaled = (spherical_loss(design.X, scale * design.Y, scale * design.X_ood) for scale in (1.0, factor))
    rounding = 1e-20 * definitions.loss_scale(design.X_ood, design.theta_star)
    assert scaled.quantile(0.7) / factor**4 == pytest.approx(law.quantile(0.7), rel=1e-6, abs=rounding)


@given(st.integers(1, 20), st.floats(0.0, 12.0), generators)
def test_the_interval_holds_its_level_over_twelve_decades_of_eigenvalues(size, decades, rng):
    axes = haar(rng, 40, size + 4).T
    values = 10.0 ** (-np.linspace(0, decades, size) / 2)
    law = spherical_loss(axes[:4], rng.standard_normal(4), values[:, None] * axes[4:])
    interval = law.interval(0.8)
    assert law.cdf(interval.lower) == pytest.approx(0.1, abs=1e-8)
    assert law.cdf(interval.upper) == pytest.approx(0.9, abs=1e-8)


def test_no_free_direction_leaves_no_loss():
    law = spherical_loss(np.eye(3), [1.0, 2.0, 3.0], np.ones((2, 3)))
    assert (law.mean, law.law, law.quantile(0.9), law.cdf(0.0), law.cdf(-1.0)) == (0.0, None, 0.0, 1.0, 0.0)
    for method in ("loo", "power"):
        calibrated = scaled_loss(np.eye(3), [1.0, 2.0, 3.0], np.ones((2, 3)), method=method)
        assert calibrated.interval(0.9).upper == pytest.approx(0.0, abs=1e-20)


def test_gram_blocks_give_the_same_law():
    rng = np.random.default_rng(0)
    X, X_ood, Y = rng.standard_normal((6, 30)), rng.standard_normal((5, 30)), rng.standard_normal((6, 2))
    gram = LinearPair.from_gram(X @ X.T, X_ood @ X.T, X_ood @ X_ood.T)
    assert spherical_loss(gram, Y).quantile(0.3) == pytest.approx(spherical_loss(X, Y, X_ood).quantile(0.3))
    assert average_ratio(gram).ratio == pytest.approx(average_ratio(X, X_ood).ratio)
    for method in ("loo", "power"):
        ours, theirs = scaled_loss(gram, Y, method=method), scaled_loss(X, Y, X_ood, method=method)
        assert ours.quantile(0.3) == pytest.approx(theirs.quantile(0.3), rel=1e-5)


@given(matrices(st.integers(1, 6), st.integers(1, 12)), generators, st.integers(1, 6))
def test_the_average_ratio_is_made_of_two_traces(X, rng, m):
    X_ood = rng.standard_normal((m, X.shape[1]))
    P, P_ood, eye = definitions.projector(X), definitions.projector(X_ood), np.eye(X.shape[1])
    loss, distance = np.trace(X_ood @ (eye - P) @ X_ood.T) / m, np.trace(P @ (eye - P_ood))
    assume(distance > 1e-6)
    assert average_ratio(X, X_ood).ratio == pytest.approx(loss / distance, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("kind", ["general", "rank deficient"])
def test_the_average_ratio_matches_simulation(kind):
    """Any truth with isotropic second moments will do; these have independent signs for entries."""
    rng = np.random.default_rng(0)
    X, X_ood = _pair_of_kind(kind, rng)
    truths = rng.choice([-1.0, 1.0], (40, 20_000))
    fits = definitions.projector(X) @ truths
    losses = np.sum((X_ood @ (truths - fits)) ** 2, axis=0) / len(X_ood)
    squares = np.sum((fits - definitions.projector(X_ood) @ fits) ** 2, axis=0)
    result = average_ratio(X, X_ood)
    # The standard error of a ratio of means.
    error = np.std(losses - result.ratio * squares) / math.sqrt(truths.shape[1]) / np.mean(squares)
    assert result.ratio == pytest.approx(np.mean(losses) / np.mean(squares), abs=4 * error)
    assert result.loss == pytest.approx(np.mean(losses), rel=0.03)
    assert result.projnorm_squared == pytest.approx(np.mean(squares), rel=0.03)


@given(generators, st.integers(1, 6), st.integers(0, 6), st.data())
def test_with_equal_ranks_the_average_ratio_lies_between_the_ends_of_the_proposition(rng, rank, more, data):
    U, V = haar(rng, rank + more + 1, rank), haar(rng, rank + more + 1, rank)
    values = data.draw(spectra(rank))
    result = average_ratio(U.T, values[:, None] * V.T)
    assert result.rank_factor == pytest.approx(1.0, rel=1e-6)
    assert values[-1] ** 2 / rank * (1 - 1e-6) <= result.ratio <= values[0] ** 2 / rank * (1 + 1e-6)


@given(generators, st.integers(1, 6), st.integers(1, 6), st.floats(0.1, 10.0))
def test_a_flat_shifted_spectrum_makes_the_average_ratio_a_ratio_of_ranks(rng, n, m, scale):
    """Sines of all angles drop out: lambda / m times (m - t) / (n - t) with t the overlap of the row spaces."""
    U, V = haar(rng, n + m, n), haar(rng, n + m, m)
    overlap = np.sum((V.T @ U) ** 2)
    expected = scale**2 / m * (m - overlap) / (n - overlap)
    result = average_ratio(U.T, scale * V.T)
    assert result.mean_eigenvalue == pytest.approx(scale**2 / m)
    assert result.ratio == pytest.approx(expected, rel=1e-6)


def test_the_average_ratio_is_infinite_or_undefined_where_projnorm_vanishes():
    assert average_ratio([[1.0, 0.0]], np.eye(2)).ratio == math.inf
    assert math.isnan(average_ratio(np.eye(2), np.eye(2)).ratio)


@given(matrices(st.integers(1, 7), st.integers(1, 14), decades=2.0), generators, st.integers(1, 3))
def test_the_leave_one_out_shortcut_is_refitting_without_each_row(X, rng, outputs):
    Y, X_ood = X @ rng.standard_normal((X.shape[1], outputs)), rng.standard_normal((2, X.shape[1]))
    distances = np.array(
        [
            np.linalg.norm(x - definitions.projector(np.delete(X, i, 0)) @ x) if len(X) > 1 else np.linalg.norm(x)
            for i, x in enumerate(X)
        ]
    )
    new = distances > 1e-6 * np.linalg.norm(X, 2)
    if not new.any():
        with pytest.raises(ValueError, match="must have a row that is not a combination of the others"):
            scaled_loss(X, Y, X_ood)
        return
    result = scaled_loss(X, Y, X_ood)
    refits = [
        Y[i] - X[i] @ min_norm_solution(np.delete(X, i, 0), np.delete(Y, i, 0)).theta if len(X) > 1 else Y[i]
        for i in range(len(X))
    ]
    for i, refit in enumerate(refits):
        if new[i]:
            np.testing.assert_allclose(result.leave_one_out[i], refit, atol=1e-7 * np.abs(Y).max())
        else:
            assert np.isnan(result.leave_one_out[i]).all()
    tau_squared = np.sum(np.array(refits)[new] ** 2) / np.sum(distances[new] ** 2)
    assert result.scale == pytest.approx(tau_squared, rel=1e-5)
    outside = X_ood @ (np.eye(X.shape[1]) - definitions.projector(X))
    assert result.mean == pytest.approx(tau_squared * np.sum(outside**2) / 2, rel=1e-5, abs=1e-9 * tau_squared)


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_leave_one_out_law_is_exact_for_isotropic_truths(outputs):
    rng = np.random.default_rng(outputs)
    X, X_ood = _power_law(rng, 12, 40, 1.0), _power_law(rng, 9, 40, 0.5)
    pair, outside = LinearPair.from_features(X, X_ood), X_ood @ (np.eye(40) - definitions.projector(X))
    probabilities = []
    for _ in range(200):
        truth = rng.standard_cauchy() * rng.standard_normal((40, outputs))
        law = scaled_loss(pair, X @ truth)
        probabilities.append(law.cdf(np.sum((outside @ truth) ** 2) / len(X_ood)))
    assert stats.kstest(probabilities, "uniform").pvalue > 1e-3


@given(general_designs())
def test_the_power_prior_of_exponent_zero_is_the_spherical_law(design):
    assume(np.linalg.matrix_rank(design.X, rtol=1e-8) * design.Y.shape[1] > 2)
    spherical = spherical_loss(design.X, design.Y, design.X_ood)
    power = scaled_loss(design.X, design.Y, design.X_ood, method="power", exponent=0.0)
    slack = 1e-9 * spherical.unit + 1e-12 * definitions.loss_scale(design.X_ood, design.theta_star)
    assert power.mean == pytest.approx(spherical.mean, rel=1e-5, abs=slack)
    if spherical.mean > 1e-6 * definitions.loss_scale(design.X_ood, design.theta_star):
        assert power.cdf(spherical.mean) == pytest.approx(spherical.cdf(spherical.mean), abs=1e-5)


@pytest.mark.parametrize("exponent", [-0.5, 0.7])
def test_the_power_prior_is_gaussian_regression_with_a_power_of_the_gram_matrix(exponent):
    """Mean and scale against the block formulas for [Y; Y~] ~ N(0, tau^2 G^(1 + a))."""
    rng = np.random.default_rng(0)
    X, X_ood, Y = _power_law(rng, 8, 30, 0.5), _power_law(rng, 6, 30, 0.5), rng.standard_normal(8)
    Z = np.vstack([X, X_ood])
    values, vectors = np.linalg.eigh(Z @ Z.T)
    power = (vectors * values ** (1 + exponent)) @ vectors.T
    weights = np.linalg.solve(power[:8, :8], Y)
    expected = power[8:, :8] @ weights
    covariance = power[8:, 8:] - power[8:, :8] @ np.linalg.solve(power[:8, :8], power[:8, 8:])
    bias = X_ood @ np.linalg.pinv(X) @ Y - expected
    mean = (bias @ bias + Y @ weights / 6 * np.trace(covariance)) / 6
    result = scaled_loss(X, Y, X_ood, method="power", exponent=exponent)
    assert result.mean == pytest.approx(mean, rel=1e-9)
    draws = 20_000
    scales = np.sqrt(Y @ weights / rng.chisquare(8, draws))
    noise = np.linalg.cholesky(covariance) @ rng.standard_normal((6, draws))
    losses = np.sum((bias[:, None] + scales * noise) ** 2, axis=0) / 6
    for p in (0.1, 0.5, 0.9):
        assert np.mean(losses <= result.quantile(p)) == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / draws))


def test_the_exponent_is_the_likeliest_one():
    rng = np.random.default_rng(0)
    X, X_ood = _power_law(rng, 60, 90, 0.5), _power_law(rng, 10, 90, 0.5)
    truth = rng.standard_normal(90) * np.arange(1.0, 91) ** -0.6
    result = scaled_loss(X, X @ truth, X_ood, method="power")
    Z = np.vstack([X, X_ood])
    values, vectors = np.linalg.eigh(Z @ Z.T)

    def log_likelihood(a: float) -> float:
        block = ((vectors * values ** (1 + a)) @ vectors.T)[:60, :60]
        return -0.5 * np.linalg.slogdet(block)[1] - 30 * np.log(X @ truth @ np.linalg.solve(block, X @ truth))

    best = log_likelihood(result.exponent)
    assert all(best >= log_likelihood(a) - 1e-6 for a in np.linspace(-1, 4, 41))
    assert 0.2 < result.exponent < 2.0


def _log_bias(method: str, train_decay: float, ood_decay: float) -> tuple[float, float]:
    """Coverage at 90 % and median log of predicted over true loss, over truths aligned with the training inputs."""
    rng = np.random.default_rng(1)
    X, X_ood = _power_law(rng, 40, 120, train_decay), _power_law(rng, 30, 120, ood_decay)
    pair, outside = LinearPair.from_features(X, X_ood), X_ood @ (np.eye(120) - definitions.projector(X))
    covered, biases = [], []
    for _ in range(60):
        truth = rng.standard_normal(120) * np.arange(1, 121) ** -0.75
        loss = np.sum((outside @ truth) ** 2) / 30
        law = scaled_loss(pair, X @ truth, method=method)
        covered.append(0.05 < law.cdf(loss) < 0.95)
        biases.append(math.log(law.mean / loss))
    return float(np.mean(covered)), float(np.median(biases))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["loo", "power"])
def test_the_corrections_are_right_for_aligned_truths_until_the_spectrum_changes(method):
    coverage, bias = _log_bias(method, 0.75, 0.75)
    assert coverage > 0.7
    assert abs(bias) < 0.3
    coverage, bias = _log_bias(method, 0.75, 0.3)
    assert coverage < 0.7
    assert bias > 0.3, "a flatter spectrum: too large"
    coverage, bias = _log_bias(method, 0.3, 0.75)
    assert coverage < 0.7
    assert bias < -0.3, "a steeper spectrum: too small"


def test_results_say_that_an_average_never_stands_alone():
    rng = np.random.default_rng(0)
    X, X_ood, Y = rng.standard_normal((5, 20)), rng.standard_normal((4, 20)), rng.standard_normal(5)
    results = [spherical_loss(X, Y, X_ood), average_ratio(X, X_ood)]
    results += [scaled_loss(X, Y, X_ood, method=method) for method in ("loo", "power")]
    assert all("never stands alone" in str(result) for result in results)
    assert all(any("aligned" in words for words in result.assumptions) for result in results if hasattr(result, "law"))
    assert "not interpolated" in str(spherical_loss(np.vstack([X, X]), np.r_[Y, Y + 1], X_ood))
