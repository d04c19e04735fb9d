"""The regression of errors on scores: against the Gaussian process written out, and what a new family adds."""

from __future__ import annotations

import numpy as np
import pytest

from projnorm.estimate.score_regression import _JITTER, ScoreRegression, _Parts


def drawn(seed=0, families=8, sets=3, scores=2, family_effect=0.03):
    """Scores, errors on a curve of them with an effect of the family, and families."""
    rng = np.random.default_rng(seed)
    names = np.repeat([f"f{i}" for i in range(families)], sets)
    X = rng.uniform(0.0, 1.0, (families * sets, scores))
    y = 0.1 + 0.4 * X[:, 0] + 0.1 * np.sin(4 * X[:, -1])
    return X, y + np.repeat(family_effect * rng.standard_normal(families), sets), names


def covariance(regression: ScoreRegression, x, y, same_family, same_set):
    """The formula of the module for two rows of standardised scores."""
    a, length, b, f, s = np.exp(regression.parameters)
    d, v = len(x), np.var(regression.values)
    smooth = a * np.exp(-np.sum((x - y) ** 2) / (2 * d * length**2))
    return v * (smooth + b * (x @ y / d + 1.0) + f * same_family + (s + _JITTER) * same_set)


def posterior(fitted: ScoreRegression, known, x, family=""):
    """Mean and deviation of a Gaussian process given the known sets, by the textbook."""
    sets, n = fitted.scores, len(fitted.values)
    K = np.array(
        [[covariance(fitted, sets[i], sets[j], fitted.families[i] == fitted.families[j], i == j) for j in range(n)]
         for i in range(n)]
    )[np.ix_(known, known)]  # fmt: skip
    k = np.array([covariance(fitted, x, sets[i], fitted.families[i] == family, same_set=False) for i in known])
    mean = fitted.values.mean() + k @ np.linalg.solve(K, fitted.values[known] - fitted.values.mean())
    variance = covariance(fitted, x, x, same_family=True, same_set=True) - k @ np.linalg.solve(K, k)
    return mean, np.sqrt(variance)


def test_a_prediction_is_the_posterior_of_the_gaussian_process():
    regression = ScoreRegression.fit(*drawn())
    new = np.array([[0.3, 0.9], [2.0, -1.0]])
    predicted = regression.predict(new)
    for row, (mean, deviation) in enumerate(zip(predicted.mean, predicted.deviation, strict=True)):
        x = (new[row] - regression.centre) / regression.units
        expected = posterior(regression, np.arange(len(regression.values)), x)
        assert (mean, deviation) == pytest.approx(expected, rel=1e-6)


def test_what_is_left_out_is_predicted_by_the_other_families_alone():
    regression = ScoreRegression.fit(*drawn())
    left_out = regression.left_out()
    for number in (0, 4, 23):
        others = np.flatnonzero(regression.families != regression.families[number])
        expected = posterior(regression, others, regression.scores[number])
        assert (left_out.mean[number], left_out.deviation[number]) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("shift", [0.0, 0.7])
def test_the_gradient_is_that_of_finite_differences(shift):
    X, y, families = drawn(families=4)
    parts = _Parts.from_scores(X, families, y)
    at = np.log([0.4, 0.9, 0.6, 0.1, 0.2]) + shift
    _, gradient = parts.loss(at)
    step = 1e-5
    differences = [(parts.loss(at + e)[0] - parts.loss(at - e)[0]) / (2 * step) for e in step * np.eye(5)]
    np.testing.assert_allclose(gradient, differences, rtol=1e-5, atol=1e-6)


def test_the_fitted_parameters_are_a_minimum():
    X, y, families = drawn()
    regression = ScoreRegression.fit(X, y, families)
    parts = _Parts.from_scores(regression.scores, families, y)
    least, _ = parts.loss(regression.parameters)
    rng = np.random.default_rng(0)
    tried = [parts.loss(np.clip(regression.parameters + 0.2 * rng.standard_normal(5), -6.0, 1.0))[0] for _ in range(50)]
    assert min(tried) >= least - 1e-3


def test_a_straight_line_is_learnt_also_where_no_set_is():
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 1.0, (30, 2))
    families = np.repeat([f"f{i}" for i in range(10)], 3)
    regression = ScoreRegression.fit(X, 0.1 + X @ [0.3, 0.2], families)
    new = np.array([[0.5, 0.5], [1.3, 1.2]])
    np.testing.assert_allclose(regression.predict(new).mean, 0.1 + new @ [0.3, 0.2], atol=0.01)


def test_units_of_scores_do_not_matter_nor_do_scores_that_are_constant():
    X, y, families = drawn()
    scaled = X * [1000.0, 1e-3] + [5.0, -2.0]
    plain, other = ScoreRegression.fit(X, y, families), ScoreRegression.fit(scaled, y, families)
    np.testing.assert_allclose(plain.predict(X[:3]).mean, other.predict(scaled[:3]).mean, rtol=1e-6)
    constant = ScoreRegression.fit(np.full((24, 1), 7.0), y, families).predict([[7.0]])
    assert constant.mean[0] == pytest.approx(y.mean(), abs=0.02)
    level = ScoreRegression.fit(X, np.full(24, 0.2), families).predict(X[:1])
    assert level.mean[0] == pytest.approx(0.2, abs=1e-6)
    assert np.isfinite(level.deviation).all()


def test_a_new_family_is_at_least_as_uncertain_as_families_differ():
    X, y, families = drawn(families=20, family_effect=0.05)
    regression = ScoreRegression.fit(X, y, families)
    effect = np.sqrt(np.var(y) * np.exp(regression.parameters[3]))
    assert 0.025 < effect < 0.1
    assert (regression.predict(X).deviation >= effect).all()
    far = regression.predict([[5.0, 5.0]]).deviation
    assert far > 2.0 * regression.predict(X).deviation.max()


def test_intervals_hold_on_families_not_seen():
    held = []
    for seed in range(200):
        X, y, families = drawn(seed, families=15, family_effect=0.04)
        known = families != "f14"
        new = ScoreRegression.fit(X[known], y[known], families[known]).predict(X[~known][:1])
        held.append(abs(new.mean[0] - y[~known][0]) <= 1.645 * new.deviation[0])
    # Four standard errors of a share of 200 draws are 8 points.
    assert 0.82 <= np.mean(held) <= 0.98
