"""Spectra, decay, alignment and angles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from projnorm_theory import (
    LinearPair,
    alignment,
    fit_power_law,
    principal_angles,
    spectrum,
)
from projnorm_theory.gram_space import GramSpace
from simulations import spectral_design
from simulations.designs import haar
from tests.strategies import general_designs, matrices, shared_span_designs


@given(matrices())
def test_spectrum_agrees_with_the_eigenvalues_of_the_second_moment(X):
    expected = np.sort(np.linalg.eigvalsh(X.T @ X))[::-1]
    result = spectrum(X)
    assert result.rank == np.linalg.matrix_rank(X)
    assert result.n_examples == len(X)
    np.testing.assert_allclose(result.eigenvalues, expected[: result.rank], atol=1e-12 * expected[0])


@given(matrices(decades=2.0))
def test_the_spectrum_of_a_gram_matrix_agrees_with_that_of_features(X):
    of_gram, of_features = GramSpace.from_gram(X @ X.T), spectrum(X)
    assert of_gram.rank == of_features.rank
    largest = of_features.eigenvalues[0]
    np.testing.assert_allclose(of_gram.singular_values**2, of_features.eigenvalues, atol=1e-12 * largest)


def test_small_singular_values_survive_in_features_and_drop_out_of_the_gram_matrix():
    rng = np.random.default_rng(0)
    X = haar(rng, 4, 4) * np.array([1.0, 1e-3, 1e-6, 1e-10]) @ haar(rng, 9, 4).T
    np.testing.assert_allclose(np.sqrt(spectrum(X).eigenvalues), [1.0, 1e-3, 1e-6, 1e-10], rtol=1e-5)
    assert GramSpace.from_gram(X @ X.T).rank == 3
    assert GramSpace.from_gram(X @ X.T, rcond=1e-2).rank == 1


def test_spectrum_of_a_zero_matrix_is_empty():
    empty = spectrum(np.zeros((2, 3)))
    assert empty.rank == 0
    assert np.isnan(empty.condition)
    assert GramSpace.from_gram(np.zeros((2, 2))).rank == 0


def test_a_coarsely_rounded_gram_matrix_is_cut_at_its_own_noise():
    rng = np.random.default_rng(0)
    X = haar(rng, 60, 60) * np.logspace(0, -5, 60) @ haar(rng, 200, 60).T
    K32 = (X.astype(np.float32) @ X.astype(np.float32).T).astype(np.float64)
    K32 = (K32 + K32.T) / 2
    assert np.linalg.eigvalsh(K32).min() < -1e-9
    rank = GramSpace.from_gram(K32).rank
    true = np.logspace(0, -10, 60)[:rank]
    np.testing.assert_allclose(GramSpace.from_gram(K32).singular_values ** 2, true, rtol=1.0)
    assert rank < 60


@given(st.floats(0.2, 3.0), st.floats(1e-6, 1e6), st.integers(3, 200), st.integers(1, 20))
def test_an_exact_power_law_is_recovered(exponent, prefactor, size, first):
    eigenvalues = prefactor * np.arange(1, size + first) ** -exponent
    fit = fit_power_law(eigenvalues, first=first)
    assert fit.exponent == pytest.approx(exponent, rel=1e-6)
    assert fit.prefactor == pytest.approx(prefactor, rel=1e-5)
    assert fit.r_squared == pytest.approx(1.0, abs=1e-6)
    assert (fit.first, fit.last) == (first, eigenvalues.size)
    assert fit.low <= fit.exponent <= fit.high


@pytest.mark.parametrize("memory", [0.0, 0.6], ids=["independent", "correlated"])
def test_the_confidence_interval_covers_the_exponent(memory):
    rng = np.random.default_rng(0)
    index = np.arange(1, 301)
    covered = 0
    for _ in range(300):
        noise = rng.standard_normal(index.size)
        for i in range(1, noise.size):
            noise[i] += memory * noise[i - 1]
        eigenvalues = index**-1.5 * np.exp(0.002 * noise / index)
        fit = fit_power_law(np.sort(eigenvalues)[::-1])
        covered += fit.low <= 1.5 <= fit.high
    # Few leading eigenvalues carry the noise here, so some under-coverage of the 95 % level is expected.
    assert covered / 300 >= 0.85


def test_a_flat_spectrum_has_exponent_zero():
    fit = fit_power_law(np.ones(10))
    assert fit.exponent == pytest.approx(0.0, abs=1e-12)
    assert np.isnan(fit.r_squared)


@given(general_designs())
def test_alignment_is_the_matrix_of_cosines_and_obeys_bessel(design):
    result = alignment(design.X, design.X_ood)
    _, s, Ut = np.linalg.svd(design.X, full_matrices=False)
    _, t, Vt = np.linalg.svd(design.X_ood, full_matrices=False)
    k = min(np.sum(s > 1e-10 * s[0]), np.sum(t > 1e-10 * t[0]))
    assert result.matrix.shape == (k, k)
    np.testing.assert_allclose(result.matrix, np.abs(Vt[:k] @ Ut[:k].T), atol=1e-9)
    assert result.bessel <= 1 + 1e-12
    assert np.all(result.matrix <= 1 + 1e-12)
    by_hand = [np.linalg.norm(Vt[:j] @ Ut[:j].T) ** 2 / j for j in range(1, k + 1)]
    np.testing.assert_allclose(result.overlap, by_hand, atol=1e-9)


def test_alignment_from_gram_blocks_agrees_with_features():
    rng = np.random.default_rng(0)
    X, X_ood = rng.standard_normal((6, 15)), rng.standard_normal((4, 15))
    of_gram = alignment(LinearPair.from_gram(X @ X.T, X_ood @ X.T, X_ood @ X_ood.T), k=3)
    np.testing.assert_allclose(of_gram.matrix, alignment(X, X_ood, 3).matrix, atol=1e-10)
    np.testing.assert_allclose(of_gram.overlap, alignment(LinearPair.from_features(X, X_ood), k=3).overlap, atol=1e-10)


@given(shared_span_designs(orthogonal_tails=False))
def test_shared_spans_have_overlap_one_and_angle_zero_at_the_true_k(design):
    assert alignment(design.X, design.X_ood, design.k).overlap[-1] == pytest.approx(1.0, abs=1e-10)
    assert principal_angles(design.X, design.X_ood, design.k).max() <= 1e-8


@pytest.mark.parametrize("tilt", [1e-9, 1e-4, 0.3, 1.2, np.pi / 2 - 1e-9])
def test_principal_angles_are_accurate_near_zero_and_near_a_right_angle(tilt):
    design = spectral_design(
        np.random.default_rng(0),
        train_singular_values=[5.0, 4.0, 1.0],
        ood_singular_values=[5.0, 4.0, 1.0],
        dim=10,
        k=2,
        span_tilt=tilt,
    )
    np.testing.assert_allclose(principal_angles(design.X, design.X_ood, 2), [tilt, tilt], atol=1e-13)


@given(general_designs())
def test_principal_angles_of_the_whole_row_spaces_match_their_cosines(design):
    pair = LinearPair.from_features(design.X, design.X_ood)
    k = min(pair.train_rank, pair.ood_rank)
    if pair.train_rank == pair.ood_rank:
        angles = principal_angles(pair)
        cosines = np.linalg.svd(pair.cosines, compute_uv=False)
        np.testing.assert_allclose(np.cos(angles), cosines, atol=1e-9)
        assert np.all(np.diff(angles) >= -1e-12)
    assert principal_angles(pair, k=0).size == 0
    assert alignment(pair, k=0).matrix.shape == (0, 0)
    assert principal_angles(pair, k=k).shape == (k,)


@pytest.mark.parametrize("cast", [False, True], ids=["as float32", "cast to float64"])
def test_the_rank_of_a_kernel_rounded_to_float32_is_right(cast):
    rng = np.random.default_rng(0)
    for _ in range(50):
        X = haar(rng, 12, 5) * rng.uniform(0.3, 1.0, 5) @ haar(rng, 40, 5).T
        K = (X @ X.T).astype(np.float32)
        assert GramSpace.from_gram(K.astype(np.float64) if cast else K).rank == 5
