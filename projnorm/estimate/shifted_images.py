"""Shifted copies of images and draws of samples in other class shares, on which scores are calibrated.

The families are the corruptions of CIFAR-C, changes of geometry, occlusions, changes of colour, pairs of corruptions,
and mixtures of corrupted with clean images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from projnorm.core.statistics import Floats
from projnorm.data.class_draws import shares_of_few

# Severities of the corruptions, of five, and of the transformations, of three.
SEVERITIES, TRANSFORMED = (1, 3, 5), (1, 3)
PAIRS = (
    ("gaussian_noise", "contrast"),
    ("defocus_blur", "fog"),
    ("jpeg_compression", "brightness"),
    ("motion_blur", "gaussian_noise"),
    ("snow", "pixelate"),
)
_PAIR_SEVERITY = 2
# Class shares that every set is drawn with besides its own: concentration of a Dirichlet law.
CONCENTRATIONS = (1.0, 0.3)
# Shares up to this do not limit how many samples can be drawn.
LEAST_SHARE = 0.02

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class Shift:
    """One shifted copy of images.

    Attributes:
        family: Kind of the shift; copies of one family are alike.
        severity: Strength, counted from 1.
        images: The copy, in the form that the images came in.
    """

    family: str
    severity: int
    images: NDArray[Any]

    @property
    def name(self) -> str:
        """Family and severity."""
        return f"{self.family}-{self.severity}"


def is_images(array: NDArray[np.generic] | None) -> bool:
    """Whether `shifted_images` takes these: bytes with colours last, or numbers from 0 to 1 with them first."""
    if array is None or array.ndim != 4 or min(array.shape) < 1:
        return False
    if array.dtype == np.uint8:
        return array.shape[3] == 3
    return array.dtype.kind == "f" and array.shape[1] == 3 and float(array.min()) >= 0.0 and float(array.max()) <= 1.0


def image_shifts() -> list[tuple[str, int, Callable[[Bytes, int], Bytes]]]:
    """Family, severity and function of every shift; the function takes images and a seed."""
    from projnorm.data.corruptions.families import FAMILIES, corrupt
    from projnorm.data.transformations import TRANSFORMATIONS, transform

    def corruption(family: str, severity: int, images: Bytes, seed: int) -> Bytes:
        return corrupt(images, family, severity, seed=seed)

    def transformation(family: str, severity: int, images: Bytes, seed: int) -> Bytes:
        return transform(images, family, severity, seed=seed)

    def pair(first: str, second: str, images: Bytes, seed: int) -> Bytes:
        return corrupt(corrupt(images, first, _PAIR_SEVERITY, seed=seed), second, _PAIR_SEVERITY, seed=seed + 1)

    shifts: list[tuple[str, int, Callable[[Bytes, int], Bytes]]] = []
    for family in FAMILIES:
        shifts += [(family, strength, partial(corruption, family, strength)) for strength in SEVERITIES]
    for family in TRANSFORMATIONS:
        shifts += [(family, strength, partial(transformation, family, strength)) for strength in TRANSFORMED]
    return shifts + [(f"{a} and {b}", 1, partial(pair, a, b)) for a, b in PAIRS]


def shifted_images(images: NDArray[Any], *, seed: int) -> Iterator[Shift]:
    """The images under every shift that changes them, in the form they came in."""
    is_bytes = images.dtype == np.uint8
    colours_last = images if is_bytes else np.round(np.moveaxis(images, 1, 3).astype(np.float64) * 255.0)
    pixels: Bytes = np.ascontiguousarray(colours_last.astype(np.uint8))
    for family, severity, change in image_shifts():
        rows: NDArray[Any] = change(pixels, seed)
        if np.array_equal(rows, pixels):  # a change of colours of grey images is none
            continue
        if not is_bytes:
            rows = np.ascontiguousarray(np.moveaxis(rows, 3, 1) / 255.0).astype(images.dtype)
        yield Shift(family, severity, rows)


def other_shares(classes: int, rng: np.random.Generator) -> list[Floats]:
    """Class shares from two Dirichlet laws, of two classes alone, and of half of them alone."""
    few = [shares_of_few(classes, count, rng) for count in (min(2, classes), max(1, classes // 2))]
    return [*(rng.dirichlet(np.full(classes, concentration)) for concentration in CONCENTRATIONS), *few]
