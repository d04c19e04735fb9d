"""Shifted copies of a labelled set, on which scores are calibrated: corrupted images, or rows moved and drawn anew."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep.calibration import Floats

# Three of the five severities of corruptions; the other shifts have three sizes as well.
SEVERITIES = (1, 3, 5)
_LEADING = 5
_RARE = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Shift:
    """One shifted copy of a labelled set: inputs or features, and the index of the sample that each comes from.

    Copies of one family are alike; the severity counts from 1.
    """

    family: str
    severity: int
    rows: NDArray[np.generic]
    indices: NDArray[np.intp]

    @property
    def name(self) -> str:
        """Family and severity."""
        return f"{self.family}-{self.severity}"


def corruption_families() -> tuple[str, ...]:
    """The families of CIFAR-C."""
    from projnorm.vision import FAMILIES

    return tuple(FAMILIES)


def is_images(array: NDArray[np.generic] | None) -> bool:
    """Whether `corrupted` takes these: images as bytes with colours last, or numbers from 0 to 1 with them first."""
    if array is None or array.ndim != 4 or min(array.shape) < 1:
        return False
    if array.dtype == np.uint8:
        return array.shape[3] == 3
    return array.dtype.kind == "f" and array.shape[1] == 3 and float(array.min()) >= 0.0 and float(array.max()) <= 1.0


def corrupted(
    images: NDArray[np.generic],
    *,
    seed: int,
    families: tuple[str, ...] = (),
    severities: tuple[int, ...] = SEVERITIES,
) -> Iterator[Shift]:
    """The images under families of CIFAR-C, all by default, and each severity, in the form they came in."""
    from projnorm.vision import corrupt

    is_bytes = images.dtype == np.uint8
    if is_bytes:
        pixels = images.astype(np.uint8)
    else:
        pixels = np.round(np.moveaxis(images, 1, 3).astype(np.float64) * 255.0).astype(np.uint8)
    everything = np.arange(len(images))
    for family in families or corruption_families():
        for severity in severities:
            rows: NDArray[Any] = corrupt(np.ascontiguousarray(pixels), family, severity, seed=seed)
            if not is_bytes:
                rows = np.ascontiguousarray(np.moveaxis(rows, 3, 1) / 255.0).astype(images.dtype)
            yield Shift(family, severity, rows, everything)


def moved(rows: NDArray[np.generic], *, seed: int) -> Iterator[Shift]:
    """Rows of numbers under noise, losses and rescalings, three sizes each.

    Every size is in units of the spread of a column, so that the units of the columns do not matter.
    """
    X = np.asarray(rows, dtype=np.float64)
    everything = np.arange(len(X))
    for number, (family, (move, sizes)) in enumerate(_MOVES.items()):
        for severity, size in enumerate(sizes, start=1):
            rng = np.random.default_rng((seed, number))  # the same draws at every size
            kept = rows.dtype if rows.dtype.kind == "f" else X.dtype
            yield Shift(family, severity, move(X, size, rng).astype(kept), everything)


def drawn_anew(labels: NDArray[np.int64], confidence: Floats, *, seed: int) -> Iterator[Shift]:
    """The same rows in other shares: class priors from Dirichlet laws, and samples the model is less sure of."""
    count = len(labels)
    for severity, concentration in enumerate((10.0, 1.0, 0.3), start=1):
        rng = np.random.default_rng((seed, 100, severity))
        prior = rng.dirichlet(np.full(int(labels.max()) + 1, concentration))
        yield _drawn("class priors", severity, prior[labels] / np.bincount(labels)[labels], count, rng)
    ranks = np.argsort(np.argsort(confidence)) / max(1, len(confidence) - 1)
    for severity, strength in enumerate((1.0, 2.0, 4.0), start=1):
        rng = np.random.default_rng((seed, 101, severity))
        yield _drawn("unsure samples", severity, np.exp(-strength * ranks), count, rng)


def _drawn(family: str, severity: int, weights: Floats, count: int, rng: np.random.Generator) -> Shift:
    indices = np.sort(rng.choice(len(weights), size=count, p=weights / weights.sum()))
    return Shift(family, severity, np.empty((count, 0)), indices)


def _leading_noise(X: Floats, size: float, rng: np.random.Generator) -> Floats:
    """Noise along the leading directions only."""
    centred = X - X.mean(axis=0)
    _, values, directions = np.linalg.svd(centred, full_matrices=False)
    scale = values[:_LEADING] / math.sqrt(len(X))
    return X + size * (rng.standard_normal((len(X), len(scale))) * scale) @ directions[:_LEADING]


def _rare_noise(X: Floats, size: float, rng: np.random.Generator) -> Floats:
    """Large noise on one number in twenty."""
    return X + size * X.std(axis=0) * rng.standard_normal(X.shape) * (rng.random(X.shape) < _RARE)


def _rescaled_columns(X: Floats, size: float, rng: np.random.Generator) -> Floats:
    return X.mean(axis=0) + (X - X.mean(axis=0)) * np.exp(size * rng.standard_normal(X.shape[1]))


# Each family as a function of the rows, the size of the shift and a generator, with the sizes at the severities.
_MOVES: dict[str, tuple[Callable[[Floats, float, np.random.Generator], Floats], tuple[float, float, float]]] = {
    "noise": (lambda X, size, rng: X + size * X.std(axis=0) * rng.standard_normal(X.shape), (0.3, 0.8, 1.6)),
    "leading noise": (_leading_noise, (0.3, 0.8, 1.6)),
    "rare noise": (_rare_noise, (3.0, 6.0, 12.0)),
    "toward the mean": (lambda X, size, _: X.mean(axis=0) + (1.0 - size) * (X - X.mean(axis=0)), (0.3, 0.6, 0.85)),
    "translation": (lambda X, size, rng: X + size * X.std(axis=0) * rng.standard_normal(X.shape[1]), (0.2, 0.5, 1.0)),
    "rescaled columns": (_rescaled_columns, (0.2, 0.5, 1.0)),
    # Numbers, here and there, or whole columns are replaced by the mean of their column.
    "lost numbers": (lambda X, size, rng: np.where(rng.random(X.shape) < size, X.mean(axis=0), X), (0.2, 0.4, 0.7)),
    "lost columns": (lambda X, size, rng: np.where(rng.random(X.shape[1]) < size, X.mean(axis=0), X), (0.2, 0.4, 0.7)),
    # Every row is mixed with a part of another.
    "mixing": (lambda X, size, rng: (1.0 - size) * X + size * X[rng.permutation(len(X))], (0.15, 0.3, 0.45)),
}
