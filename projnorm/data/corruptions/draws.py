"""Random numbers of corruptions, which depend only on the seed and the image, never on the other images.

They are counter-based: a number is a function of its stream, key and position, not of earlier draws. Every image has
its own key, and all images are drawn at once: the state is a counter, mixed by the finaliser of SplitMix64 (Steele, Lea
and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from projnorm.core.statistics import Floats as Floats

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# Streams below this number are part 0 of some seed, family and severity.
_PART = 1 << 48


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """Random numbers for a block of images, whose `keys` are their indices in the data set, shape ``(n,)``.

    The number `stream` encodes the seed, the family and the severity.
    """

    stream: int
    keys: NDArray[np.integer]

    def normals(self, shape: tuple[int, ...], part: int = 0) -> Floats:
        """Standard normal numbers, shape ``(n, *shape)``, independent between parts."""
        return ndtri(self.uniforms(shape, part))

    def uniforms(self, shape: tuple[int, ...], part: int = 0) -> Floats:
        """Uniform numbers strictly between 0 and 1, shape ``(n, *shape)``, independent between parts."""
        stream_state = _mixed(np.array([self.stream + part * _PART], dtype=np.uint64))
        states = _mixed(np.asarray(self.keys).astype(np.uint64) ^ stream_state)
        positions = np.arange(1, math.prod(shape) + 1, dtype=np.uint64) * _GOLDEN
        bits = _mixed(states[:, None] + positions[None, :])
        return (((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53).reshape(len(self.keys), *shape)


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = x + _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
