"""Shifted images, and draws of samples in other class shares."""

from __future__ import annotations

import numpy as np
import pytest

from projnorm.data.corruptions.families import FAMILIES, corrupt
from projnorm.data.datasets import digits
from projnorm.data.transformations import TRANSFORMATIONS
from projnorm.estimate.calibration_sets import CalibrationSets, family_of, given_sets
from projnorm.estimate.shifted_images import image_shifts, is_images, other_shares, shifted_images
from projnorm.outputs.outputs import Outputs
from tests.small import gaussian_outputs


def test_float_images_with_colours_first_are_shifted_as_bytes_are():
    images = digits().test.images[:2]
    floats = np.moveaxis(images, 3, 1).astype(np.float32) / 255.0
    assert is_images(images)
    assert is_images(floats)
    assert not is_images(floats * 2.0)
    assert not is_images(images[..., :1])
    assert not is_images(np.zeros((3, 4)))
    assert not is_images(None)
    for of_bytes, of_floats in zip(shifted_images(images, seed=0), shifted_images(floats, seed=0), strict=True):
        assert of_bytes.name == of_floats.name
        assert of_floats.images.dtype == np.float32
        np.testing.assert_allclose(np.moveaxis(of_floats.images, 1, 3) * 255.0, of_bytes.images, atol=1e-3)


def test_every_family_is_among_the_shifts_and_changes_the_images():
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    shifts = {shift.name: shift for shift in shifted_images(images, seed=1)}
    assert len(shifts) == len(image_shifts())
    families = {shift.family for shift in shifts.values()}
    assert set(FAMILIES) | set(TRANSFORMATIONS) < families
    assert all((shift.images != images).any() for shift in shifts.values())
    np.testing.assert_array_equal(shifts["fog-3"].images, corrupt(images, "fog", 3, seed=1))
    pair = corrupt(corrupt(images, "snow", 2, seed=1), "pixelate", 2, seed=2)
    np.testing.assert_array_equal(shifts["snow and pixelate-1"].images, pair)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_other_shares_add_up_to_one(classes):
    rng = np.random.default_rng(0)
    for _ in range(20):
        drawn = other_shares(classes, rng)
        for shares in drawn:
            assert shares.shape == (classes,)
            assert shares.min() >= 0.0
            assert shares.sum() == pytest.approx(1.0)
        assert np.count_nonzero(drawn[-2]) == min(2, classes)
        assert np.count_nonzero(drawn[-1]) == max(1, classes // 2)


def test_draws_of_calibration_sets_are_in_their_own_and_in_other_shares():
    rng = np.random.default_rng(0)
    sets = tuple(gaussian_outputs(300, [0.25] * 4, rng, noise=noise) for noise in (0.0, 1.0))
    calibration = CalibrationSets(sets, np.array(["a", "b"]), "given")
    assert calibration.size == 300
    draws, again = (calibration.draws(100, seed=0) for _ in range(2))
    assert [draw.family for draw in draws if not draw.has_other_shares] == ["a", "b"]
    assert sum(draw.has_other_shares for draw in draws) >= 6
    for draw, same in zip(draws, again, strict=True):
        np.testing.assert_array_equal(draw.indices, same.indices)
        assert len(draw.indices) <= 100
        assert draw.error == draw.outputs.error
    assert any((a.indices.shape != b.indices.shape) or (a.indices != b.indices).any()
               for a, b in zip(draws, calibration.draws(100, seed=1), strict=False))  # fmt: skip


def test_families_by_name():
    families = {"fog-1": "fog", "fog-12": "fog", "motion-blur-3": "motion-blur", "night": "night", "v-x": "v-x"}
    assert {name: family_of(name) for name in families} == families
    one = Outputs(np.eye(3), labels=np.arange(3), name="one")
    with pytest.raises(ValueError, match="two labelled sets or more; got 1"):
        given_sets({"one": one}, one)
    with pytest.raises(ValueError, match="two: a calibration set must have labels"):
        given_sets({"one": one, "two": Outputs(np.eye(3), name="two")}, one)
