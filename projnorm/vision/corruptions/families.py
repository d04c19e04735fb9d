"""The families by name, and the one door to all of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from projnorm.errors import InputError
from projnorm.vision.corruptions import blur, digital, noise, spatter, weather
from projnorm.vision.corruptions.draws import Draws, Floats
from projnorm.vision.images import Images
from projnorm.vision.settings import SEVERITIES

# So many images are worked on at once; together they fit into the cache of a core.
_BLOCK = 128
_LARGEST_SEED = 2**40

Corruption = Callable[[Floats, int, Draws], Floats]

# In the order of `FAMILY_NAMES`, which is part of what is drawn: see `stream_of`.
FAMILIES: dict[str, Corruption] = {
    "gaussian_noise": noise.gaussian_noise,
    "gaussian_blur": blur.gaussian_blur,
    "contrast": digital.contrast,
    "brightness": weather.brightness,
    "defocus_blur": blur.defocus_blur,
    "elastic_transform": digital.elastic_transform,
    "fog": weather.fog,
    "frost": weather.frost,
    "glass_blur": blur.glass_blur,
    "impulse_noise": noise.impulse_noise,
    "jpeg_compression": digital.jpeg_compression,
    "motion_blur": blur.motion_blur,
    "pixelate": digital.pixelate,
    "saturate": digital.saturate,
    "shot_noise": noise.shot_noise,
    "snow": weather.snow,
    "spatter": spatter.spatter,
    "speckle_noise": noise.speckle_noise,
    "zoom_blur": blur.zoom_blur,
}


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
        InputError: If there is no such family or severity, or the images are not what they should be.
    """
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
        raise InputError(
            f"`images` must be uint8 of shape (n, height, width, 3); got {images.dtype} of shape {images.shape}."
        )
    keys = np.arange(len(images)) if indices is None else np.asarray(indices)
    if keys.shape != (len(images),):
        raise InputError(f"`indices` must hold one number per image, {len(images)}; got shape {keys.shape}.")
    stream = stream_of(family, severity, seed)
    out = np.empty_like(images)
    for start in range(0, len(images), _BLOCK):
        block = slice(start, start + _BLOCK)
        found = FAMILIES[family](images[block] / 255.0, severity - 1, Draws(stream, keys[block]))
        out[block] = (np.clip(found, 0.0, 1.0) * 255.0).astype(np.uint8)
    return out


def stream_of(family: str, severity: int, seed: int) -> int:
    """The stream of random numbers of a family at a severity: each draws its own.

    Raises:
        InputError: If there is no such family or severity, or the seed is too large for its own stream.
    """
    if family not in FAMILIES:
        raise InputError(f"`family` must be one of {', '.join(FAMILIES)}; got {family!r}.")
    if not isinstance(severity, int | np.integer) or severity not in SEVERITIES:
        raise InputError(f"`severity` must be 1 to 5; got {severity!r}.")
    if not 0 <= seed < _LARGEST_SEED:
        raise InputError(f"`seed` must be at least 0 and below {_LARGEST_SEED:,}; got {seed}.")
    return (seed * len(FAMILIES) + list(FAMILIES).index(family)) * len(SEVERITIES) + severity
