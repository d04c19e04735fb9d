"""Counter-based random numbers: each depends only on its stream, key and position, not on earlier draws.

Every image has its own key, and all images are drawn at once: the state is a counter, mixed by the finaliser of
SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def uniforms(stream: int, keys: NDArray[np.integer], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Uniform numbers strictly between 0 and 1, shape ``(len(keys), *shape)``."""
    stream_state = _mixed(np.array([stream], dtype=np.uint64))
    states = _mixed(np.asarray(keys).astype(np.uint64) ^ stream_state)
    positions = np.arange(1, math.prod(shape) + 1, dtype=np.uint64) * _GOLDEN
    bits = _mixed(states[:, None] + positions[None, :])
    return (((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53).reshape(len(keys), *shape)


def normals(stream: int, keys: NDArray[np.integer], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Standard normal numbers, shape ``(len(keys), *shape)``."""
    return ndtri(uniforms(stream, keys, shape))


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = x + _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
