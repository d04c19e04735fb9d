"""Plasma fractals by the diamond-square algorithm on a torus, for many images at once."""

from __future__ import annotations

import numpy as np

from projnorm.vision.corruptions.draws import Draws, Floats

_WOBBLE = 100.0


def plasma_fractal(draws: Draws, height: int, width: int, decay: float, *, part: int = 0) -> Floats:
    """Heights between 0 and 1, shape ``(n, height, width)``.

    The grid is a torus whose side is a power of two. Each round sets the centre of every square of known points, then
    the midpoint of every side, to the mean of its four neighbours plus a uniform number from ``-wobble**2`` to
    ``wobble**2``, in the order of the draws. The wobble is divided by `decay` after each round.
    """
    side = 1 << (max(height, width, 2) - 1).bit_length()
    numbers = 2.0 * draws.uniforms((side * side - 1,), part) - 1.0
    land = np.zeros((len(numbers), side, side))
    wobble, step, used = _WOBBLE, side, 0
    while step >= 2:
        half, count = step // 2, side // step
        shocks = [numbers[:, used + i * count**2 :][:, : count**2].reshape(-1, count, count) for i in range(3)]
        corners = land[:, ::step, ::step]
        pairs = corners + np.roll(corners, -1, axis=1)
        middles = (pairs + np.roll(pairs, -1, axis=2)) / 4.0 + wobble**2 * shocks[0]
        across = middles + np.roll(middles, 1, axis=1) + corners + np.roll(corners, -1, axis=2)
        along = middles + np.roll(middles, 1, axis=2) + corners + np.roll(corners, -1, axis=1)
        land[:, half::step, half::step] = middles
        land[:, ::step, half::step] = across / 4.0 + wobble**2 * shocks[1]
        land[:, half::step, ::step] = along / 4.0 + wobble**2 * shocks[2]
        used += 3 * count**2
        step, wobble = half, wobble / decay
    land -= land.min(axis=(1, 2), keepdims=True)
    land /= land.max(axis=(1, 2), keepdims=True)
    return land[:, :height, :width]
