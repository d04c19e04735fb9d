"""Every family of transformations against a known answer, and what all of them promise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import affine_transform, center_of_mass

from projnorm.core.errors import InputError
from projnorm.data.corruptions.families import FAMILIES, stream_of
from projnorm.data.transformations import TRANSFORMATIONS, _stream_of, transform
from tests.data.test_corruptions import photographs

SEVERITIES = (1, 2, 3)
SHAPES = [(32, 32), (21, 34), (40, 16)]
EVERY_SHADE = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1).repeat(3, axis=3)


def noise(count: int, height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, size=(count, height, width, 3), dtype=np.uint8)


def sampled(image: np.ndarray, back: list[list[float]]) -> np.ndarray:
    """The image at the sources `back` @ (row, column) from the centre, mirrored about its edges, by scipy."""
    matrix = np.eye(3)
    matrix[:2, :2] = back
    centre = (np.array(image.shape) - 1) / 2
    return affine_transform(image.astype(float), matrix, offset=centre - matrix @ centre, order=1, mode="reflect")


def assert_one_of(found: np.ndarray, candidates: list[np.ndarray]) -> int:
    """Which candidate is found, up to rounding to whole numbers."""
    distances = [np.abs(found - candidate).max() for candidate in candidates]
    assert min(distances) <= 0.5 + 1e-9
    return int(np.argmin(distances))


@pytest.mark.parametrize("family", TRANSFORMATIONS)
def test_shape_and_type_stay_and_every_severity_changes_the_images_more(family):
    for height, width in [(32, 32), (8, 8), (9, 30)]:
        images = photographs(40, height, width)
        changes = []
        for severity in SEVERITIES:
            found = transform(images, family, severity, seed=0)
            assert found.shape == images.shape
            assert found.dtype == np.uint8
            changes.append(np.abs(found - images.astype(float)).mean())
        assert 0.5 < changes[0] < changes[1] < changes[2]


@pytest.mark.parametrize("family", TRANSFORMATIONS)
def test_a_subset_is_transformed_as_the_whole(family):
    images = noise(150, 32, 32)
    given = images.copy()
    whole = transform(images, family, 2, seed=1)
    np.testing.assert_array_equal(images, given)
    np.testing.assert_array_equal(transform(images, family, 2, seed=1), whole)
    np.testing.assert_array_equal(transform(images[:3], family, 2, seed=1), whole[:3])
    some = np.array([149, 3, 128, 127, 0])  # from both blocks of 128
    np.testing.assert_array_equal(transform(images[some], family, 2, seed=1, indices=some), whole[some])


def test_random_families_differ_between_seeds_and_images_and_the_others_do_not():
    images = np.concatenate([photographs(2, 16, 16)[:1]] * 20)
    random = {"rotation", "translation", "shear", "occlusion", "stripes", "colour_cast"}
    for family in TRANSFORMATIONS:
        found = transform(images, family, 2, seed=0)
        assert (len(np.unique(found, axis=0)) > 1) == (family in random)
        assert np.any(transform(images, family, 2, seed=1) != found) == (family in random)


def test_no_two_sets_share_their_random_numbers():
    seeds = range(3)
    streams = {
        _stream_of(family, severity, seed) for family in TRANSFORMATIONS for severity in SEVERITIES for seed in seeds
    }
    assert len(streams) == 12 * 3 * 3
    # Corruptions add multiples of 2^48 for further numbers of the same image; none has as many as a hundred.
    corruptions = [stream_of(family, 5, 2**40 - 1) for family in FAMILIES]
    assert max(corruptions) + 100 * 2**48 < min(streams)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("severity", "degrees"), [(1, 15), (2, 35), (3, 70)])
def test_images_are_rotated_about_their_centre_in_either_direction(shape, severity, degrees):
    images = noise(8, *shape)
    cosine, sine = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    directions = [[[cosine, sine], [-sine, cosine]], [[cosine, -sine], [sine, cosine]]]
    found = transform(images, "rotation", severity, seed=0)
    pairs = zip(images, found, strict=True)
    assert {assert_one_of(out, [sampled(image, back) for back in directions]) for image, out in pairs} == {0, 1}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("severity", "slope"), [(1, 0.2), (2, 0.45), (3, 0.8)])
def test_rows_are_sheared_to_either_side(shape, severity, slope):
    images = noise(8, *shape)
    directions = [[[1, 0], [slope, 1]], [[1, 0], [-slope, 1]]]
    found = transform(images, "shear", severity, seed=0)
    pairs = zip(images, found, strict=True)
    assert {assert_one_of(out, [sampled(image, back) for back in directions]) for image, out in pairs} == {0, 1}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("severity", "share"), [(1, 0.8), (2, 0.6), (3, 0.45)])
def test_zoom_shows_the_middle(shape, severity, share):
    images = noise(2, *shape)
    for image, out in zip(images, transform(images, "zoom", severity, seed=0), strict=True):
        assert_one_of(out, [sampled(image, [[share, 0], [0, share]])])


@pytest.mark.parametrize(("severity", "share"), [(1, 0.1), (2, 0.2), (3, 0.35)])
def test_a_bright_pixel_moves_by_a_share_of_the_shorter_side_in_any_direction(severity, share):
    images = np.zeros((60, 41, 51, 3), np.uint8)
    images[:, 20, 25] = 252
    found = transform(images, "translation", severity, seed=0).astype(float)
    # At most four pixels are each rounded by half a unit of 252, and lie within a pixel of their centre.
    np.testing.assert_allclose(found.sum(axis=(1, 2)), 252.0, atol=2.0)
    moves = np.array([center_of_mass(image[..., 0]) for image in found]) - [20, 25]
    np.testing.assert_allclose(np.hypot(*moves.T), share * 41, atol=4 * 2**0.5 * 0.5 / 250)
    quadrants = {(down > 0, across > 0) for down, across in moves}
    assert len(quadrants) == 4


def test_what_a_translation_uncovers_is_black():
    white = np.full((20, 32, 32, 3), 255, np.uint8)
    found = transform(white, "translation", 3, seed=0)
    assert set(np.unique(found)) >= {0, 255}
    # The image keeps (1 - a)(1 - b) of its area, where a^2 + b^2 = 0.35^2.
    assert np.all(found.mean(axis=(1, 2, 3)) <= 255 * (1 - 0.35) + 1)
    assert np.all(found.mean(axis=(1, 2, 3)) >= 255 * (1 - 0.35 / 2**0.5) ** 2 - 1)


@pytest.mark.parametrize("shape", [(8, 8), (32, 32), (20, 50), (50, 20)])
@pytest.mark.parametrize(("severity", "share"), [(1, 0.3), (2, 0.5), (3, 0.7)])
def test_a_grey_square_hides_its_share_anywhere_and_nothing_else_changes(shape, severity, share):
    images = np.random.default_rng(1).integers(128, 256, size=(300, *shape, 3), dtype=np.uint8)
    found = transform(images, "occlusion", severity, seed=0)
    hidden = (found == 127).all(axis=3)
    np.testing.assert_array_equal(found[~hidden], images[~hidden])
    side = round(share * min(shape))
    for axis in (1, 2):
        assert set(hidden.sum(axis=axis).ravel()) == {0, side}
        first = hidden.any(axis=3 - axis).argmax(axis=1)
        assert set(first) == set(range(shape[axis - 1] - side + 1))


@pytest.mark.parametrize("shape", [(8, 8), (48, 48), (96, 40)])
@pytest.mark.parametrize(("severity", "widths"), [(1, 4), (2, 3), (3, 2)])
def test_black_stripes_return_at_equal_distances(shape, severity, widths):
    images = np.full((100, *shape, 3), 200, np.uint8)
    found = transform(images, "stripes", severity, seed=0)
    assert np.all(found == found[:, :, :1, :1])
    hidden = found[:, :, 0, 0] == 0
    assert np.all(found[:, :, 0, 0][~hidden] == 200)
    width = max(1, min(shape) // 16)
    period = widths * width
    np.testing.assert_array_equal(hidden[:, period:], hidden[:, :-period])
    assert np.all(hidden[:, :period].sum(axis=1) == width)
    assert len(np.unique(hidden, axis=0)) == period


@pytest.mark.parametrize(("severity", "weight"), [(1, 0.18), (2, 0.36), (3, 0.54)])
def test_a_colour_cast_mixes_with_one_colour_per_image(severity, weight):
    images = np.repeat(EVERY_SHADE, 50, axis=0)
    found = transform(images, "colour_cast", severity, seed=0).astype(float)
    colours = found[:, :1, :1]  # the pixel that was black
    np.testing.assert_allclose(found - colours, (1 - weight) * images, atol=1.0 + 1e-9)
    assert len(np.unique(colours, axis=0)) > 45
    assert colours.max() <= np.rint(255 * weight)
    np.testing.assert_allclose(colours.mean(), 127.5 * weight, atol=5 * 255 * weight / np.sqrt(12 * colours.size))


def test_greyscale_keeps_the_mean_of_the_channels_and_ends_with_equal_ones():
    images = noise(2, 32, 32)
    for severity, weight in zip(SEVERITIES, (0.4, 0.75, 1.0), strict=True):
        found = transform(images, "greyscale", severity, seed=0).astype(float)
        mean = images.mean(axis=3, keepdims=True)
        np.testing.assert_allclose(found.mean(axis=3, keepdims=True), mean, atol=0.5 + 1e-9)
        np.testing.assert_allclose(found, (1 - weight) * images + weight * mean, atol=0.5 + 1e-9)
    np.testing.assert_array_equal(found, np.repeat(found[..., :1], 3, axis=3))


@pytest.mark.parametrize(("severity", "exponent"), [(1, 2.0), (2, 3.5), (3, 6.0)])
def test_gamma_keeps_black_and_white_and_darkens_the_shades_between(severity, exponent):
    found = transform(EVERY_SHADE, "gamma", severity, seed=0)[0, ..., 0].ravel()
    assert (found[0], found[255]) == (0, 255)
    assert np.all(np.diff(found.astype(int)) >= 0)
    assert np.all(found[1:255] < np.arange(1, 255))
    assert found[128] == round(255 * (128 / 255) ** exponent)


@pytest.mark.parametrize(("severity", "threshold"), [(1, 220), (2, 160), (3, 80)])
def test_solarisation_inverts_what_is_brighter_than_the_threshold(severity, threshold):
    found = transform(EVERY_SHADE, "solarisation", severity, seed=0)[0, ..., 0].ravel()
    expected = [shade if shade <= threshold else 255 - shade for shade in range(256)]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("severity", "levels"), [(1, 6), (2, 4), (3, 2)])
def test_posterisation_leaves_so_many_intensities_at_equal_distances(severity, levels):
    found = transform(EVERY_SHADE, "posterisation", severity, seed=0).astype(float)
    np.testing.assert_array_equal(np.unique(found), np.linspace(0, 255, levels))
    assert np.abs(found - EVERY_SHADE).max() <= 255 / (levels - 1) / 2


@pytest.mark.parametrize(("severity", "degrees"), [(1, 40), (2, 90), (3, 150)])
def test_hue_rotation_keeps_greys_and_turns_colours_about_them(severity, degrees):
    np.testing.assert_array_equal(transform(EVERY_SHADE, "hue_rotation", severity, seed=0), EVERY_SHADE)
    pale = np.random.default_rng(0).integers(100, 156, size=(2, 32, 32, 3), dtype=np.uint8)  # so that nothing is cut
    found = transform(pale, "hue_rotation", severity, seed=0)
    # Coordinates in the plane of colours of equal mean: red at 0, green at 120 and blue at 240 degrees.
    plane = np.exp(2j * np.pi * np.arange(3) / 3)
    np.testing.assert_allclose(found @ plane, (pale @ plane) * np.exp(1j * np.deg2rad(degrees)), atol=1.5)
    np.testing.assert_allclose(found.mean(axis=3), pale.mean(axis=3), atol=0.5 + 1e-9)


def test_no_images_give_no_images():
    for family in TRANSFORMATIONS:
        assert transform(noise(0, 8, 8), family, 1, seed=0).shape == (0, 8, 8, 3)


def test_wrong_arguments_are_named():
    images = noise(2, 8, 8)
    for message, change in (
        (r"`images` must be uint8 of shape \(n, height, width, 3\); got float64", {"images": images / 255.0}),
        (r"`images` must be uint8 .* got uint8 of shape \(2, 8, 8\)", {"images": images[..., 0]}),
        (r"`images` must be at least 8 px high and wide; got 8 x 7", {"images": images[:, :, :7]}),
        ("`family` must be one of rotation, .*hue_rotation; got 'fog'", {"family": "fog"}),
        ("`severity` must be 1 to 3; got 0", {"severity": 0}),
        ("`severity` must be 1 to 3; got 4", {"severity": 4}),
        (r"`severity` must be 1 to 3; got 1\.0", {"severity": 1.0}),
        ("`seed` must be a whole number from 0 to .*; got -1", {"seed": -1}),
        (r"`seed` must be a whole number from 0 to .*; got 0\.5", {"seed": 0.5}),
        (r"`indices` must hold one number per image, 2; got shape \(3,\)", {"indices": np.arange(3)}),
    ):
        arguments = {"images": images, "family": "rotation", "severity": 1, "seed": 0} | change
        with pytest.raises(InputError, match=message):
            transform(**arguments)
