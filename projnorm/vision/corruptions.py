"""Corruptions of images at five severities, vectorised over the images and seeded image by image.

The parameter values are those with which CIFAR-10-C was made: Hendrycks and Dietterich, "Benchmarking Neural Network
Robustness to Common Corruptions and Perturbations" (ICLR 2019), script ``make_cifar_c.py`` of their repository.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d

from projnorm.vision.counter_random import normals
from projnorm.vision.images import Images

SEVERITIES = (1, 2, 3, 4, 5)

_NOISE = (0.04, 0.06, 0.08, 0.09, 0.10)
_BLUR = (0.4, 0.6, 0.7, 0.8, 1.0)
_CONTRAST = (0.75, 0.5, 0.4, 0.3, 0.15)
_BRIGHTNESS = (0.05, 0.1, 0.15, 0.2, 0.3)

Floats = NDArray[np.float64]


def corrupt(
    images: Images, family: str, severity: int, *, seed: int, indices: NDArray[np.integer] | None = None
) -> Images:
    """Corrupt every image.

    Args:
        images: Shape ``(n, height, width, 3)``.
        family: One of `FAMILIES`.
        severity: 1 to 5.
        seed: Of what is drawn.
        indices: Which image each one is, so that a subset is corrupted as the whole set is; 0, 1, ... by default.

    Raises:
        ValueError: If there is no such family or severity.
    """
    if family not in FAMILIES:
        raise ValueError(f"`family` must be one of {', '.join(FAMILIES)}; got {family!r}.")
    if severity not in SEVERITIES:
        raise ValueError(f"`severity` must be 1 to 5; got {severity!r}.")
    keys = np.arange(len(images)) if indices is None else np.asarray(indices)
    if keys.shape != (len(images),):
        raise ValueError(f"`indices` must hold one number per image, {len(images)}; got shape {keys.shape}.")
    # Each family and severity draws its own numbers.
    stream = (seed * len(FAMILIES) + list(FAMILIES).index(family)) * len(SEVERITIES) + severity
    out = FAMILIES[family](images / 255.0, severity - 1, lambda shape: normals(stream, keys, shape))
    return (np.clip(out, 0.0, 1.0) * 255.0).astype(np.uint8)


Draw = Callable[[tuple[int, ...]], Floats]


def _gaussian_noise(x: Floats, level: int, draw: Draw) -> Floats:
    return x + _NOISE[level] * draw(x.shape[1:])


def _gaussian_blur(x: Floats, level: int, _draw: Draw) -> Floats:
    for axis in (1, 2):
        x = gaussian_filter1d(x, _BLUR[level], axis=axis, mode="nearest", truncate=4.0)
    return x


def _contrast(x: Floats, level: int, _draw: Draw) -> Floats:
    mean = x.mean(axis=(1, 2), keepdims=True)
    return (x - mean) * _CONTRAST[level] + mean


def _brightness(x: Floats, level: int, _draw: Draw) -> Floats:
    """Raise the value of HSV; hue and saturation stay, so every channel keeps its share of the largest one."""
    value = x.max(axis=3, keepdims=True)
    brighter = np.clip(value + _BRIGHTNESS[level], 0.0, 1.0)
    return np.where(value > 0, x * (brighter / np.where(value > 0, value, 1.0)), brighter)


FAMILIES: dict[str, Callable[[Floats, int, Draw], Floats]] = {
    "gaussian_noise": _gaussian_noise,
    "gaussian_blur": _gaussian_blur,
    "contrast": _contrast,
    "brightness": _brightness,
}
