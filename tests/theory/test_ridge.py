"""The ridge certificate: it holds for every labelling, and the decomposition behind it is exact."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from projnorm_theory import LinearPair, balancing_ridge, projnorm_linear_of_pair, ridge_error_bound
from simulations.designs import haar
from tests.strategies import generators, matrices, spectra


@st.composite
def labelled_sets(draw):
    """Two sets of inputs with hard labels: training, true shifted labels, and pseudo-labels that err now and then."""
    X_ood = draw(matrices(st.integers(1, 8), st.integers(1, 12), decades=2.0))
    rng = draw(generators)
    X = rng.standard_normal((draw(st.integers(1, 8)), X_ood.shape[1])) * np.linalg.norm(X_ood) / X_ood.shape[1]
    classes = draw(st.integers(1, 4))
    Y, Y_ood, pseudo = (_labels(rng, rows, classes) for rows in (len(X), len(X_ood), len(X_ood)))
    right = rng.random(len(X_ood)) < draw(st.floats(0.0, 1.0))
    pseudo[right] = Y_ood[right]
    ridge = draw(st.sampled_from([0.0, 1e-3, 1.0, 1e3])) * np.linalg.norm(X_ood, 2) ** 2 / len(X_ood)
    return X, Y, X_ood, Y_ood, pseudo, ridge


def _labels(rng: np.random.Generator, rows: int, classes: int) -> np.ndarray:
    if classes == 1:
        return rng.choice([-1.0, 1.0], (rows, 1))
    return np.eye(classes)[rng.integers(classes, size=rows)]


def _ridge_fit(X: np.ndarray, Y: np.ndarray, ridge: float) -> np.ndarray:
    """Minimiser of ``||X theta - Y||^2 / rows + ridge ||theta||^2``; of least norm without a ridge."""
    if ridge == 0.0:
        return np.linalg.pinv(X, rcond=1e-11) @ Y
    return np.linalg.solve(X.T @ X / len(X) + ridge * np.eye(X.shape[1]), X.T @ Y / len(X))


@given(labelled_sets(), st.sampled_from([0.0, 0.1]))
def test_the_decomposition_matches_the_definitions(data, train_ridge):
    X, Y, X_ood, Y_ood, pseudo, ridge = data
    bound = ridge_error_bound(X, Y, X_ood, ridge=ridge, Y_ood=Y_ood, pseudo_labels=pseudo, train_ridge=train_ridge)
    theta = _ridge_fit(X, Y, train_ridge)
    retrained, ideal = _ridge_fit(X_ood, pseudo, ridge), _ridge_fit(X_ood, Y_ood, ridge)
    scale = np.linalg.norm(theta) + np.linalg.norm(retrained) + np.linalg.norm(ideal)
    assert bound.projnorm == pytest.approx(np.linalg.norm(theta - retrained), abs=1e-7 * scale)
    assert bound.drift[0] == bound.drift[1] == pytest.approx(np.linalg.norm(theta - ideal), abs=1e-7 * scale)
    assert bound.mistakes == pytest.approx(np.linalg.norm(ideal - retrained), abs=1e-7 * scale)
    assert bound.error == np.mean(np.any(pseudo != Y_ood, axis=1))
    if not math.isnan(bound.alignment):
        cross = 2 * bound.alignment * bound.drift[0] * bound.mistakes
        assert bound.projnorm**2 == pytest.approx(bound.drift[0] ** 2 + bound.mistakes**2 + cross, abs=1e-7 * scale**2)


@given(labelled_sets())
def test_the_error_lies_between_the_two_ends_with_measured_and_with_assumed_drift(data):
    X, Y, X_ood, Y_ood, pseudo, ridge = data
    pair = LinearPair.from_features(X, X_ood)
    measured = ridge_error_bound(pair, Y, ridge=ridge, Y_ood=Y_ood, pseudo_labels=pseudo)
    drift, error = measured.drift[0], measured.error
    assumed = ridge_error_bound(pair, Y, ridge=ridge, drift=drift, pseudo_labels=pseudo)
    looser = ridge_error_bound(pair, Y, ridge=ridge, drift=(0.9 * drift, 1.1 * drift), pseudo_labels=pseudo)
    for bound in (measured, assumed, looser):
        assert bound.lower - 1e-6 <= error <= bound.upper + 1e-6
        assert 0.0 <= bound.certificate <= bound.lower + 1e-6
        assert bound.upper == 1.0 or bound.full_row_rank
    assert looser.lower <= measured.lower + 1e-6
    assert assumed.lower <= measured.lower + 1e-6
    assert looser.upper >= measured.upper - 1e-6


@pytest.mark.parametrize("relative", [0.1, 1.0, 30.0])
def test_both_ends_are_attained_on_a_flat_spectrum(relative):
    """All gains are equal, theta is zero outside and drift is none: what moves the weights is mistakes alone."""
    rng = np.random.default_rng(0)
    X_ood = 3.0 * haar(rng, 9, 6).T
    Y_ood = np.eye(3)[[0, 1, 2, 0, 1, 2]]
    ridge = relative * 9.0 / 6
    pseudo = Y_ood[[0, 1, 2, 0, 2, 1]]
    ideal = _ridge_fit(X_ood, Y_ood, ridge)
    bound = ridge_error_bound(np.eye(9), ideal, X_ood, ridge=ridge, Y_ood=Y_ood, pseudo_labels=pseudo)
    assert bound.drift[0] == pytest.approx(0.0, abs=1e-12)
    assert (bound.lower, bound.upper, bound.error) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert bound.certificate == pytest.approx(1 / 3 if relative == 1.0 else bound.certificate)
    assert (bound.certificate < 0.33) == (relative != 1.0)


def test_the_projnorm_is_that_of_the_pair_with_the_ridge_on_the_gram_matrix():
    rng = np.random.default_rng(0)
    X, X_ood, Y = rng.standard_normal((6, 20)), rng.standard_normal((5, 20)), _labels(rng, 6, 3)
    pair, pseudo = LinearPair.from_features(X, X_ood), _labels(rng, 5, 3)
    bound = ridge_error_bound(pair, Y, ridge=0.3, drift=10.0, pseudo_labels=pseudo, train_ridge=0.2)
    same = projnorm_linear_of_pair(pair, Y, ridge=(6 * 0.2, 5 * 0.3), pseudo_labels=pseudo)
    assert bound.projnorm == pytest.approx(same.value)
    gram = LinearPair.from_gram(X @ X.T, X_ood @ X.T, X_ood @ X_ood.T)
    again = ridge_error_bound(gram, Y, ridge=0.3, drift=10.0, pseudo_labels=pseudo, train_ridge=0.2)
    assert (again.projnorm, again.lower, again.upper) == pytest.approx((bound.projnorm, bound.lower, bound.upper))


@pytest.mark.parametrize("classes", [1, 3])
def test_the_default_pseudo_labels_are_the_predicted_classes(classes):
    rng = np.random.default_rng(0)
    X, X_ood, Y = rng.standard_normal((6, 20)), rng.standard_normal((5, 20)), _labels(rng, 6, classes)
    scores = X_ood @ np.linalg.pinv(X) @ Y
    hard = np.sign(scores) if classes == 1 else np.eye(classes)[np.argmax(scores, axis=1)]
    default = ridge_error_bound(X, Y, X_ood, ridge=0.1, Y_ood=_labels(rng, 5, classes)).projnorm
    named = ridge_error_bound(X, Y, X_ood, ridge=0.1, drift=99.0, pseudo_labels=hard).projnorm
    assert default == pytest.approx(named)


def test_dependent_rows_let_mistakes_cancel_so_there_is_no_upper_end():
    """Two copies of one input with two different labels: swapping the labels moves nothing."""
    X_ood, Y_ood = np.array([[1.0, 0.0], [1.0, 0.0]]), np.eye(2)
    bound = ridge_error_bound(np.eye(2), np.eye(2), X_ood, ridge=0.1, Y_ood=Y_ood, pseudo_labels=Y_ood[::-1])
    assert (bound.error, bound.mistakes, bound.lower, bound.upper) == (1.0, pytest.approx(0.0), pytest.approx(0.0), 1.0)
    assert not bound.full_row_rank
    assert any("dependent" in words for words in bound.assumptions)


@given(st.integers(1, 8).flatmap(lambda size: spectra(size, 3.0)), generators, st.floats(-6.0, 6.0))
def test_no_ridge_balances_better_than_the_geometric_mean_of_the_extreme_eigenvalues(values, rng, log_factor):
    size = values.size
    pair = LinearPair.from_features(np.eye(1, size), (haar(rng, size, size) * values) @ haar(rng, size, size).T)
    balance = balancing_ridge(pair)
    eigenvalues = values**2 / size

    def condition(ridge: float) -> float:
        gains = eigenvalues / (eigenvalues + ridge) ** 2
        return float(gains.max() / gains.min())

    assert balance.condition == pytest.approx(condition(balance.ridge), rel=1e-6)
    assert balance.condition <= condition(balance.ridge * 10.0**log_factor) * (1 + 1e-6)
    assert balance.condition <= balance.condition_bound * (1 + 1e-6)
    assert balance.unregularised == pytest.approx(condition(0.0), rel=1e-6)
    assert condition(1e9 * balance.ridge) == pytest.approx(balance.unregularised, rel=1e-2)


def test_the_bound_on_the_condition_is_attained_when_an_eigenvalue_is_the_ridge():
    balance = balancing_ridge(LinearPair.from_features(np.eye(3), np.diag([4.0, 2.0, 1.0])))
    assert balance.condition == pytest.approx(balance.condition_bound)


@given(labelled_sets(), st.floats(0.0, 0.99))
def test_a_drift_below_the_distance_to_the_shifted_row_space_is_refused(data, share):
    X, Y, X_ood, _, pseudo, ridge = data
    pair = LinearPair.from_features(X, X_ood)
    outside = projnorm_linear_of_pair(pair, Y).value
    assume(outside > 1e-6)
    with pytest.raises(
        ValueError, match=r"`drift` must be at least .*, the distance of theta to the row space of `X_ood`"
    ):
        ridge_error_bound(pair, Y, ridge=ridge, drift=share * outside, pseudo_labels=pseudo)


def test_a_drift_that_even_wrong_labels_throughout_could_not_explain_is_refused_with_the_possible_ones():
    """Theta = 5 is fitted to the label 1 with l = b = 1: p = 4.5, and a wrong label moves the fit by 1."""
    options = {"ridge": 1.0, "pseudo_labels": [1.0]}
    for drift in (3.4, (5.6, 9.0)):
        with pytest.raises(ValueError, match=r"`drift` must lie between 3\.5 and 5\.5: .*ProjNormLinear of 4\.5; got"):
            ridge_error_bound([[1.0]], [5.0], [[1.0]], drift=drift, **options)
    assert ridge_error_bound([[1.0]], [5.0], [[1.0]], drift=3.5, **options).lower == pytest.approx(1.0)
    assert ridge_error_bound([[1.0]], [5.0], [[1.0]], drift=(5.5, 9.0), **options).lower == pytest.approx(1.0)


def test_an_enormous_ridge_does_not_overflow():
    bound = ridge_error_bound([[1.0]], [5.0], [[1.0]], drift=5.0, ridge=1e300)
    assert (bound.lower, bound.upper) == (0.0, 1.0)


X, Y, X_OOD, Y_OOD = np.eye(2, 4), np.eye(2), np.eye(3, 4), np.eye(2)[[0, 1, 1]]


def test_the_text_leads_with_the_ends():
    text = str(ridge_error_bound(X, Y, X_OOD, ridge=1.0, Y_ood=Y_OOD))
    assert text.startswith("error from ")
    assert "measured" in text
