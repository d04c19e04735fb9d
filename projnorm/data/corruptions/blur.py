"""Blurs: Gaussian, glass, defocus, motion, zoom."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import sparse
from scipy.ndimage import gaussian_filter1d

from projnorm.data.corruptions.draws import Draws, Floats
from projnorm.data.corruptions.parameters import DEFOCUS, GAUSSIAN_BLUR, GLASS, MOTION, ZOOM

_MOTION_ANGLE = 45.0


def gaussian_blur(x: Floats, level: int, _draws: Draws) -> Floats:
    """Convolve with a Gaussian."""
    return smoothed(x, GAUSSIAN_BLUR[level])


def glass_blur(x: Floats, level: int, draws: Draws) -> Floats:
    """Blur, let every pixel keep its colour or take that of an upper left neighbour, and blur again.

    The original script runs from the last pixel to the first and means to swap two pixels, but swapping two numpy views
    only copies. So every pixel takes a colour that no earlier step has changed, and a round is one gather.
    """
    sigma, rounds = GLASS[level]
    x = np.floor(smoothed(x, sigma) * 255.0)
    n, height, width, _ = x.shape
    steps = (draws.uniforms((rounds, 2, height, width)) < 0.5).astype(np.intp)
    steps[:, :, :, :2, :] = steps[:, :, :, :, :2] = 0  # the script leaves out the first two rows and columns
    images = np.arange(n)[:, None, None]
    rows, columns = np.arange(height)[:, None], np.arange(width)
    for across, down in steps.transpose(1, 2, 0, 3, 4):
        x = x[images, rows - down, columns - across]
    return smoothed(x / 255.0, sigma)


def defocus_blur(x: Floats, level: int, _draws: Draws) -> Floats:
    """Convolve with a disk with a blurred edge; the picture is mirrored at its border."""
    return correlated(x, _disk(*DEFOCUS[level]))


def motion_blur(x: Floats, level: int, draws: Draws) -> Floats:
    """Average along a random direction, one for each image."""
    radius, sigma = MOTION[level]
    return moved(x, radius, sigma, _MOTION_ANGLE * (2.0 * draws.uniforms(()) - 1.0))


def zoom_blur(x: Floats, level: int, _draws: Draws) -> Floats:
    """Average the picture with enlarged copies of its centre."""
    n, height, width, channels = x.shape
    pixels = x.transpose(1, 2, 0, 3).reshape(height * width, n * channels)
    return (_zoom_operator(height, width, level) @ pixels).reshape(height, width, n, channels).transpose(2, 0, 1, 3)


def smoothed(x: Floats, sigma: float) -> Floats:
    """Gaussian blur along both image axes, with repeated border, truncated at four standard deviations."""
    for axis in (1, 2):
        x = gaussian_filter1d(x, sigma, axis=axis, mode="nearest", truncate=4.0)
    return x


def correlated(x: Floats, kernel: Floats) -> Floats:
    """Correlation with a kernel of odd size; the picture is mirrored about its outermost pixels."""
    reach_down, reach_across = (size // 2 for size in kernel.shape)
    _, height, width, *rest = x.shape
    padding = ((0, 0), (reach_down, reach_down), (reach_across, reach_across), *((0, 0) for _ in rest))
    padded = np.pad(x, padding, mode="reflect")
    out = np.zeros_like(x)
    for (down, across), weight in np.ndenumerate(kernel):
        if weight:
            out += weight * padded[:, down : down + height, across : across + width]
    return out


def moved(x: Floats, radius: int, sigma: float, angles: Floats) -> Floats:
    """Motion blur as in ImageMagick.

    The kernel is half a Gaussian on ``2 * radius + 1`` pixels that starts at each pixel and runs along the angle;
    positions are rounded to whole pixels and the border is repeated. `sigma` is its standard deviation in pixels, and
    `angles` has one angle in degrees for each image.
    """
    n, height, width, channels = x.shape
    taps = np.arange(2 * radius + 1)
    weights = np.exp(-(taps**2) / (2.0 * sigma**2))
    weights /= weights.sum()
    turn = np.deg2rad(angles)[:, None]
    down, across = (np.ceil(taps * part - 0.5).astype(np.intp) for part in (np.sin(turn), np.cos(turn)))
    pixels = x.reshape(n * height * width, channels)
    first = np.arange(n)[:, None] * height
    out = np.zeros_like(pixels)
    for tap, weight in enumerate(weights):
        rows = first + np.clip(np.arange(height) + down[:, tap, None], 0, height - 1)
        columns = np.clip(np.arange(width) + across[:, tap, None], 0, width - 1)
        out += weight * np.take(pixels, (rows[:, :, None] * width + columns[:, None, :]).ravel(), axis=0)
    return out.reshape(x.shape)


def zoom_matrix(size: int, factor: float) -> Floats:
    """Linear interpolation along one axis: the centre enlarged by `factor` and cropped to the same size."""
    cropped = math.ceil(size / factor)
    enlarged = round(cropped * factor)
    trim = (enlarged - size) // 2
    step = (cropped - 1) / (enlarged - 1) if enlarged > 1 else 0.0
    positions = np.arange(trim, trim + size) * step
    left = np.minimum(positions.astype(np.intp), max(cropped - 2, 0))
    weight = positions - left
    matrix = np.zeros((size, size))
    start = (size - cropped) // 2
    rows = np.arange(size)
    matrix[rows, start + left] += 1.0 - weight
    matrix[rows, start + np.minimum(left + 1, cropped - 1)] += weight
    return matrix


@lru_cache(maxsize=16)
def _zoom_operator(height: int, width: int, level: int) -> sparse.csr_array:
    factors = np.arange(1.0, ZOOM[level], 0.01)
    total = sparse.csr_array(sparse.eye_array(height * width))
    for factor in factors:
        total = total + sparse.kron(zoom_matrix(height, factor), zoom_matrix(width, factor), format="csr")
    return sparse.csr_array(total / (len(factors) + 1))


def _disk(radius: float, edge: float) -> Floats:
    """Kernel of the pixels within `radius`, blurred along each axis by a Gaussian of three taps."""
    offsets = np.arange(-2, 3)
    disk = (offsets[:, None] ** 2 + offsets**2 <= radius**2).astype(np.float64)
    near = np.exp(-1.0 / (2.0 * edge**2))
    band = (np.eye(5) + near * (np.eye(5, k=1) + np.eye(5, k=-1))) / (1.0 + 2.0 * near)
    return band @ (disk / disk.sum()) @ band.T
