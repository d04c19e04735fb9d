"""The steps of water drops, one image at a time: edges, distances to them, levelled histograms.

Each follows what OpenCV documents of its function of that name; pixels are visited one by one.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import correlate, sobel
from scipy.spatial.distance import cdist

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_AROUND = [(down, across) for down in (-1, 0, 1) for across in (-1, 0, 1) if (down, across) != (0, 0)]


def canny_reference(grey: Floats, low: float, high: float) -> Mask:
    """Canny's edges: thin ridges of the gradient above `low` that hang together with one above `high`."""
    dx, dy = sobel(grey, axis=1, mode="nearest"), sobel(grey, axis=0, mode="nearest")
    size = abs(dx) + abs(dy)
    padded = np.pad(size, 1)
    ridge = {
        (int(row), int(column))
        for row, column in np.argwhere(size > low)
        if _is_ridge(padded, row, column, dx[row, column], dy[row, column])
    }
    edges = np.zeros(grey.shape, dtype=bool)
    to_visit = [place for place in ridge if size[place] > high]
    while to_visit:
        row, column = to_visit.pop()
        if (row, column) in ridge and not edges[row, column]:
            edges[row, column] = True
            to_visit += [(row + down, column + across) for down, across in _AROUND]
    return edges


def _is_ridge(padded: Floats, row: int, column: int, dx: float, dy: float) -> bool:
    """No smaller than the two neighbours along the gradient, which points in one of four directions; 0 lies around.

    The gradient's line is turned to degrees from 0 to 180, rows counted downwards. Equal neighbours: along an axis the
    first of the two wins, along a diagonal none.
    """
    direction = math.degrees(math.atan2(dy, dx)) % 180.0
    if direction < 22.5 or direction > 157.5:
        before, after, ties = (0, -1), (0, 1), True
    elif 67.5 < direction < 112.5:
        before, after, ties = (-1, 0), (1, 0), True
    elif direction <= 67.5:
        before, after, ties = (-1, -1), (1, 1), False
    else:
        before, after, ties = (-1, 1), (1, -1), False
    first, second = (padded[row + 1 + down, column + 1 + across] for down, across in (before, after))
    here = padded[row + 1, column + 1]
    return bool(here > first and (here > second or (ties and here == second)))


def distance_reference(edges: Mask, farthest: float) -> Floats:
    """Euclidean distance of every pixel to the nearest edge pixel, at most `farthest`."""
    if not edges.any():
        return np.full(edges.shape, farthest)
    pixels = np.argwhere(np.ones_like(edges))
    nearest = cdist(pixels, np.argwhere(edges)).min(axis=1)
    return np.minimum(nearest, farthest).reshape(edges.shape)


def levels_reference(values: NDArray[np.integer]) -> Floats:
    """Levels from 0 to 255 spread so that each step is as high as it is frequent, before they are rounded.

    The darkest becomes 0 and the brightest 255; one level alone stays as it is.
    """
    levels, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    if len(levels) == 1:
        return values.astype(np.float64)
    return (255 * (np.cumsum(counts) - counts[0]) / (values.size - counts[0]))[inverse]


def relief_reference(grey: NDArray[np.int64]) -> NDArray[np.int64]:
    """Light on drops, in whole numbers: how far their outline is, levelled and seen from one side."""
    far = distance_reference(canny_reference(grey.astype(np.float64), 50.0, 150.0), 20.0)
    # A sum of nine whole distances that is a multiple of nine must not fall short of it by a rounding error.
    near_and_far = (correlate(far, np.ones((3, 3)), mode="mirror") / 9.0 + 1e-9).astype(np.int64)
    levels = np.rint(levels_reference(near_and_far)).astype(np.int64)
    seen = correlate(levels, np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]), mode="mirror")
    return (2 * correlate(np.clip(seen, 0, 255), np.ones((3, 3), dtype=np.int64), mode="mirror") + 9) // 18
