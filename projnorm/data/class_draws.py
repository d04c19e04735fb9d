"""Class shares, and samples that are drawn with given ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.intp]


def shares_of_few(classes: int, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Equal shares of `count` classes that are drawn, and none of the others."""
    shares = np.zeros(classes)
    shares[rng.choice(classes, size=count, replace=False)] = 1.0 / count
    return shares


def drawn_with_shares(
    labels: NDArray[np.int64],
    shares: NDArray[np.floating],
    most: int,
    rng: np.random.Generator,
    *,
    least_share: float = 0.0,
) -> Indices:
    """Indices of samples with these class shares, in ascending order; no sample is drawn twice.

    >>> labels = np.repeat([0, 1], [30, 10])
    >>> indices = drawn_with_shares(labels, np.array([0.5, 0.5]), 100, np.random.default_rng(0))
    >>> np.bincount(labels[indices])
    array([10, 10])

    Args:
        labels: Class of each sample, counted from 0.
        shares: Share of each class.
        most: Number of samples, unless the samples of a class allow for fewer.
        rng: Source of the draw.
        least_share: Classes with at most this share do not limit the number of samples; they give all they have.
    """
    counts = np.bincount(labels, minlength=len(shares))
    limits = [counts[k] / shares[k] for k in np.flatnonzero(shares > least_share)]
    total = min([float(most), *limits])
    return drawn_with_counts(labels, np.round(total * shares).astype(np.int64), rng)


def drawn_with_counts(labels: NDArray[np.int64], counts: NDArray[np.integer], rng: np.random.Generator) -> Indices:
    """Indices of `counts[k]` samples of every class k, or of all it has, in ascending order."""
    available = np.bincount(labels, minlength=len(counts))
    taken = np.minimum(counts, available)
    parts = [rng.choice(np.flatnonzero(labels == k), taken[k], replace=False) for k in np.flatnonzero(taken)]
    return np.sort(np.concatenate(parts)) if parts else np.empty(0, dtype=np.intp)
