"""Images: five sets of handwritten digits, features of Office-Caltech, and digits with made corruptions and shares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.shifts.problems import (
    BOTH,
    CLASSES,
    CORRUPTION,
    DOMAIN,
    NONE,
    LabelledSet,
    Places,
    Problem,
    drawn_by_shares,
    other_than,
    split_source,
)
from projnorm.core.arrays import read_arrays
from projnorm.data.class_draws import shares_of_few

DIGIT_SETS = ("mnist", "usps", "optdigits", "mfeat", "semeion")
OFFICE_DOMAINS = ("Caltech10", "amazon", "dslr", "webcam")
# Largest pixel value of each set.
_LARGEST = {"mnist": 255, "usps": 255, "optdigits": 16, "mfeat": 6, "semeion": 1}
_SIDE = 8
_CORRUPTIONS = ("gaussian_noise", "fog", "motion_blur", "contrast", "brightness", "jpeg_compression")
_DRAWS = 3
_CLASSES = 10
_SEVERITIES = (2, 5)
_MADE_M = 1_000
_POOL_SHARE = 2 / 3


def digit_pairs(places: Places, setting: str, rng: np.random.Generator) -> Problem:
    """Handwritten digits at a common 8 x 8 pixels, enlarged to 32 x 32 RGB: one set, then the four others."""
    arrays = read_arrays(places.data / "digits.npz")
    targets = [_digits(arrays, name, "test") for name in DIGIT_SETS if name != setting]
    if f"{setting}_train_images" not in arrays:
        return split_source(_digits(arrays, setting, "test"), targets, rng)
    return Problem(_digits(arrays, setting, "train"), _digits(arrays, setting, "test"), tuple(targets))


def office(places: Places, setting: str, rng: np.random.Generator) -> Problem:
    """Ten classes of objects in four domains, as histograms of SURF features."""
    from scipy.io import loadmat

    sets = []
    for name in OFFICE_DOMAINS:
        arrays = loadmat(
            places.data / "office-caltech10-surf" / f"{name}_SURF_L10.mat", variable_names=("fts", "labels")
        )
        counts = arrays["fts"].astype(np.float64)
        labels = arrays["labels"].reshape(-1).astype(np.int64) - 1
        sets.append(LabelledSet(counts / counts.sum(axis=1, keepdims=True), labels, name, DOMAIN))
    whole, targets = other_than(sets, setting)
    return split_source(whole, targets, rng)


def shared_digits(places: Places, setting: str, rng: np.random.Generator) -> Problem:
    """Digits with other class shares, corruptions, and both; scikit-learn's, which need no download, or MNIST's."""
    from projnorm.data.datasets import digits

    if setting == "sklearn":
        splits = digits()
        train, test = (LabelledSet(part.images, part.labels) for part in (splits.train, splits.test))
    else:
        arrays = read_arrays(places.data / "digits.npz")
        train, test = (_digits(arrays, setting, part) for part in ("train", "test"))
    return made_shifts(train, test, rng)


def made_shifts(train: LabelledSet, test: LabelledSet, rng: np.random.Generator) -> Problem:
    """A part of the test images as the source, and the others with other class shares, corruptions, and both."""
    from projnorm.data.corruptions.families import corrupt

    parts = split_source(test, (), rng, share=_POOL_SHARE)
    pool, source = parts.train, parts.source
    targets = [replace(pool, name="clean", kind=NONE)]
    for law, shares in class_shares(_CLASSES, rng):
        targets.append(replace(drawn_by_shares(pool, shares, _MADE_M, rng), name=law, kind=CLASSES))
    seed = int(rng.integers(2**31))
    clean = pool.at_most(_MADE_M, rng)
    for family in _CORRUPTIONS:
        for severity in _SEVERITIES:
            images = corrupt(clean.inputs, family, severity, seed=seed)
            whole = LabelledSet(images, clean.labels, f"{family}-{severity}", CORRUPTION)
            law, shares = class_shares(_CLASSES, rng)[int(rng.integers(4 * _DRAWS))]
            part = drawn_by_shares(whole, shares, _MADE_M, rng)
            targets += [whole, replace(part, name=f"{whole.name}, {law}", kind=BOTH)]
    return Problem(train, source, tuple(targets))


def class_shares(classes: int, rng: np.random.Generator) -> list[tuple[str, NDArray[np.float64]]]:
    """Class shares from two Dirichlet laws, of two classes, and of five, several draws of each."""
    drawn = []
    for draw in range(1, _DRAWS + 1):
        drawn += [(f"Dirichlet({a:g}) {draw}", rng.dirichlet(np.full(classes, a))) for a in (1.0, 0.3)]
        for count in (2, 5):
            drawn.append((f"{count} classes {draw}", shares_of_few(classes, count, rng)))
    return drawn


def _digits(arrays: dict[str, NDArray[np.generic]], name: str, part: str) -> LabelledSet:
    """A set at the common scale; `part` is not looked at where a set has only one."""
    key = f"{name}_{part}_" if f"{name}_{part}_images" in arrays else f"{name}_"
    images = arrays[f"{key}images"].astype(np.float64) / _LARGEST[name]
    grey = np.round(255.0 * _shrunk(images)).astype(np.uint8).repeat(4, axis=1).repeat(4, axis=2)
    return LabelledSet(np.repeat(grey[..., None], 3, axis=3), arrays[f"{key}labels"].astype(np.int64), name, DOMAIN)


def _shrunk(images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means over square blocks; a margin of MNIST is cut off first, and a missing column added."""
    if images.shape[1] == 28:
        images = images[:, 2:26, 2:26]
    if images.shape[2] == 15:
        images = np.pad(images, ((0, 0), (0, 0), (0, 1)))
    block = images.shape[1] // _SIDE
    return images.reshape(len(images), _SIDE, block, _SIDE, block).mean(axis=(2, 4))
