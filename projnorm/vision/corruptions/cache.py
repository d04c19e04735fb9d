"""Corrupted images, stored on disk for later runs."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from projnorm.store import Entry, Store
from projnorm.vision.corruptions.families import corrupt
from projnorm.vision.images import Images

# To be raised whenever a family yields other pixels than before.
_VERSION = 1


def corrupt_cached(
    images: Images, family: str, severity: int, *, seed: int, indices: NDArray[np.integer], folder: Path
) -> Images:
    """As `corrupt`, but stored in `folder` and read from there the next time; damaged files are computed again."""
    digest = hashlib.sha256(f"{_VERSION} {family} {severity} {seed} {images.shape}".encode())
    digest.update(np.ascontiguousarray(images).data)
    digest.update(np.ascontiguousarray(indices, dtype="<i8").data)

    def compute() -> Entry:
        return Entry({"images": corrupt(images, family, severity, seed=seed, indices=indices)})

    key = f"{family}-{severity}-{digest.hexdigest()[:16]}"
    return Store(folder).get_or_compute(key, compute).arrays["images"]
