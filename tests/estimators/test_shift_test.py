"""The tests of "no shift" and of "class shares": how often they reject what holds, and what they see."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import f

from projnorm.estimators.shift_test import _RIDGE, MOST_CLASSES, HotellingTest as Result, ShiftTest, _functions
from projnorm.outputs.outputs import Outputs
from tests.small import gaussian_outputs

ALIKE = [1 / 3] * 3


def p_values(source, target, n, m, *, draws=200, noise=0.0, seed=0):
    """Of "no shift" and of "class shares", for `draws` draws of labelled samples and of a target."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(draws):
        test = ShiftTest.fit(gaussian_outputs(n, source, rng))
        drawn = gaussian_outputs(m, target, rng, noise=noise)
        found.append((test.nothing_changed(drawn).p_value, test.only_shares_changed(drawn).p_value))
    return np.array(found).T


@pytest.mark.parametrize(
    ("source", "target", "n", "m"),
    [
        (ALIKE, ALIKE, 300, 200),
        (ALIKE, [0.8, 0.1, 0.1], 300, 200),
        (ALIKE, [1.0, 0.0, 0.0], 300, 200),
        ([0.5, 0.3, 0.2, 0.0], [0.2, 0.3, 0.5, 0.0], 300, 200),
        ([0.5, 0.5], [0.5, 0.5], 300, 200),
        ([0.5, 0.5], [0.9, 0.1], 300, 200),
        ([0.1] * 10, [0.5, 0.5] + [0.0] * 8, 300, 200),
        ([0.1] * 10, [0.1] * 10, 100, 300),
    ],
)
def test_class_shares_are_seldom_refuted_where_nothing_else_changed(source, target, n, m):
    no_shift, class_shares = p_values(source, target, n, m)
    # At 5 %: four standard errors of a share of 200 draws are 6 points.
    assert np.mean(class_shares < 0.05) < 0.11
    assert np.mean(class_shares < 1e-3) < 0.05
    if source == target:
        assert np.mean(no_shift < 0.05) < 0.11
    else:
        assert np.mean(no_shift < 0.05) > 0.9


def test_a_class_with_few_labelled_samples_refutes_nothing():
    """Of about six samples the mean of a class is known badly, and the target has much of it."""
    _, class_shares = p_values([0.93, 0.05, 0.02], [0.2, 0.4, 0.4], 300, 200)
    assert np.mean(class_shares < 1e-3) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("target", [[1 / 40] * 40, [0.2] * 5 + [0.0] * 35])
def test_class_shares_of_many_classes_are_seldom_refuted(target):
    assert len(target) > MOST_CLASSES
    _, class_shares = p_values([1 / 40] * 40, target, 800, 300, draws=100)
    assert np.mean(class_shares < 0.05) < 0.14
    assert np.mean(class_shares < 1e-3) < 0.05


@pytest.mark.parametrize(("classes", "n"), [(3, 600), (10, 300), (40, 800)])
def test_noise_on_the_inputs_refutes_both(classes, n):
    alike = [1 / classes] * classes
    found = p_values(alike, alike, n, 400, noise=1.2, draws=20)
    assert (np.mean(found < 1e-3, axis=1) > 0.8).all()


def naive(test: ShiftTest, target: Outputs):
    """Mean of each function over the target, in the units of the test."""
    rows = test.scaling.probabilities(target.logits)
    used = np.isfinite(test.units)
    return _functions(rows, target.logits, test.edges)[:, used].mean(axis=0) / test.units[used]


def naive_covariance(test: ShiftTest, shares, m: int):
    """W of the formula: noise of the target and noise of the classes, and the ridge."""
    mean = sum(q * mu for q, mu in zip(shares, test.means, strict=True))
    of_target = sum(
        q * (S + np.outer(mu - mean, mu - mean)) for q, S, mu in zip(shares, test.covariances, test.means, strict=True)
    )
    of_classes = sum(q**2 / n * S for q, n, S in zip(shares, test.counts, test.covariances, strict=True) if n)
    total = of_target / m + of_classes
    return total + _RIDGE * np.diag(np.diag(total) + 1.0 / m + 1.0 / test.counts.sum())


