"""Blurs: Gaussian, glass, defocus, motion, zoom."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import sparse
from scipy.ndimage import gaussian_filter1d

from projnorm.vision.corruptions.draws import Draws, Floats
from projnorm.vision.corruptions.parameters import DEFOCUS, GAUSSIAN_BLUR, GLASS, MOTION, ZOOM

_MOTION_ANGLE = 45.0


def gaussian_blur(x: Floats, level: int, _draws: Draws) -> Floats:
    """Convolve with a Gaussian."""
    return smoothed(x, GAUSSIAN_BLUR[level])


def glass_blur(x: Floats, level: int, draws: Draws) -> Floats:
    """Blur, let every pixel take the colour of one of its upper left neighbours or keep its own, blur again.

    The script walks from the last pixel to the first and means to exchange two pixels, but its exchange of two numpy
    views only copies. So every pixel takes a colour that no earlier step has touched, and a round is one gather.
    """
    sigma, rounds = GLASS[level]
    x = np.floor(smoothed(x, sigma) * 255.0)
    n, height, width, _ = x.shape
    steps = (draws.uniforms((rounds, 2, height, width)) < 0.5).astype(np.intp)
    steps[:, :, :, :2, :] = steps[:, :, :, :, :2] = 0  # the walk stops short of the first two rows and columns
    images = np.arange(n)[:, None, None]
    rows, columns = np.arange(height)[:, None], np.arange(width)
    for across, down in steps.transpose(1, 2, 0, 3, 4):
        x = x[images, rows - down, columns - across]
    return smoothed(x / 255.0, sigma)


def defocus_blur(x: Floats, level: int, _draws: Draws) -> Floats:
    """Convolve with a disk whose edge is blurred; the picture is mirrored at its border."""
    return correlated(x, _disk(*DEFOCUS[level]))


def motion_blur(x: Floats, level: int, draws: Draws) -> Floats:
    """Average along a direction drawn for each image."""
    radius, sigma = MOTION[level]
    return moved(x, radius, sigma, _MOTION_ANGLE * (2.0 * draws.uniforms(()) - 1.0))


def zoom_blur(x: Floats, level: int, _draws: Draws) -> Floats:
    """Average the picture with enlarged copies of its middle."""
    n, height, width, channels = x.shape
    pixels = x.transpose(1, 2, 0, 3).reshape(height * width, n * channels)
    return (_zoom_operator(height, width, level) @ pixels).reshape(height, width, n, channels).transpose(2, 0, 1, 3)


def smoothed(x: Floats, sigma: float) -> Floats:
    """Gaussian blur of the two image axes, the border repeated, cut at four standard deviations."""
    for axis in (1, 2):
        x = gaussian_filter1d(x, sigma, axis=axis, mode="nearest", truncate=4.0)
    return x


def correlated(x: Floats, kernel: Floats) -> Floats:
    """Correlation with a kernel of odd size, the picture mirrored about its outermost pixels."""
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
    """Motion blur as ImageMagick defines it.

    Half a Gaussian on ``2 * radius + 1`` pixels from each pixel onwards along the angle, positions rounded to whole
    pixels and the border repeated.

    Args:
        x: Shape ``(n, height, width, channels)``.
        radius: Of the kernel, in pixels.
        sigma: Of the Gaussian, in pixels.
        angles: In degrees, one an image.
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
    """Linear interpolation along one axis: the middle enlarged by `factor` and cut to the same size."""
    kept = math.ceil(size / factor)
    enlarged = round(kept * factor)
    trim = (enlarged - size) // 2
    step = (kept - 1) / (enlarged - 1) if enlarged > 1 else 0.0
    positions = np.arange(trim, trim + size) * step
    left = np.minimum(positions.astype(np.intp), max(kept - 2, 0))
    share = positions - left
    matrix = np.zeros((size, size))
    start = (size - kept) // 2
    rows = np.arange(size)
    matrix[rows, start + left] += 1.0 - share
    matrix[rows, start + np.minimum(left + 1, kept - 1)] += share
    return matrix


@lru_cache(maxsize=16)
def _zoom_operator(height: int, width: int, level: int) -> sparse.csr_array:
    factors = np.arange(1.0, ZOOM[level], 0.01)
    total = sparse.csr_array(sparse.eye_array(height * width))
    for factor in factors:
        total = total + sparse.kron(zoom_matrix(height, factor), zoom_matrix(width, factor), format="csr")
    return sparse.csr_array(total / (len(factors) + 1))


def _disk(radius: float, edge: float) -> Floats:
    """Pixels within the radius, blurred by three weights of a Gaussian along each axis."""
    offsets = np.arange(-2, 3)
    disk = (offsets[:, None] ** 2 + offsets**2 <= radius**2).astype(np.float64)
    near = np.exp(-1.0 / (2.0 * edge**2))
    band = (np.eye(5) + near * (np.eye(5, k=1) + np.eye(5, k=-1))) / (1.0 + 2.0 * near)
    return band @ (disk / disk.sum()) @ band.T
