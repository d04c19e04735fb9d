"""A cache of corrupted images on disk."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from projnorm.store import Entry, Store
from projnorm.vision.corruptions.families import corrupt
from projnorm.vision.images import Images

# Changes whenever a family gives other pixels than before.
_VERSION = 1


def corrupt_cached(
    images: Images, family: str, severity: int, *, seed: int, indices: NDArray[np.integer], folder: Path
) -> Images:
    """As `corrupt`, but read from `folder` where it was computed before; a damaged file is computed again.

    Raises:
        ValueError: If there is no such family or severity.
        OSError: If the folder cannot be written to.
    """
    asked = hashlib.sha256(f"{_VERSION} {family} {severity} {seed} {images.shape}".encode())
    asked.update(np.ascontiguousarray(images).data)
    asked.update(np.ascontiguousarray(indices, dtype="<i8").data)

    def compute() -> Entry:
        return Entry({"images": corrupt(images, family, severity, seed=seed, indices=indices)})

    return Store(folder).get_or_compute(f"{family}-{severity}-{asked.hexdigest()[:16]}", compute).arrays["images"]
