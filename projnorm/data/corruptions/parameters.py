"""The parameters with which CIFAR-10-C was made, one entry for each severity.

Source: Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations"
(ICLR 2019), script ``ImageNet-C/create_c/make_cifar_c.py`` of the repository ``hendrycks/robustness``. Lengths are in
pixels of a 32 px image; the numbers of `ELASTIC` are fractions of the width.
"""

from __future__ import annotations

from typing import NamedTuple

GAUSSIAN_NOISE = (0.04, 0.06, 0.08, 0.09, 0.10)  # standard deviation
SHOT_NOISE = (500, 250, 100, 75, 50)  # photons at full white
IMPULSE_NOISE = (0.01, 0.02, 0.03, 0.05, 0.07)  # share of intensities replaced
SPECKLE_NOISE = (0.06, 0.10, 0.12, 0.16, 0.20)  # standard deviation, relative to the intensity
GAUSSIAN_BLUR = (0.4, 0.6, 0.7, 0.8, 1.0)  # standard deviation
CONTRAST = (0.75, 0.5, 0.4, 0.3, 0.15)  # factor
BRIGHTNESS = (0.05, 0.1, 0.15, 0.2, 0.3)  # added to the value of HSV
JPEG = (80, 65, 58, 50, 40)  # quality
PIXELATE = (0.95, 0.9, 0.85, 0.75, 0.65)  # relative size of the small picture
ZOOM = (1.06, 1.11, 1.16, 1.21, 1.26)  # end of numpy's arange from 1 in steps of 0.01
FOG = ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))  # amount, decay of the fractal
FROST = ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))  # weight of the picture, of the frost
SATURATE = ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2))  # factor and offset of the saturation
DEFOCUS = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))  # radius of the disk, blur of its edge
MOTION = ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))  # radius, standard deviation
GLASS = ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))  # standard deviation, rounds; neighbours at 1 px
ELASTIC = (  # strength and smoothness of the field, shift of the corners
    (0.0, 0.0, 0.08),
    (0.05, 0.2, 0.07),
    (0.08, 0.06, 0.06),
    (0.1, 0.04, 0.05),
    (0.1, 0.03, 0.03),
)


class Snow(NamedTuple):
    """Parameters of the snowflakes at one severity."""

    mean: float
    deviation: float
    zoom: float
    threshold: float
    radius: int
    sigma: float
    keep: float


SNOW = (
    Snow(0.1, 0.2, 1.0, 0.6, 8, 3.0, 0.95),
    Snow(0.1, 0.2, 1.0, 0.5, 10, 4.0, 0.9),
    Snow(0.15, 0.3, 1.75, 0.55, 10, 4.0, 0.9),
    Snow(0.25, 0.3, 2.25, 0.6, 12, 6.0, 0.85),
    Snow(0.3, 0.3, 1.25, 0.65, 14, 12.0, 0.8),
)


class Spatter(NamedTuple):
    """Parameters of the drops at one severity; `strength` is the opacity of water or the smoothness of mud."""

    mean: float
    deviation: float
    sigma: float
    threshold: float
    strength: float
    mud: bool


SPATTER = (
    Spatter(0.62, 0.1, 0.7, 0.7, 0.5, False),
    Spatter(0.65, 0.1, 0.8, 0.7, 0.5, False),
    Spatter(0.65, 0.3, 1.0, 0.69, 0.5, False),
    Spatter(0.65, 0.1, 0.7, 0.69, 0.6, True),
    Spatter(0.65, 0.1, 0.5, 0.68, 0.6, True),
)


class FrostTexture(NamedTuple):
    """Parameters of the synthetic frost that replaces the script's photographs: fractal decay, and weights."""

    decay: float
    shade: float
    cloud: float
    needles: float
    sharpness: int
    tint: tuple[float, float, float]


FROST_TEXTURE = FrostTexture(1.4, 0.1, 0.5, 0.7, 4, (0.88, 0.95, 1.0))
