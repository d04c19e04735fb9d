"""The families of corruptions by name, and the functions that apply them, with or without a cache on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from projnorm.core.arrays import form
from projnorm.core.errors import InputError
from projnorm.core.store import Entry, Store
from projnorm.data.corruptions import blur, digital, noise, spatter, weather
from projnorm.data.corruptions.draws import Draws, Floats
from projnorm.data.image_settings import FAMILY_NAMES, SEVERITIES
from projnorm.data.images import Images

# Images processed at once; together they fit into the cache of a core.
_BLOCK = 128
_LARGEST_SEED = 2**40
# To be raised whenever a family yields other pixels than before.
_CACHE_VERSION = 1

Corruption = Callable[[Floats, int, Draws], Floats]

_FUNCTIONS = {name: f for module in (blur, digital, noise, spatter, weather) for name, f in vars(module).items()}
FAMILIES: dict[str, Corruption] = {name: _FUNCTIONS[name] for name in FAMILY_NAMES}


def corrupt(
    images: Images, family: str, severity: int, *, seed: int, indices: NDArray[np.integer] | None = None
) -> Images:
    """Corrupt every image.

    Args:
        images: RGB images, shape ``(n, height, width, 3)``.
        family: One of `FAMILIES`.
        severity: Severity from 1 to 5.
        seed: Seed of the random numbers.
        indices: Index of each image in its data set, so that a subset is corrupted like the whole set; 0, 1, ... by
            default.
    """
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
        raise InputError(f"`images` must be uint8 of shape (n, height, width, 3); got {form(images)}.")
    keys = np.arange(len(images)) if indices is None else np.asarray(indices)
    if keys.shape != (len(images),):
        raise InputError(f"`indices` must hold one number per image, {len(images)}; got shape {keys.shape}.")
    stream = stream_of(family, severity, seed)
    out = np.empty_like(images)
    for start in range(0, len(images), _BLOCK):
        block = slice(start, start + _BLOCK)
        corrupted = FAMILIES[family](images[block] / 255.0, severity - 1, Draws(stream, keys[block]))
        out[block] = (np.clip(corrupted, 0.0, 1.0) * 255.0).astype(np.uint8)
    return out


def corrupt_cached(
    images: Images, family: str, severity: int, *, seed: int, indices: NDArray[np.integer], folder: Path
) -> Images:
    """As `corrupt`, but stored in `folder` and read from there the next time; damaged files are computed again."""
    digest = hashlib.sha256(f"{_CACHE_VERSION} {family} {severity} {seed} {images.shape}".encode())
    digest.update(np.ascontiguousarray(images).data)
    digest.update(np.ascontiguousarray(indices, dtype="<i8").data)

    def compute() -> Entry:
        return Entry({"images": corrupt(images, family, severity, seed=seed, indices=indices)})

    key = f"{family}-{severity}-{digest.hexdigest()[:16]}"
    return Store(folder).get_or_compute(key, compute).arrays["images"]


def stream_of(family: str, severity: int, seed: int) -> int:
    """Number of the stream of random numbers for a family, severity and seed; no two share one."""
    if family not in FAMILIES:
        raise InputError(f"`family` must be one of {', '.join(FAMILIES)}; got {family!r}.")
    if not isinstance(severity, int | np.integer) or severity not in SEVERITIES:
        raise InputError(f"`severity` must be 1 to 5; got {severity!r}.")
    if not 0 <= seed < _LARGEST_SEED:
        raise InputError(f"`seed` must be at least 0 and below {_LARGEST_SEED:,}; got {seed}.")
    return (seed * len(FAMILIES) + list(FAMILIES).index(family)) * len(SEVERITIES) + severity
