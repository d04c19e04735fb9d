"""Every family of corruptions against its definition, and what all of them promise."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import pytest
from scipy import stats
from scipy.ndimage import gaussian_filter
from sklearn.datasets import load_sample_image

from projnorm.data.corruptions.draws import Draws
from projnorm.data.corruptions.families import FAMILIES, corrupt, corrupt_cached, stream_of
from projnorm.data.corruptions.spatter import canny
from projnorm.data.image_settings import PAPER_FAMILIES, PROBE_FAMILIES, SEVERITIES
from tests.data.canny_reference import canny_reference
from tests.data.corruption_reference import REFERENCES, corrupt_one_by_one, draws_of, reference

# A few hundred additions of numbers up to 255, each rounded to 53 bits.
ROUNDING = 1e-9


@cache
def photographs(count: int, height: int, width: int) -> np.ndarray:
    """Pieces of two photographs, four times smaller than they were."""
    rng = np.random.default_rng(count)
    pieces = []
    for number in range(count):
        photograph = load_sample_image("china.jpg" if number % 2 else "flower.jpg")
        top, left = rng.integers(photograph.shape[0] - 4 * height), rng.integers(photograph.shape[1] - 4 * width)
        piece = photograph[top : top + 4 * height, left : left + 4 * width]
        pieces.append(piece.reshape(height, 4, width, 4, 3).mean(axis=(1, 3)).astype(np.uint8))
    return np.stack(pieces)


def varied(height: int, width: int) -> np.ndarray:
    """Noise, a smooth picture with all shades, and a photograph."""
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, size=(height, width, 3), dtype=np.uint8)
    waves = gaussian_filter(rng.normal(size=(height, width, 3)), (3, 3, 0))
    smooth = 255 * (waves - waves.min()) / np.ptp(waves)
    return np.stack([noise, smooth.astype(np.uint8), photographs(4, height, width)[1]])


def assert_cut_from_the_reference(images, family, severity, seed):
    """What is found is the reference cut to whole numbers, except where rounding decides which side it is cut to."""
    found = corrupt(images, family, severity, seed=seed)
    assert found.dtype == np.uint8
    assert found.shape == images.shape
    for key, (image, out) in enumerate(zip(images, found, strict=True)):
        expected = reference(image, family, severity, draws_of(family, severity, seed, key))
        assert (out - expected).max() <= ROUNDING
        assert (expected - out).max() <= 1.0 + ROUNDING


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_corruption_is_its_definition_image_by_image_and_finite_on_black_and_white(family, severity):
    flat = np.stack([np.zeros((32, 32, 3), np.uint8), np.full((32, 32, 3), 255, np.uint8)])
    draws = Draws(stream_of(family, severity, 4), np.arange(2))
    assert np.isfinite(FAMILIES[family](flat / 255.0, severity - 1, draws)).all()
    assert_cut_from_the_reference(np.concatenate([flat, varied(32, 32)]), family, severity, seed=4)


@pytest.mark.parametrize("shape", [(20, 28), (35, 18)])
@pytest.mark.parametrize("family", FAMILIES)
def test_images_of_any_shape_are_corrupted_by_the_same_definition(family, shape):
    assert_cut_from_the_reference(varied(*shape), family, 3, seed=0)


@pytest.mark.parametrize("severity", [3, 5])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_subset_is_corrupted_as_the_whole(family, severity):
    images = np.random.default_rng(3).integers(0, 256, size=(150, 8, 8, 3), dtype=np.uint8)
    whole = corrupt(images, family, severity, seed=1)
    some = np.array([149, 3, 128, 127, 0])  # from both blocks of 128
    np.testing.assert_array_equal(corrupt(images[some], family, severity, seed=1, indices=some), whole[some])


def test_families_keep_their_streams():
    assert list(FAMILIES) == list(REFERENCES)
    assert len(FAMILIES) == 19
    assert set(PROBE_FAMILIES) < set(PAPER_FAMILIES) == set(FAMILIES) - {"zoom_blur"}
    streams = {stream_of(family, s, seed) for family in FAMILIES for s in SEVERITIES for seed in range(3)}
    assert len(streams) == 19 * 5 * 3


def test_noise_of_different_severities_seeds_and_images_is_independent():
    grey = np.full((2, 32, 32, 3), 128, np.uint8)
    draws = [corrupt(grey, "gaussian_noise", s, seed=seed).astype(float) for s, seed in ((4, 0), (5, 0), (5, 1))]
    flat = np.array([image.ravel() for draw in draws for image in draw])
    assert np.abs(np.corrcoef(flat) - np.eye(6)).max() < 5 / np.sqrt(flat.shape[1])


def test_counter_based_numbers_are_uniform_and_normal():
    u = Draws(3, np.arange(50)).uniforms((2000,)).ravel()
    assert stats.kstest(u, "uniform").pvalue > 1e-3
    assert 0 < u.min() < u.max() < 1
    z = Draws(3, np.arange(50)).normals((2000,)).ravel()
    assert stats.kstest(z, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 0.02


@pytest.mark.parametrize("severity", SEVERITIES)
def test_pixels_are_pillows_whatever_the_size(severity):
    for size in range(2, 65):
        images = np.random.default_rng(size).integers(0, 256, size=(1, size, size, 3), dtype=np.uint8)
        found = corrupt(images, "pixelate", severity, seed=0)
        np.testing.assert_array_equal(found, corrupt_one_by_one(images, "pixelate", severity, 0))


def liquids(count: int, height: int, width: int) -> np.ndarray:
    """Whole numbers from 0 to 255: noise of several roughnesses, with holes or in steps; the last image is flat."""
    rng = np.random.default_rng(5)
    layers = []
    for number in range(count - 1):
        waves = gaussian_filter(rng.normal(size=(height, width)), 0.5 + number % 5 / 2)
        layer = np.floor(255 * (waves - waves.min()) / np.ptp(waves))
        # Steps of 25 make gradients as large as the thresholds of Canny, and as their neighbours.
        layers.append([layer, np.where(layer < 140, 0, layer), layer // 25 * 25][number % 3])
    return np.stack([*layers, np.full((height, width), 160.0)])


def test_edges_are_those_of_a_flood_from_the_strong_ones():
    grey = liquids(31, 24, 19)
    found = canny(grey)
    np.testing.assert_array_equal(found, [canny_reference(image, 50.0, 150.0) for image in grey])
    assert 0.01 < found.mean() < 0.5
    assert not found[-1].any()
    strong = [canny_reference(image, 150.0, 150.0) for image in grey]
    assert np.sum(strong) < found.sum()  # the others are there because they touch a strong one


def test_corrupted_images_are_read_from_the_file_the_second_time(tmp_path, monkeypatch):
    images, keys = varied(8, 8), np.array([4, 0, 9])
    folder = tmp_path / "not" / "there"
    first = corrupt_cached(images, "fog", 2, seed=1, indices=keys, folder=folder)
    np.testing.assert_array_equal(first, corrupt(images, "fog", 2, seed=1, indices=keys))
    monkeypatch.setattr("projnorm.data.corruptions.families.corrupt", lambda *_, **__: pytest.fail("computed again"))
    np.testing.assert_array_equal(corrupt_cached(images, "fog", 2, seed=1, indices=keys, folder=folder), first)


def test_whatever_is_asked_differently_is_another_file(tmp_path):
    images, keys = varied(8, 8), np.arange(3)
    asked = [
        (images, "contrast", 2, 1, keys),
        (images, "fog", 2, 1, keys),
        (images, "fog", 3, 1, keys),
        (images, "fog", 2, 2, keys),
        (images, "fog", 2, 1, keys + 1),
        (images[::-1], "fog", 2, 1, keys),
        (images[:2], "fog", 2, 1, keys[:2]),
        (images.reshape(3, 4, 16, 3), "fog", 2, 1, keys),
    ]
    for _ in range(2):
        for pictures, family, severity, seed, indices in asked:
            found = corrupt_cached(pictures, family, severity, seed=seed, indices=indices, folder=tmp_path)
            np.testing.assert_array_equal(found, corrupt(pictures, family, severity, seed=seed, indices=indices))
        assert len(list(tmp_path.glob("*.json"))) == len(asked)


@pytest.mark.parametrize(
    ("family", "severity", "count", "message"),
    [
        ("fog of war", 1, 3, r"`family` must be one of gaussian_noise, .*zoom_blur; got 'fog of war'"),
        ("fog", 0, 3, "`severity` must be 1 to 5; got 0"),
        ("fog", 6, 3, "`severity` must be 1 to 5; got 6"),
        ("fog", 1, 2, r"`indices` must hold one number per image, 3; got shape \(2,\)"),
    ],
)
def test_bad_corruptions_are_refused(tmp_path, family, severity, count, message):
    for function in (corrupt, partial(corrupt_cached, folder=tmp_path)):
        with pytest.raises(ValueError, match=message):
            function(varied(8, 8), family, severity, seed=0, indices=np.arange(count))
    assert not list(tmp_path.glob("*.json"))
