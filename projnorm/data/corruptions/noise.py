"""Noise on every channel of every pixel: Gaussian, shot, impulse, speckle."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.special import pdtr

from projnorm.data.corruptions.draws import Draws, Floats
from projnorm.data.corruptions.parameters import GAUSSIAN_NOISE, IMPULSE_NOISE, SHOT_NOISE, SPECKLE_NOISE

# Standard deviations above the mean beyond which the Poisson distribution function is 1 in double precision.
_FAR = 12.0


def gaussian_noise(x: Floats, level: int, draws: Draws) -> Floats:
    """Add normal noise."""
    return x + GAUSSIAN_NOISE[level] * draws.normals(x.shape[1:])


def speckle_noise(x: Floats, level: int, draws: Draws) -> Floats:
    """Add normal noise in proportion to the intensity."""
    return x + x * (SPECKLE_NOISE[level] * draws.normals(x.shape[1:]))


def impulse_noise(x: Floats, level: int, draws: Draws) -> Floats:
    """Replace a share of the intensities by 0 or 1 with equal probability."""
    struck = draws.uniforms(x.shape[1:]) <= IMPULSE_NOISE[level]
    white = draws.uniforms(x.shape[1:], part=1) <= 0.5
    return np.where(struck, white.astype(np.float64), x)


def shot_noise(x: Floats, level: int, draws: Draws) -> Floats:
    """Photon counts: Poisson numbers of mean ``photons * x``, by inversion of the distribution function."""
    photons = SHOT_NOISE[level]
    table, counts = _poisson_table(photons)
    grey = np.round(x * 255.0)
    # Row g of the table lies between g and g + 1, so that one search serves all 256 intensities.
    positions = np.searchsorted(table, grey + draws.uniforms(x.shape[1:]), side="left")
    return (positions - counts * grey) / photons


@lru_cache(maxsize=len(SHOT_NOISE))
def _poisson_table(photons: int) -> tuple[Floats, int]:
    """Distribution functions of the 256 means, row g shifted by g, as one array; and the length of a row."""
    counts = int(photons + _FAR * np.sqrt(photons)) + 1
    means = photons * np.arange(256) / 255.0
    table = pdtr(np.arange(counts)[None, :], means[:, None])
    table[:, -1] = 1.0
    return (table + np.arange(256)[:, None]).ravel(), counts
