"""Weather and light: fog, frost, snow and brightness."""

from __future__ import annotations

import numpy as np

from projnorm.data.corruptions.blur import moved, zoom_matrix
from projnorm.data.corruptions.draws import Draws, Floats
from projnorm.data.corruptions.parameters import BRIGHTNESS, FOG, FROST, FROST_TEXTURE, SNOW

LUMA = np.array([0.299, 0.587, 0.114])
_WOBBLE = 100.0


def fog(x: Floats, level: int, draws: Draws) -> Floats:
    """Add a plasma fractal and rescale to the largest intensity of the image."""
    amount, decay = FOG[level]
    brightest = x.max(axis=(1, 2, 3), keepdims=True)
    mist = plasma_fractal(draws, x.shape[1], x.shape[2], decay)
    return (x + amount * mist[..., None]) * brightest / (brightest + amount)


def frost(x: Floats, level: int, draws: Draws) -> Floats:
    """Mix with a texture of frost.

    CIFAR-10-C cuts its texture from five photographs, which are not bundled here. Instead each image gets a synthetic
    one: a cloudy plasma fractal with the ridges of a second one on top, which look like needles of ice, tinted blue.
    The weights of picture and frost are those of the script.
    """
    picture, ice = FROST[level]
    return picture * x + ice * frost_texture(draws, x.shape[1], x.shape[2])


def frost_texture(draws: Draws, height: int, width: int) -> Floats:
    """Synthetic texture of frost between 0 and 1, shape ``(n, height, width, 3)``."""
    ice = FROST_TEXTURE
    cloud, folded = (plasma_fractal(draws, height, width, ice.decay, part=part) for part in (0, 1))
    needles = (1.0 - np.abs(2.0 * folded - 1.0)) ** ice.sharpness
    grey = np.minimum(ice.shade + ice.cloud * cloud + ice.needles * needles, 1.0)
    return grey[..., None] * np.array(ice.tint)


def snow(x: Floats, level: int, draws: Draws) -> Floats:
    """Whiten the picture and add motion-blurred flakes, once as drawn and once rotated by 180 degrees.

    The script rounds the blurred flakes to 8 bits; here they are not rounded.
    """
    snow = SNOW[level]
    _, height, width, _ = x.shape
    flakes = snow.mean + snow.deviation * draws.normals((height, width))
    flakes = zoom_matrix(height, snow.zoom) @ flakes @ zoom_matrix(width, snow.zoom).T
    flakes = np.floor(np.clip(np.where(flakes < snow.threshold, 0.0, flakes), 0.0, 1.0) * 255.0) / 255.0
    angles = -90.0 + 45.0 * (2.0 * draws.uniforms((), part=1) - 1.0)
    flakes = moved(flakes[..., None], snow.radius, snow.sigma, angles)
    grey = (x @ LUMA)[..., None]
    whitened = snow.keep * x + (1.0 - snow.keep) * np.maximum(x, 1.5 * grey + 0.5)
    return whitened + flakes + flakes[:, ::-1, ::-1]


def brightness(x: Floats, level: int, _draws: Draws) -> Floats:
    """Raise the value in HSV at the same hue and saturation, so that the ratios of the channels stay the same."""
    value = x.max(axis=3, keepdims=True)
    brighter = np.clip(value + BRIGHTNESS[level], 0.0, 1.0)
    return np.where(value > 0, x * (brighter / np.where(value > 0, value, 1.0)), brighter)


def plasma_fractal(draws: Draws, height: int, width: int, decay: float, *, part: int = 0) -> Floats:
    """Plasma fractals by the diamond-square algorithm: heights between 0 and 1, shape ``(n, height, width)``.

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
