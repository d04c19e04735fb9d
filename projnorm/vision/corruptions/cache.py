"""Corrupted images kept on disk, each file with the hash of what it holds."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from projnorm.files import read_file
from projnorm.runs import from_npz, to_npz, write_atomically
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
    path = folder / f"{family}-{severity}-{asked.hexdigest()[:16]}.npz"
    found = _whole(path)
    if found is None or found.shape != images.shape:
        found = corrupt(images, family, severity, seed=seed, indices=indices)
        write_atomically(path, to_npz({"images": found, "sha256": np.array(_hash(found))}))
    return found


def _whole(path: Path) -> Images | None:
    try:
        arrays = from_npz(read_file(path))
    except (FileNotFoundError, ValueError):
        return None
    images, sha256 = arrays.get("images"), arrays.get("sha256")
    if images is None or sha256 is None or images.dtype != np.uint8 or _hash(images) != str(sha256):
        return None
    return images


def _hash(images: Images) -> str:
    return hashlib.sha256(np.ascontiguousarray(images).data).hexdigest()
