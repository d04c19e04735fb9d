"""The pair of row spaces: the same from features and from Gram blocks, and honest about its rounding."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given

from projnorm_theory import LinearPair, RowSpace, min_norm_solution, ood_loss, proposition_bound
from projnorm_theory.gram_space import GramSpace
from simulations.designs import haar
from tests.strategies import general_designs


@given(general_designs())
def test_cosines_and_sines_are_orthonormal_together(design):
    pair = LinearPair.from_features(design.X, design.X_ood)
    for cosines, sines in ((pair.cosines, pair.train_sines), (pair.cosines.T, pair.ood_sines)):
        stacked = np.vstack([cosines, sines])
        np.testing.assert_allclose(stacked.T @ stacked, np.eye(cosines.shape[1]), atol=1e-12)


@given(general_designs())
def test_the_gram_route_sees_the_same_spectra_and_angles(design):
    X, X_ood = design.X, design.X_ood
    of_features, of_gram = (
        LinearPair.from_features(X, X_ood),
        LinearPair.from_gram(X @ X.T, X_ood @ X.T, X_ood @ X_ood.T),
    )
    assert (of_gram.train_rank, of_gram.ood_rank) == (of_features.train_rank, of_features.ood_rank)
    np.testing.assert_allclose(of_gram.train_singular_values, of_features.train_singular_values, rtol=1e-8)
    for name in ("cosines", "train_sines", "ood_sines"):
        ours, theirs = (np.linalg.svd(getattr(p, name), compute_uv=False) for p in (of_gram, of_features))
        size = min(ours.size, theirs.size)
        np.testing.assert_allclose(ours[:size], theirs[:size], atol=of_gram.sine_error + 1e-9)
    ours, theirs = of_gram.ood_directions(), of_features.ood_directions()
    assert ours.free.shape == theirs.free.shape
    assert theirs.uncertain.shape[1] == 0
    # Gram matrices see no sine below the root of eps: what features call shared is uncertain there.
    assert ours.free.shape[1] + ours.uncertain.shape[1] == of_gram.ood_rank


@given(general_designs())
def test_fit_and_loss_agree_with_features(design):
    pair = LinearPair.from_features(design.X, design.X_ood)
    fit = pair.fit(design.Y)
    theta = min_norm_solution(design.X, design.Y).theta
    np.testing.assert_allclose(RowSpace.from_matrix(design.X).basis @ fit.coordinates, theta, atol=1e-9 * fit.norm)
    assert fit.norm == pytest.approx(np.linalg.norm(theta), rel=1e-9)
    assert fit.interpolates
    loss = ood_loss(theta, design.X_ood, design.Y_ood)
    scale = np.linalg.norm(design.Y_ood) ** 2
    assert pair.test_loss(fit, design.Y_ood) == pytest.approx(loss, rel=1e-8, abs=1e-16 * scale)


@pytest.mark.parametrize("log_condition", [0, 3, 6, 8])
def test_shared_directions_are_found_whatever_the_conditioning(log_condition):
    rng = np.random.default_rng(0)
    frame = haar(rng, 200, 90)
    spectrum = np.logspace(0, -log_condition, 50)
    X = haar(rng, 50, 50) * spectrum @ frame[:, :50].T
    X_ood = haar(rng, 50, 50) * spectrum @ (frame[:, 40:] @ haar(rng, 50, 50)).T
    pair = LinearPair.from_features(X, X_ood)
    sines = np.linalg.svd(pair.ood_sines, compute_uv=False)
    directions = pair.ood_directions()
    assert directions.free.shape[1] == 40
    assert sines[40:].max() <= pair.sine_error
    assert directions.tolerance < 1e-5
    if log_condition < 6:
        assert directions.uncertain.shape[1] == 0


def test_blocks_of_different_features_are_refused():
    rng = np.random.default_rng(0)
    X, X_ood = rng.standard_normal((6, 15)), rng.standard_normal((4, 15))
    with pytest.raises(ValueError, match="`k_ood_train` does not fit `k_train` and `k_ood`"):
        LinearPair.from_gram(X @ X.T, 3 * X_ood @ X.T, X_ood @ X_ood.T)


def test_zero_inputs_make_an_empty_but_usable_pair():
    X = np.eye(2, 4)
    for pair in (
        LinearPair.from_features(np.zeros((2, 4)), X),
        LinearPair.from_features(X, np.zeros((3, 4))),
        LinearPair.from_gram(np.zeros((2, 2)), np.zeros((2, 2)), np.eye(2)),
        LinearPair.from_gram(np.eye(2), np.zeros((3, 2)), np.zeros((3, 3))),
    ):
        interval = proposition_bound(pair, np.zeros(2), k=0)
        assert (interval.lower, interval.upper) == (0.0, 0.0)
        assert pair.ood_directions().free.shape[0] == pair.ood_rank


def test_responses_barely_outside_the_column_space_do_not_count_as_interpolated():
    rng = np.random.default_rng(0)
    X, X_ood = rng.standard_normal((9, 4)), rng.standard_normal((3, 4))
    inside = X @ rng.standard_normal(4)
    outside = rng.standard_normal(9)
    outside -= X @ np.linalg.lstsq(X, outside)[0]
    pair = LinearPair.from_features(X, X_ood)
    assert pair.fit(inside).interpolates
    assert not pair.fit(inside + 1e-7 * outside).interpolates


def test_exact_responses_interpolate_on_an_ill_conditioned_tall_pair():
    rng = np.random.default_rng(0)
    X = haar(rng, 9, 4) * np.array([1.0, 1e-2, 1e-4, 1e-5]) @ haar(rng, 4, 4).T
    X_ood, theta = rng.standard_normal((3, 4)), rng.standard_normal(4)
    for pair in (LinearPair.from_features(X, X_ood), LinearPair.from_gram(X @ X.T, X_ood @ X.T, X_ood @ X_ood.T)):
        assert pair.fit(X @ theta).interpolates


def test_known_noise_of_the_blocks_travels_with_the_pair():
    rng = np.random.default_rng(0)
    X, X_ood = rng.standard_normal((6, 20)), rng.standard_normal((5, 20))
    blocks = X @ X.T, X_ood @ X.T, X_ood @ X_ood.T
    plain, coarse = LinearPair.from_gram(*blocks), LinearPair.from_gram(*blocks, noise=1e-6)
    assert plain.noise < 1e-13
    assert coarse.noise == 1e-6
    assert coarse.sine_error == pytest.approx(plain.sine_error * math.sqrt(1e-6 / plain.noise))
    # A direction below the noise is cut.
    K = np.diag([1.0, 1e-7])
    assert LinearPair.from_gram(K, K, K).train_rank == 2
    assert LinearPair.from_gram(K, K, K, noise=1e-6).train_rank == 1
    with pytest.raises(ValueError, match="`noise`"):
        LinearPair.from_gram(K, K, K, noise=-1.0)


def test_factored_gram_matrices_give_the_same_pair():
    rng = np.random.default_rng(1)
    X, X_ood, Y = rng.standard_normal((6, 20)), rng.standard_normal((5, 20)), rng.standard_normal((6, 2))
    whole = LinearPair.from_gram(X @ X.T, X_ood @ X.T, X_ood @ X_ood.T)
    train, ood = GramSpace.from_gram(X @ X.T), GramSpace.from_gram(X_ood @ X_ood.T)
    parts = LinearPair.from_gram_spaces(train, ood, X_ood @ X.T)
    np.testing.assert_array_equal(parts.cosines, whole.cosines)
    fit = parts.fit(Y)
    theta = np.linalg.pinv(X) @ Y
    np.testing.assert_allclose(parts.ood_predictions(fit.coordinates), X_ood @ theta, atol=1e-10)
    ridged = X.T @ np.linalg.solve(X @ X.T + 0.5 * np.eye(6), Y)
    np.testing.assert_allclose(parts.ood_predictions(parts.ridge_coordinates(fit, 0.5)), X_ood @ ridged, atol=1e-10)