def test_the_statistic_of_known_shares_is_that_of_the_formula():
    rng = np.random.default_rng(0)
    test = ShiftTest.fit(gaussian_outputs(200, ALIKE, rng))
    target, shares = gaussian_outputs(80, [0.6, 0.3, 0.1], rng), np.array([0.5, 0.3, 0.2])
    found = test.only_shares_changed(target, shares)
    missed = naive(test, target) - shares @ test.means
    distance = missed @ np.linalg.solve(naive_covariance(test, shares, 80), missed)
    parts = shares / 80 + shares**2 / test.counts
    degrees = parts.sum() ** 2 / np.sum(parts**2 / (test.counts + 9))
    second = degrees - len(missed) + 1
    assert found.degrees == len(missed)
    assert found.statistic == pytest.approx(distance * second / degrees, rel=1e-9)
    assert found.p_value == pytest.approx(f.sf(found.statistic / len(missed), len(missed), second), rel=1e-9)


def test_the_shares_that_fit_best_minimise_the_statistic():
    rng = np.random.default_rng(1)
    test = ShiftTest.fit(gaussian_outputs(400, ALIKE, rng))
    target = gaussian_outputs(150, [0.6, 0.3, 0.1], rng)
    found, mean = test.only_shares_changed(target), naive(test, target)
    shares = test.counts / test.counts.sum()
    for _ in range(3):  # the covariance is that of the shares of the last round
        W = naive_covariance(test, shares, 150)

        def distance(q, W=W):
            return (mean - q @ test.means) @ np.linalg.solve(W, mean - q @ test.means)

        total = {"type": "eq", "fun": lambda q: q.sum() - 1.0}
        shares = minimize(distance, shares, bounds=[(0, 1)] * 3, constraints=total, tol=1e-12).x
    second = found.second_degrees
    assert found.degrees == len(mean) - 2
    assert found.statistic * (second + len(mean) - 1) / second == pytest.approx(distance(shares), rel=1e-3)


def test_no_shift_is_hotellings_test():
    rng = np.random.default_rng(2)
    source, target = gaussian_outputs(300, ALIKE, rng), gaussian_outputs(100, ALIKE, rng)
    test = ShiftTest.fit(source)
    used = np.isfinite(test.units)
    values = _functions(test.scaling.probabilities(source.logits), source.logits, test.edges)[:, used]
    values /= test.units[used]
    covariance = np.cov(values.T, bias=True) * (1 / 100 + 1 / 300)
    covariance += _RIDGE * np.diag(np.diag(covariance) + 1 / 100 + 1 / 300)
    missed, p = naive(test, target) - values.mean(axis=0), len(covariance)
    distance = missed @ np.linalg.solve(covariance, missed)
    found = test.nothing_changed(target)
    assert found.p_value == pytest.approx(f.sf(distance * (300 - p) / (p * 299), p, 300 - p), rel=1e-6)


def test_the_same_samples_are_no_shift_and_one_class_alone_is_a_change_of_shares():
    source = gaussian_outputs(300, ALIKE, np.random.default_rng(3))
    test = ShiftTest.fit(source)
    assert test.nothing_changed(source).p_value == pytest.approx(1.0)
    assert test.only_shares_changed(source).p_value > 0.9
    one = source.take(np.flatnonzero(source.known_labels == 0))
    assert test.nothing_changed(one).p_value < 1e-3
    assert test.only_shares_changed(one).p_value > 0.9
    assert test.likely_shares(one)[0] > 0.9
    adapted = test.adapted(one, np.array([1.0, 0.0, 0.0]))
    np.testing.assert_allclose(adapted, np.tile([1.0, 0.0, 0.0], (len(one), 1)))


@pytest.mark.parametrize("rows", [np.eye(3)[[0] * 30], np.full((30, 3), 1e4) * np.eye(3)[[0, 1, 2] * 10]])
def test_outputs_without_any_spread_give_finite_results(rows):
    source = Outputs(rows, labels=np.arange(30) % 3)
    test = ShiftTest.fit(source)
    for target in (source, source.take(np.arange(1))):
        for found in (test.nothing_changed(target), test.only_shares_changed(target)):
            assert 0.0 <= found.p_value <= 1.0


def test_what_a_level_accepts_is_not_beyond_it():
    for second, degrees in ((5, 3), (1000, 12)):
        found = Result.from_distance(1.0, degrees, 1, second)
        at = degrees * f.isf(0.01, degrees, found.second_degrees)
        just, far = (Result.from_distance(at + more, degrees, 1, second) for more in (0.0, 2.0))
        assert just.p_value == pytest.approx(0.01)
        assert just.beyond(0.01) == pytest.approx(0.0, abs=1e-6)
        assert far.beyond(0.01) == pytest.approx(2.0)
        assert far.beyond(1e-12) == 0.0
