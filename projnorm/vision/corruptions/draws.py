"""Random numbers of corruptions, which depend only on the seed and the image, never on the other images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from projnorm.vision.counter_random import normals, uniforms

Floats = NDArray[np.float64]

# Streams below this number are part 0 of some seed, family and severity.
_PART = 1 << 48


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """Random numbers for a block of images, under one family and severity.

    Attributes:
        stream: Number of the stream, which encodes the seed, the family and the severity.
        keys: Index of each image in its data set, shape ``(n,)``.
    """

    stream: int
    keys: NDArray[np.integer]

    def normals(self, shape: tuple[int, ...], part: int = 0) -> Floats:
        """Standard normal numbers, shape ``(n, *shape)``, independent between parts."""
        return normals(self.stream + part * _PART, self.keys, shape)

    def uniforms(self, shape: tuple[int, ...], part: int = 0) -> Floats:
        """Uniform numbers between 0 and 1, shape ``(n, *shape)``, independent between parts."""
        return uniforms(self.stream + part * _PART, self.keys, shape)
