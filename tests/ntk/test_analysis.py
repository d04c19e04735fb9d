"""The theory on kernels equals the theory on the features they come from, and so do variants of ProjNormLinear."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from ntk.experiments.analysis import Responses, analyse_target, analyse_train, predict_target
from ntk.experiments.variants import PLAIN, VARIANTS, KernelBlocks, Variant, variant_values
from projnorm.core.errors import InputError
from projnorm_theory import (
    LinearPair,
    alignment,
    generalised_bound,
    min_norm_solution,
    projnorm_linear,
    projnorm_linear_from_gram,
    sharp_interval,
    spectrum,
)

CLASSES = 3


@pytest.fixture
def drawn():
    rng = np.random.default_rng(0)
    X, X_ood = rng.normal(size=(20, 90)) * np.arange(1, 91) ** -0.5, rng.normal(size=(16, 90))
    return X, X_ood, rng.integers(CLASSES, size=20), rng.integers(CLASSES, size=16)


def analysed(drawn, **options):
    X, X_ood, labels, labels_ood = drawn
    responses = Responses.from_labels(labels, CLASSES)
    train = analyse_train(X @ X.T, responses)
    return train, analyse_target(train, X_ood @ X.T, X_ood @ X_ood.T, labels_ood, **options), responses


def test_responses_are_centred_one_hot_rows():
    responses = Responses.from_labels(np.array([0, 0, 1, 2]), CLASSES)
    np.testing.assert_allclose(responses.train.sum(axis=0), 0.0, atol=1e-15)
    np.testing.assert_allclose(responses.centre, [0.5, 0.25, 0.25])
    np.testing.assert_allclose(responses.ood(np.array([1]))[0], [-0.5, 0.75, -0.25])


# Labels that are none of the classes 0, 1 and 2, and the words of the refusal.
BAD_LABELS = [
    ([0, 1, 3, 0], "`labels` must be from 0 to 2; they run from 0 to 3"),
    ([0, -1, 2, 0], "`labels` must be from 0 to 2; they run from -1 to 2"),
    ([0.0, 1.0, 2.0, 0.5], r"`labels` must be whole numbers, one per sample; got float64 of shape \(4,\)"),
    ([0.0, 1.0, 2.0, np.nan], "`labels` must be whole numbers"),
    (["0", "1", "2", "0"], "`labels` must be whole numbers, one per sample; got <U1"),
    ([True, False, True, True], "`labels` must be whole numbers, one per sample; got bool"),
    ([None, 1, 2, 0], "`labels` must be whole numbers, one per sample; got object"),
]


@pytest.mark.parametrize(("labels", "words"), BAD_LABELS)
def test_labels_that_are_no_classes_are_refused_everywhere(labels, words):
    responses = Responses.from_labels([0, 1, 2], CLASSES)
    train, X_ood = analyse_train(np.eye(3), responses), np.eye(4, 3)
    blocks = X_ood, X_ood @ X_ood.T
    for use in (
        lambda: Responses.from_labels(labels, CLASSES),
        lambda: responses.ood(labels),
        lambda: analyse_target(train, *blocks, labels),
        lambda: predict_target(train, *blocks, labels),
    ):
        with pytest.raises(InputError, match=words):
            use()


@given(st.lists(st.integers(-3, 6), min_size=1, max_size=8))
def test_responses_are_made_of_whole_numbers_in_range_and_of_nothing_else(labels):
    if set(labels) <= set(range(CLASSES)):
        found = Responses.from_labels(labels, CLASSES)
        np.testing.assert_array_equal((found.train + found.centre).argmax(axis=1), labels)
    else:
        with pytest.raises(InputError, match="`labels` must be from 0 to 2"):
            Responses.from_labels(labels, CLASSES)


@pytest.mark.parametrize("classes", [1, 0, -2, 3.0, "3", True, None])
def test_a_number_of_classes_is_a_whole_number_from_two(classes):
    with pytest.raises(InputError, match="`classes` must be a whole number of at least 2"):
        Responses.from_labels([0, 0], classes)


@pytest.mark.parametrize("labels", [[0, 1], [[0], [1], [2], [0]], 1, []])
def test_labels_are_one_per_sample(labels):
    train, X_ood = analyse_train(np.eye(3), Responses.from_labels([0, 1, 2], CLASSES)), np.eye(4, 3)
    for use in (analyse_target, predict_target):
        with pytest.raises(InputError, match="`labels` must be 4, one per sample of the target; got"):
            use(train, X_ood, X_ood @ X_ood.T, labels)
    for wrong in ([[0], [1]], 1, []):
        with pytest.raises(InputError, match="`labels` must be whole numbers, one per sample"):
            Responses.from_labels(wrong, CLASSES)


def test_without_labels_all_that_needs_none_stays_the_same(drawn):
    X, X_ood, labels, labels_ood = drawn
    train = analyse_train(X @ X.T, Responses.from_labels(labels, CLASSES))
    blocks = X_ood @ X.T, X_ood @ X_ood.T
    known, unknown = analyse_target(train, *blocks, labels_ood), analyse_target(train, *blocks, None)
    assert all(np.isnan(value) for value in (unknown.rho, unknown.eta, unknown.test_loss, unknown.prediction.error))
    assert (unknown.generalised, unknown.sharp, unknown.joint) == (None, None, None)
    np.testing.assert_array_equal(unknown.prediction.predicted, known.prediction.predicted)
    np.testing.assert_array_equal(unknown.alignment.matrix, known.alignment.matrix)
    for name in ("projnorm", "projnorm_error", "theta_norm"):
        assert getattr(unknown.prediction, name) == getattr(known.prediction, name)
    for name in ("proposition", "spherical"):
        ends = [(getattr(one, name).lower, getattr(one, name).upper) for one in (known, unknown)]
        assert ends[0] == ends[1]
    assert (unknown.overlap, unknown.warnings) == (known.overlap, known.warnings)
    alone = predict_target(train, *blocks)
    assert alone.projnorm == known.prediction.projnorm
    assert np.isnan(alone.error)


def test_kernels_tell_what_features_tell(drawn):
    X, X_ood, _, labels_ood = drawn
    train, found, responses = analysed(drawn)
    Y, Y_ood = responses.train, responses.ood(labels_ood)
    theta = min_norm_solution(X, Y).theta
    outputs = X_ood @ theta
    assert found.prediction.projnorm == pytest.approx(projnorm_linear(theta, X_ood).value, rel=1e-6)
    assert found.prediction.theta_norm == pytest.approx(np.linalg.norm(theta), rel=1e-8)
    assert found.test_loss == pytest.approx(np.sum((outputs - Y_ood) ** 2) / 16, rel=1e-8)
    np.testing.assert_array_equal(found.prediction.predicted, (outputs + responses.centre).argmax(axis=1))
    assert found.prediction.error == np.mean(found.prediction.predicted != labels_ood)
    np.testing.assert_allclose(train.eigenvalues, spectrum(X).eigenvalues, rtol=1e-8)
    np.testing.assert_allclose(found.eigenvalues, spectrum(X_ood).eigenvalues, rtol=1e-8)
    np.testing.assert_allclose(found.alignment.matrix, alignment(X, X_ood, 16).matrix, atol=1e-6)
    pair = LinearPair.from_features(X, X_ood)
    rho = np.linalg.norm(np.linalg.pinv(X_ood) @ Y_ood) / np.linalg.norm(theta)
    assert found.rho == pytest.approx(rho, rel=1e-8)
    for ours, direct in (
        (found.generalised, generalised_bound(pair, Y, k=0, rho=rho)),
        (found.sharp, sharp_interval(pair, Y, rho=rho)),
    ):
        assert ours is not None
        assert (ours.lower, ours.upper) == pytest.approx((direct.lower, direct.upper), rel=1e-5)
        assert ours.lower <= found.test_loss <= ours.upper
    assert found.warnings == ()
    assert train.warning == ""


def test_a_ridge_is_the_ridge_regression_of_kernels(drawn):
    X, X_ood, labels, labels_ood = drawn
    _, found, responses = analysed(drawn, ridge=0.7)
    K = X @ X.T
    alpha = np.linalg.solve(K + 0.7 * np.eye(20), responses.train)
    np.testing.assert_array_equal(found.prediction.predicted, (X_ood @ X.T @ alpha + responses.centre).argmax(axis=1))
    theta = X.T @ alpha
    relearnt = X_ood.T @ np.linalg.solve(X_ood @ X_ood.T + 0.7 * np.eye(16), X_ood @ theta)
    assert found.prediction.projnorm == pytest.approx(np.linalg.norm(theta - relearnt), rel=1e-6)
    assert found.prediction.ridge == 0.7
    train = analyse_train(K, Responses.from_labels(labels, CLASSES))
    alone = predict_target(train, X_ood @ X.T, X_ood @ X_ood.T, labels_ood, ridge=0.7)
    assert alone.projnorm == found.prediction.projnorm


def test_a_warning_of_a_tail_lost_in_single_precision_names_the_remedy():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(30, 40)) @ np.diag(10.0 ** -np.linspace(0, 6, 40))
    coarse = (X.astype(np.float32) @ X.astype(np.float32).T).astype(np.float64)
    responses = Responses.from_labels(np.arange(30) % CLASSES, CLASSES)
    train = analyse_train((coarse + coarse.T) / 2, responses, accumulate="float32")
    assert "numerical rank" in train.warning
    assert "`accumulate` float64" in train.warning
    small = analyse_train(np.diag([1.0, 1e-5]), responses, accumulate="float32").warning
    assert small.startswith("eigenvalues below 1.69e-05 may be due to rounding; the smallest is 1e-05; products in")
    assert "float64" not in analyse_train(X @ X.T, responses, accumulate="float64").warning


def test_without_a_sharp_interval_the_reason_is_given_and_blocks_of_other_features_are_refused(drawn):
    X, X_ood, *labels = drawn
    train, found, _ = analysed((X[:, :12], X_ood[:, :12], *labels))
    assert found.sharp is None
    assert any("no sharp interval: " in warning for warning in found.warnings)
    assert any("numerical rank 12 of 16" in warning for warning in found.warnings)
    with pytest.raises(ValueError, match="`k_ood_train` does not fit"):
        analyse_target(train, 5 * X_ood @ X.T, X_ood @ X_ood.T, labels[1])


RNG = np.random.default_rng(0)
X, X_OOD = RNG.standard_normal((8, 40)) + 0.5, 2.0 * RNG.standard_normal((6, 40))
Y, NETWORK = RNG.standard_normal((8, 3)), RNG.standard_normal((6, 3))


def blocks(a: np.ndarray, b: np.ndarray) -> KernelBlocks:
    return KernelBlocks(a @ a.T, b @ a.T, b @ b.T)


def changed(features: str) -> tuple[np.ndarray, np.ndarray]:
    a, b = X, X_OOD
    if features.startswith("unit"):
        a, b = (z / np.linalg.norm(z, axis=1, keepdims=True) for z in (a, b))
    if features.endswith("centred"):
        a, b = a - a.mean(axis=0), b - a.mean(axis=0)
    return a, b


@pytest.mark.parametrize("features", ["raw", "centred", "unit", "unit-centred"])
def test_blocks_are_those_of_changed_features(features):
    found, expected = blocks(X, X_OOD).with_features(features), blocks(*changed(features))
    for part in ("train", "ood_train", "ood"):
        np.testing.assert_allclose(getattr(found, part), getattr(expected, part), atol=1e-12)


@pytest.mark.parametrize("labels", ["kernel", "kernel, as classes", "network"])
@pytest.mark.parametrize("features", ["raw", "unit-centred"])
def test_a_variant_is_the_distance_between_two_ridge_regressions(features, labels):
    a, b = changed(features)
    ridges = [0.1 * np.trace(z @ z.T) / len(z) for z in (a, b)]
    theta = a.T @ np.linalg.solve(a @ a.T + ridges[0] * np.eye(8), Y)
    centre = -Y.min(axis=0)
    classes = np.eye(Y.shape[1])[(b @ theta + centre).argmax(axis=1)] - centre
    target = {"network": NETWORK, "kernel": b @ theta}.get(labels, classes)
    theta_ood = b.T @ np.linalg.solve(b @ b.T + ridges[1] * np.eye(6), target)
    found = variant_values(blocks(X, X_OOD), Y, NETWORK)[Variant(features, 0.1, labels)]
    assert found == pytest.approx(np.linalg.norm(theta - theta_ood), rel=1e-6)


def test_the_plain_variant_is_projnorm_linear_and_all_are_different():
    kernel = blocks(X, X_OOD)
    found = variant_values(kernel, Y, NETWORK)
    plain = projnorm_linear_from_gram(kernel.train, Y, kernel.ood_train, kernel.ood).value
    assert found[PLAIN] == pytest.approx(plain, rel=1e-9)
    assert list(found) == list(VARIANTS)
    assert len({round(value, 9) for value in found.values()}) == len(VARIANTS)
    assert len({str(variant) for variant in VARIANTS}) == len(VARIANTS)


def test_a_centred_kernel_is_as_coarse_as_the_one_it_was_made_from():
    kernel = blocks(X + 100.0, X_OOD + 100.0)
    raw, centred = (kernel.noise(features, "float32") for features in ("raw", "centred"))
    assert centred > 100 * raw
    assert kernel.noise("unit", "float32") == pytest.approx(blocks(*changed("unit")).noise("raw", "float32"), rel=10)
