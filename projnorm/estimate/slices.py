"""Slices of the source serve as labelled shifts: thirds of a column, clusters of rows, and blocks in the order of rows.

How much confidence misses the errors of slices by, beyond sampling noise, is the least that it must be expected to miss
the error of a target by. It can miss by more, since the inputs mean the same in every slice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2

from projnorm.core.statistics import Floats
from projnorm.outputs.outputs import Outputs
from projnorm.outputs.table_encoder import TableEncoder

# Least number of samples in a slice, and largest number of columns that are cut: those with the most distinct values.
_FEWEST_SAMPLES, _MOST_COLUMNS = 50, 12
_CLUSTERS, _BLOCKS = 6, 4
_ROUNDING = 1e-9
_DIGITS = 6
# Least number of slices from which the deviation is estimated.
_FEWEST_SLICES = 5


def slice_spread(source: Outputs, expected: Callable[[NDArray[np.intp]], float], *, seed: int) -> float:
    """Standard deviation of the errors of an estimate on slices, beyond sampling noise; 0 if unknown.

    Args:
        source: Labelled outputs with the inputs they are of, or features.
        expected: Function from the indices of samples to the error that is estimated for them.
        seed: Seed of the clusters.
    """
    rows = _rows(source)
    if rows is None:
        return 0.0
    wrong, missed, noise = source.predicted != source.known_labels, [], []
    for indices in _slices(rows, seed):
        error = float(wrong[indices].mean())
        missed.append(error - expected(indices))
        noise.append(error * (1.0 - error) / len(indices))
    if len(missed) < _FEWEST_SLICES:
        return 0.0
    return math.sqrt(max(0.0, float(np.mean(np.square(missed)) - np.mean(noise))))


def _rows(source: Outputs) -> Floats | None:
    """A table of numbers without missing entries: the inputs where they are a table, else the features."""
    encoder = TableEncoder.fit(source.inputs)
    if encoder is not None:
        rows = encoder.transform(source.inputs)
    elif source.features is not None:
        rows = np.asarray(source.features, dtype=np.float64)
    else:
        return None
    known = np.isfinite(rows)
    means = np.where(known, rows, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    rows = np.where(known, rows, means)
    varies = rows.std(axis=0) > _ROUNDING * np.abs(rows).max(axis=0)  # a constant may have a spread by rounding
    return rows[:, varies] if varies.any() else None


def _slices(rows: Floats, seed: int) -> Iterator[NDArray[np.intp]]:
    """Indices of the samples in each slice."""
    count = len(rows)
    distinct = np.array([len(np.unique(column)) for column in rows.T])
    for column in rows.T[np.argsort(-distinct, kind="stable")[:_MOST_COLUMNS]]:
        low, high = np.quantile(column, [1.0 / 3.0, 2.0 / 3.0])
        yield from _large(np.flatnonzero(column <= low), count)
        yield from _large(np.flatnonzero(column >= high), count)
    standardised = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    # Rows that differ by rounding alone are one; there are no more clusters than rows.
    different = len(np.unique(standardised.round(_DIGITS), axis=0))
    _, cluster = kmeans2(standardised, min(_CLUSTERS, different), minit="++", seed=np.random.default_rng(seed))
    for number in range(_CLUSTERS):
        yield from _large(np.flatnonzero(cluster == number), count)
    for block in np.array_split(np.arange(count), _BLOCKS):
        yield from _large(block, count)


def _large(indices: NDArray[np.intp], count: int) -> Iterator[NDArray[np.intp]]:
    """The slice, if it has enough samples and is not nearly the whole."""
    if _FEWEST_SAMPLES <= len(indices) <= 0.8 * count:
        yield indices
