"""Noise on every number of the image: Gaussian, shot, impulse, speckle."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.special import pdtr

from projnorm.vision.corruptions.draws import Draws, Floats
from projnorm.vision.corruptions.parameters import GAUSSIAN_NOISE, IMPULSE_NOISE, SHOT_NOISE, SPECKLE_NOISE

# Beyond so many standard deviations above its mean no Poisson number falls that 53 bits could tell.
_FAR = 12.0


def gaussian_noise(x: Floats, level: int, draws: Draws) -> Floats:
    """Add a normal number to every number of the image."""
    return x + GAUSSIAN_NOISE[level] * draws.normals(x.shape[1:])


def speckle_noise(x: Floats, level: int, draws: Draws) -> Floats:
    """Add a normal number in proportion to what is there."""
    return x + x * (SPECKLE_NOISE[level] * draws.normals(x.shape[1:]))


def impulse_noise(x: Floats, level: int, draws: Draws) -> Floats:
    """Replace a share of the numbers by 0 or 1, each as likely."""
    struck = draws.uniforms(x.shape[1:]) <= IMPULSE_NOISE[level]
    white = draws.uniforms(x.shape[1:], part=1) <= 0.5
    return np.where(struck, white.astype(np.float64), x)


def shot_noise(x: Floats, level: int, draws: Draws) -> Floats:
    """Count photons: a Poisson number of mean ``photons * x``, by inversion of its distribution function."""
    photons = SHOT_NOISE[level]
    table, counts = _poisson_table(photons)
    grey = np.round(x * 255.0)
    # Row g of the table lies between g and g + 1, so that one search serves all 256 shades.
    found = np.searchsorted(table, grey + draws.uniforms(x.shape[1:]), side="left")
    return (found - counts * grey) / photons


@lru_cache(maxsize=len(SHOT_NOISE))
def _poisson_table(photons: int) -> tuple[Floats, int]:
    """Distribution functions of the 256 means, one after the other and shifted by their number; and their length."""
    counts = int(photons + _FAR * np.sqrt(photons)) + 1
    means = photons * np.arange(256) / 255.0
    table = pdtr(np.arange(counts)[None, :], means[:, None])
    table[:, -1] = 1.0
    return (table + np.arange(256)[:, None]).ravel(), counts
