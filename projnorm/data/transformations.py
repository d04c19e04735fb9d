"""Shifts of images that are no corruption of CIFAR-C: geometry, occlusion and colour, each at three severities.

Error estimates that are calibrated on corruptions alone have only seen blur, noise and weather. These families give
labelled calibration sets of other kinds. Lengths are shares of the shorter side of the image, so a severity means the
same at every size.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from projnorm.core.arrays import form
from projnorm.core.errors import InputError
from projnorm.data.corruptions.draws import Draws, Floats
from projnorm.data.images import Images

# One entry for each severity.
_ROTATION = (15.0, 35.0, 70.0)  # degrees, in either direction
_TRANSLATION = (0.1, 0.2, 0.35)  # distance, in any direction
_ZOOM = (0.8, 0.6, 0.45)  # share of each side that is seen
_SHEAR = (0.2, 0.45, 0.8)  # pixels to the side for each pixel down, in either direction
_OCCLUSION = (0.3, 0.5, 0.7)  # side of the square
_STRIPES = (4, 3, 2)  # distance between stripes, in widths of a stripe
_COLOUR_CAST = (0.18, 0.36, 0.54)  # weight of the colour
_GREYSCALE = (0.4, 0.75, 1.0)  # weight of the mean of the channels
_GAMMA = (2.0, 3.5, 6.0)  # exponent
_SOLARISATION = (220, 160, 80)  # largest intensity that is not inverted
_POSTERISATION = (6, 4, 2)  # number of intensities
_HUE_ROTATION = (40.0, 90.0, 150.0)  # degrees

_SEVERITIES = (1, 2, 3)
_OCCLUDED = 127
_STRIPE_WIDTH = 1 / 16
_SHORTEST_SIDE = 8
_LARGEST_SEED = 2**40
# Pixels processed at once: 128 images of 32 px.
_BLOCK_PIXELS = 2**17
# Streams of random numbers below this one, parts included, belong to corruptions.
_FIRST_STREAM = 2**60


def transform(
    images: Images, family: str, severity: int, *, seed: int, indices: NDArray[np.integer] | None = None
) -> Images:
    """Transform every image.

    The random numbers of an image depend on the seed, the family, the severity and the index of the image, never on
    the other images. Images without colour are not changed by "greyscale" and "hue_rotation".

    Args:
        images: RGB images, shape ``(n, height, width, 3)``, of at least 8 px on each side.
        family: One of `TRANSFORMATIONS`.
        severity: Severity from 1 to 3.
        seed: Seed of the random numbers.
        indices: Index of each image in its data set, so that a subset is transformed like the whole set; 0, 1, ... by
            default.
    """
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
        raise InputError(f"`images` must be uint8 of shape (n, height, width, 3); got {form(images)}.")
    _, height, width, _ = images.shape
    if min(height, width) < _SHORTEST_SIDE:
        raise InputError(f"`images` must be at least {_SHORTEST_SIDE} px high and wide; got {height} x {width}.")
    keys = np.arange(len(images)) if indices is None else np.asarray(indices)
    if keys.shape != (len(images),):
        raise InputError(f"`indices` must hold one number per image, {len(images)}; got shape {keys.shape}.")
    stream = _stream_of(family, severity, seed)
    out = np.empty_like(images)
    step = max(1, _BLOCK_PIXELS // (height * width))
    for start in range(0, len(images), step):
        block = slice(start, start + step)
        transformed = _FUNCTIONS[family](images[block], severity - 1, Draws(stream, keys[block]))
        out[block] = np.rint(np.clip(transformed, 0.0, 255.0)).astype(np.uint8)
    return out


def _stream_of(family: str, severity: int, seed: int) -> int:
    if family not in _FUNCTIONS:
        raise InputError(f"`family` must be one of {', '.join(TRANSFORMATIONS)}; got {family!r}.")
    if not isinstance(severity, int | np.integer) or severity not in _SEVERITIES:
        raise InputError(f"`severity` must be 1 to 3; got {severity!r}.")
    if not isinstance(seed, int | np.integer) or not 0 <= seed < _LARGEST_SEED:
        raise InputError(f"`seed` must be a whole number from 0 to {_LARGEST_SEED - 1:,}; got {seed!r}.")
    number = (int(seed) * len(TRANSFORMATIONS) + TRANSFORMATIONS.index(family)) * len(_SEVERITIES) + int(severity)
    return _FIRST_STREAM + number


def _rotation(x: Images, level: int, draws: Draws) -> Floats:
    """Rotate about the centre; what lies outside is mirrored."""
    angles = np.deg2rad(_ROTATION[level]) * _signs(draws)
    cosines, sines = np.cos(angles), np.sin(angles)
    return _resampled(x, np.array([[cosines, -sines], [sines, cosines]]), np.zeros((2, len(x))), "reflection")


def _translation(x: Images, level: int, draws: Draws) -> Floats:
    """Move in a random direction; what lies outside is black."""
    directions = 2.0 * np.pi * draws.uniforms(())
    shifts = _TRANSLATION[level] * min(x.shape[1:3]) * np.array([np.cos(directions), np.sin(directions)])
    return _resampled(x, np.eye(2)[..., None], shifts, "zeros")


def _zoom(x: Images, level: int, _draws: Draws) -> Floats:
    """Enlarge the middle of the image."""
    return _resampled(x, _ZOOM[level] * np.eye(2)[..., None], np.zeros((2, len(x))), "reflection")


def _shear(x: Images, level: int, draws: Draws) -> Floats:
    """Move every row to the side, in proportion to its height; what lies outside is mirrored."""
    slopes = _SHEAR[level] * _signs(draws)
    ones, zeros = np.ones(len(x)), np.zeros(len(x))
    return _resampled(x, np.array([[ones, slopes], [zeros, ones]]), np.zeros((2, len(x))), "reflection")


def _occlusion(x: Images, level: int, draws: Draws) -> Images:
    """Cover a random place with a grey square."""
    _, height, width, _ = x.shape
    side = round(_OCCLUSION[level] * min(height, width))
    places = draws.uniforms((2,))
    top, left = ((places[:, i] * (size - side + 1)).astype(np.intp)[:, None] for i, size in enumerate((height, width)))
    rows, columns = np.arange(height), np.arange(width)
    in_rows, in_columns = (rows >= top) & (rows < top + side), (columns >= left) & (columns < left + side)
    hidden = in_rows[:, :, None] & in_columns[:, None, :]
    return np.where(hidden[..., None], np.uint8(_OCCLUDED), x)


def _stripes(x: Images, level: int, draws: Draws) -> Images:
    """Cover the image with horizontal black stripes, the first of which begins at a random row."""
    _, height, width, _ = x.shape
    thickness = max(1, int(_STRIPE_WIDTH * min(height, width)))
    distance = _STRIPES[level] * thickness
    first = (draws.uniforms(()) * distance).astype(np.intp)
    hidden = (np.arange(height) - first[:, None]) % distance < thickness
    return np.where(hidden[:, :, None, None], np.uint8(0), x)


def _colour_cast(x: Images, level: int, draws: Draws) -> Floats:
    """Mix with one random colour."""
    weight = _COLOUR_CAST[level]
    colours = 255.0 * draws.uniforms((1, 1, 3))
    return (1.0 - weight) * x + weight * colours


def _greyscale(x: Images, level: int, _draws: Draws) -> Floats:
    """Pull the channels of every pixel towards their mean."""
    weight = _GREYSCALE[level]
    return (1.0 - weight) * x + weight / 3.0 * x.sum(axis=3, keepdims=True)


def _gamma(x: Images, level: int, _draws: Draws) -> Floats:
    """Darken by a power of the intensity; black and white stay."""
    return (255.0 * (np.arange(256) / 255.0) ** _GAMMA[level])[x]


def _solarisation(x: Images, level: int, _draws: Draws) -> Images:
    """Invert the bright intensities."""
    return np.where(x > _SOLARISATION[level], 255 - x, x)


def _posterisation(x: Images, level: int, _draws: Draws) -> Floats:
    """Round to a few intensities at equal distances."""
    steps = _POSTERISATION[level] - 1
    return (np.round(np.arange(256) / 255.0 * steps) / steps * 255.0)[x]


def _hue_rotation(x: Images, level: int, _draws: Draws) -> Floats:
    """Rotate the colours about the axis of greys."""
    angle = np.deg2rad(_HUE_ROTATION[level])
    cross = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]]) / np.sqrt(3.0)
    rotation = np.eye(3) + np.sin(angle) * cross + (1.0 - np.cos(angle)) * cross @ cross
    return x @ rotation.T


def _signs(draws: Draws) -> Floats:
    return np.where(draws.uniforms(()) < 0.5, -1.0, 1.0)


def _resampled(x: Images, back: Floats, shifts: Floats, padding: str) -> Floats:
    """Images under affine maps, by bilinear interpolation.

    Args:
        x: Images, shape ``(n, height, width, 3)``.
        back: Matrices from a place in the new image to its source, both (across, down) from the centre in pixels, shape
            ``(2, 2, n)`` or ``(2, 2, 1)``.
        shifts: How far the image moves (across, down) after that, in pixels, shape ``(2, n)``.
        padding: "zeros" or "reflection" (about the outer edges) for sources outside the image.
    """
    n, height, width, _ = x.shape
    across, down = (np.arange(size) - (size - 1) / 2.0 for size in (width, height))
    moved_across = across[None, None, :] - shifts[0][:, None, None]
    moved_down = down[None, :, None] - shifts[1][:, None, None]
    grid = np.empty((n, height, width, 2))
    for i, size in enumerate((width, height)):
        source = back[i, 0][:, None, None] * moved_across + back[i, 1][:, None, None] * moved_down
        grid[..., i] = source * (2.0 / size)
    picture = torch.from_numpy(np.moveaxis(x, 3, 1).astype(np.float64, order="C"))
    out = functional.grid_sample(
        picture, torch.from_numpy(grid), mode="bilinear", padding_mode=padding, align_corners=False
    )
    return np.moveaxis(out.numpy(), 1, 3)


_FUNCTIONS: dict[str, Callable[[Images, int, Draws], Floats | Images]] = {
    "rotation": _rotation,
    "translation": _translation,
    "zoom": _zoom,
    "shear": _shear,
    "occlusion": _occlusion,
    "stripes": _stripes,
    "colour_cast": _colour_cast,
    "greyscale": _greyscale,
    "gamma": _gamma,
    "solarisation": _solarisation,
    "posterisation": _posterisation,
    "hue_rotation": _hue_rotation,
}
# Geometry, then occlusion, then colour. The random numbers of a family depend on its position.
TRANSFORMATIONS: tuple[str, ...] = tuple(_FUNCTIONS)
