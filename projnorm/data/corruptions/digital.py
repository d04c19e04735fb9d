"""Digital corruptions: contrast, saturation, JPEG compression, pixelation and elastic deformation."""

from __future__ import annotations

import io
from functools import lru_cache

import numpy as np
import torch
from PIL import Image
from scipy.ndimage import gaussian_filter1d
from torch.nn import functional

from projnorm.data.corruptions.draws import Draws, Floats
from projnorm.data.corruptions.parameters import CONTRAST, ELASTIC, JPEG, PIXELATE, SATURATE


def contrast(x: Floats, level: int, _draws: Draws) -> Floats:
    """Pull every channel towards its mean."""
    mean = x.mean(axis=(1, 2), keepdims=True)
    return (x - mean) * CONTRAST[level] + mean


def saturate(x: Floats, level: int, _draws: Draws) -> Floats:
    """Scale and shift the saturation in HSV.

    Value and hue stay the same: every channel keeps its relative position between the largest and the smallest one.
    Grey, which has no hue, is given that of red.
    """
    factor, offset = SATURATE[level]
    value = x.max(axis=3, keepdims=True)
    spread = value - x.min(axis=3, keepdims=True)
    grey = spread == 0.0
    position = np.where(grey, np.array([0.0, 1.0, 1.0]), (value - x) / np.where(grey, 1.0, spread))
    saturation = spread / np.where(value > 0.0, value, 1.0)
    return value * (1.0 - np.clip(saturation * factor + offset, 0.0, 1.0) * position)


def jpeg_compression(x: Floats, level: int, _draws: Draws) -> Floats:
    """Encode and decode every image as JPEG in memory; the encoder cannot process batches."""
    out = np.empty_like(x)
    for image, decoded in zip(np.round(x * 255.0).astype(np.uint8), out, strict=True):
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "JPEG", quality=JPEG[level])
        decoded[:] = np.asarray(Image.open(buffer))
    return out / 255.0


def pixelate(x: Floats, level: int, _draws: Draws) -> Floats:
    """Shrink and enlarge with a box filter; as in Pillow, the result of every pass along an axis is rounded."""
    _, height, width, _ = x.shape
    small_height, small_width = (max(1, int(size * PIXELATE[level])) for size in (height, width))
    x = np.round(x * 255.0)
    for axis, before, after in (
        (2, width, small_width),
        (1, height, small_height),
        (2, small_width, width),
        (1, small_height, height),
    ):
        x = np.floor(np.moveaxis(np.moveaxis(x, axis, 3) @ _box_matrix(before, after).T, 3, axis) + 0.5)
    return x / 255.0


def elastic_transform(x: Floats, level: int, draws: Draws) -> Floats:
    """Apply a random affine map, which moves three corners of a square, then a smooth random displacement field."""
    _, height, width, _ = x.shape
    size = min(height, width)
    strength, smoothness, jitter = (size * share for share in ELASTIC[level])
    shifts = jitter * (2.0 * draws.uniforms((3, 2)) - 1.0)
    rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    across, down = _affine_sources(shifts, height, width)
    x = _sampled(x, across, down, about_pixels=True)
    field = 2.0 * draws.uniforms((2, height, width), part=1) - 1.0
    if strength:
        smooth_rows, smooth_columns = (
            gaussian_filter1d(np.eye(count), smoothness, axis=0, mode="reflect", truncate=3.0)
            for count in (height, width)
        )
        field = strength * (smooth_rows @ field @ smooth_columns.T)
    else:
        field = np.zeros_like(field)
    return _sampled(x, columns + field[:, 0], rows + field[:, 1], about_pixels=False)


def _affine_sources(shifts: Floats, height: int, width: int) -> tuple[Floats, Floats]:
    """Source of each pixel when three corners of a square move by `shifts`, (across, down), shape ``(n, 3, 2)``."""
    # The script writes the centre as (height, width) and reads it as (across, down), the same for square images.
    middle = np.array([height // 2, width // 2], dtype=np.float64)
    third = min(height, width) // 3
    corners = middle + third * np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    moved = np.concatenate([corners + shifts, np.ones((len(shifts), 3, 1))], axis=2)
    back = np.linalg.solve(moved, np.broadcast_to(corners, shifts.shape))
    down, across = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    pixels = np.stack([across, down, np.ones_like(down)], axis=-1).reshape(-1, 3).astype(np.float64)
    sources: Floats = (pixels @ back).reshape(-1, height, width, 2)
    return sources[..., 0], sources[..., 1]


def _sampled(x: Floats, across: Floats, down: Floats, *, about_pixels: bool) -> Floats:
    """Bilinear interpolation; the picture is mirrored about its outermost pixels, or else about their outer edges."""
    _, height, width, _ = x.shape
    grid = []
    for position, size in ((across, width), (down, height)):
        scaled = 2.0 * position / max(size - 1, 1) - 1.0 if about_pixels else (2.0 * position + 1.0) / size - 1.0
        grid.append(torch.from_numpy(np.ascontiguousarray(scaled)))
    picture = torch.from_numpy(np.ascontiguousarray(np.moveaxis(x, 3, 1)))
    out = functional.grid_sample(
        picture, torch.stack(grid, dim=-1), mode="bilinear", padding_mode="reflection", align_corners=about_pixels
    )
    return np.ascontiguousarray(np.moveaxis(out.numpy(), 1, 3))


@lru_cache(maxsize=64)
def _box_matrix(before: int, after: int) -> Floats:
    """Matrix that resizes one axis: a new pixel is the mean of the old ones whose centres lie in its box."""
    scale = before / after
    reach = max(scale, 1.0)
    centres = (np.arange(after)[:, None] + 0.5) * scale
    pixels = np.arange(before)
    inside = (pixels + 0.5 - centres) / reach
    # Pillow considers only these pixels, which matters when rounding puts a centre on the border of a box.
    first, last = ((centres + side * reach / 2 + 0.5).astype(np.intp) for side in (-1, 1))
    matrix = ((inside > -0.5) & (inside <= 0.5) & (pixels >= first) & (pixels < last)).astype(np.float64)
    return matrix / matrix.sum(axis=1, keepdims=True)
