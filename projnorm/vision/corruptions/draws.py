"""What a corruption draws: numbers that depend on the seed and the image alone, never on its neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from projnorm.vision.counter_random import normals, uniforms

Floats = NDArray[np.float64]

# Streams below this one are part 0 of some seed, family and severity.
_PART = 1 << 48


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """The random numbers of a family at one severity.

    Attributes:
        stream: Names the seed, the family and the severity.
        keys: Which image each one is, shape ``(n,)``.
    """

    stream: int
    keys: NDArray[np.integer]

    def normals(self, shape: tuple[int, ...], part: int = 0) -> Floats:
        """Standard normal numbers, shape ``(n, *shape)``; another `part` is independent."""
        return normals(self.stream + part * _PART, self.keys, shape)

    def uniforms(self, shape: tuple[int, ...], part: int = 0) -> Floats:
        """Numbers between 0 and 1, shape ``(n, *shape)``; another `part` is independent."""
        return uniforms(self.stream + part * _PART, self.keys, shape)
