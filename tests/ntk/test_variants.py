"""Variants of ProjNormLinear on kernels, against features that were changed before the kernel was formed."""

from __future__ import annotations

import numpy as np
import pytest

from ntk.variants import PLAIN, VARIANTS, Blocks, Variant, variant_values
from projnorm_theory import projnorm_linear_from_gram

RNG = np.random.default_rng(0)
X, X_OOD = RNG.standard_normal((8, 40)) + 0.5, 2.0 * RNG.standard_normal((6, 40))
Y, NETWORK = RNG.standard_normal((8, 3)), RNG.standard_normal((6, 3))


def blocks(a: np.ndarray, b: np.ndarray) -> Blocks:
    return Blocks(a @ a.T, b @ a.T, b @ b.T)


def changed(features: str) -> tuple[np.ndarray, np.ndarray]:
    a, b = X, X_OOD
    if features.startswith("unit"):
        a, b = (z / np.linalg.norm(z, axis=1, keepdims=True) for z in (a, b))
    if features.endswith("centred"):
        a, b = a - a.mean(axis=0), b - a.mean(axis=0)
    return a, b


@pytest.mark.parametrize("features", ["raw", "centred", "unit", "unit-centred"])
def test_blocks_are_those_of_changed_features(features):
    found, expected = blocks(X, X_OOD).of(features), blocks(*changed(features))
    for part in ("train", "ood_train", "ood"):
        np.testing.assert_allclose(getattr(found, part), getattr(expected, part), atol=1e-12)


@pytest.mark.parametrize("labels", ["kernel", "network"])
@pytest.mark.parametrize("features", ["raw", "unit-centred"])
def test_a_variant_is_the_distance_between_two_ridge_regressions(features, labels):
    a, b = changed(features)
    ridges = [0.1 * np.trace(z @ z.T) / len(z) for z in (a, b)]
    theta = a.T @ np.linalg.solve(a @ a.T + ridges[0] * np.eye(8), Y)
    target = NETWORK if labels == "network" else b @ theta
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
