"""Spatter: drops of water, shaded by the distance to their outline, or mud."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt, label

from projnorm.data.corruptions.blur import correlated, smoothed
from projnorm.data.corruptions.draws import Draws, Floats
from projnorm.data.corruptions.parameters import SPATTER

_WATER = np.array([175.0, 238.0, 238.0]) / 255.0
_MUD = np.array([63.0, 42.0, 20.0]) / 255.0
_MUD_THRESHOLD = 0.8
_LOW, _HIGH = 50.0, 150.0
_FARTHEST = 20.0
_RELIEF = np.array([[-2.0, -1.0, 0.0], [-1.0, 1.0, 1.0], [0.0, 1.0, 2.0]])
_BOX = np.full((3, 3), 1.0 / 9.0)
# Distance between consecutive images, so that the nearest edge lies in the same one.
_APART = 1000.0


def spatter(x: Floats, level: int, draws: Draws) -> Floats:
    """Add drops where smoothed noise is high: water at low severities, mud at high ones."""
    drops = SPATTER[level]
    liquid = smoothed(drops.mean + drops.deviation * draws.normals(x.shape[1:3]), drops.sigma)
    liquid = np.where(liquid < drops.threshold, 0.0, liquid)
    if drops.mud:
        mud = smoothed((liquid > drops.threshold).astype(np.float64), drops.strength)
        mud = np.where(mud < _MUD_THRESHOLD, 0.0, mud)[..., None]
        return x * (1.0 - mud) + mud * _MUD
    grey = np.floor(liquid * 255.0) % 256.0  # 8 bits, which wrap around
    light = grey * _relief(grey)
    brightest = light.max(axis=(1, 2), keepdims=True)
    light = np.divide(light, brightest, out=np.zeros_like(light), where=brightest > 0.0)
    return x + drops.strength * light[..., None] * _WATER


def _relief(grey: Floats) -> Floats:
    """Shading of the drops: the distance to their outline, equalised, filtered with a relief kernel and rounded.

    Distances are Euclidean; the original script uses OpenCV's approximation of them.
    """
    outline = canny(grey)
    far = np.minimum(distance_transform_edt(~outline, sampling=(_APART, 1.0, 1.0)), _FARTHEST)
    if not outline.any():
        far = np.full_like(grey, _FARTHEST)
    equal = equalised(np.floor(_tidied(correlated(far, _BOX))))
    seen = np.clip(correlated(equal, _RELIEF), 0.0, 255.0)
    return np.round(_tidied(correlated(seen, _BOX)))


def canny(grey: Floats) -> NDArray[np.bool_]:
    """Edges of 8-bit images by Canny's detector (1986) as in OpenCV, thresholds 50 and 150, shape ``(n, h, w)``.

    Gradients are Sobel's with the border repeated; their magnitude is the sum of the absolute components. Pixels that
    are largest along their gradient are candidates. Edges grow from candidates above the upper threshold through
    touching ones above the lower.
    """
    padded = np.pad(grey, ((0, 0), (1, 1), (1, 1)), mode="edge")
    rows = padded[:, :-2] + 2.0 * padded[:, 1:-1] + padded[:, 2:]
    columns = padded[:, :, :-2] + 2.0 * padded[:, :, 1:-1] + padded[:, :, 2:]
    dx, dy = rows[:, :, 2:] - rows[:, :, :-2], columns[:, 2:] - columns[:, :-2]
    size = np.abs(dx) + np.abs(dy)
    around = np.pad(size, ((0, 0), (1, 1), (1, 1)))

    def beside(down: int, across: int) -> Floats:
        return around[:, 1 + down : 1 + down + size.shape[1], 1 + across : 1 + across + size.shape[2]]

    flat = np.abs(dy) < np.tan(np.pi / 8) * np.abs(dx)
    steep = np.abs(dy) > np.tan(3 * np.pi / 8) * np.abs(dx)
    falling = (dx < 0) != (dy < 0)
    slanted_before = np.where(falling, beside(-1, 1), beside(-1, -1))
    slanted_after = np.where(falling, beside(1, -1), beside(1, 1))
    largest = np.where(
        flat,
        (size > beside(0, -1)) & (size >= beside(0, 1)),
        np.where(
            steep,
            (size > beside(-1, 0)) & (size >= beside(1, 0)),
            (size > slanted_before) & (size > slanted_after),
        ),
    )
    weak = largest & (size > _LOW)
    touching = np.zeros((3, 3, 3), dtype=bool)
    touching[1] = True  # within the same image
    groups, count = label(weak, structure=touching)
    strong = np.zeros(count + 1, dtype=bool)
    strong[np.unique(groups[weak & (size > _HIGH)])] = True
    strong[0] = False
    return strong[groups]


def equalised(values: Floats) -> Floats:
    """Histogram equalisation of each image; `values` are whole numbers from 0 to 255, shape ``(n, h, w)``."""
    n, pixels = len(values), values[0].size
    whole = values.astype(np.intp).reshape(n, pixels)
    histogram = np.bincount((np.arange(n)[:, None] * 256 + whole).ravel(), minlength=n * 256).reshape(n, 256)
    lowest = np.take_along_axis(histogram, whole.min(axis=1, keepdims=True), axis=1)
    above = np.cumsum(histogram, axis=1) - lowest
    table = np.round(above * (255.0 / np.maximum(pixels - lowest, 1)))
    out = np.take_along_axis(table, whole, axis=1)
    return np.where(lowest == pixels, whole, out).reshape(values.shape)


def _tidied(x: Floats) -> Floats:
    """Remove rounding errors, so that whole numbers stay what they are when they are truncated later."""
    return np.round(x, 9)
