"""Calibration of the probability of one class by a monotone function, and whether it needs any."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from projnorm.core.statistics import Floats

# Probabilities nearer to each other than this count as one: rounding is not a step.
_NEAR = float(np.finfo(np.float64).resolution)
# As NannyML 0.13 decides: ten splits, of which a tenth is tested, ten bins, and no calibration of a class that is told
# apart this well.
_SPLITS, _TESTED, _BINS, _SEPARATED, _SEED = 10, 0.1, 10, 0.999, 42


@dataclass(frozen=True, slots=True, eq=False)
class Isotonic:
    """A non-decreasing function: straight lines between knots, and flat beyond.

    Attributes:
        x: Places of the knots, ascending.
        y: Values there.
    """

    x: Floats
    y: Floats

    @classmethod
    def fit(cls, x: Floats, is_class: NDArray[np.bool_], weights: Floats | None = None) -> Isotonic:
        """The function of `x` nearest to being of the class, in weighted squares, with a knot at each distinct `x`."""
        order = np.argsort(x, kind="stable")
        x, is_class = x[order], is_class[order]
        weights = None if weights is None else weights[order]
        starts = np.concatenate([[True], np.diff(x) >= _NEAR])
        firsts = np.flatnonzero(starts)
        stops = np.append(firsts[1:], len(x))
        for first, stop in np.stack([firsts, stops], axis=1)[x[stops - 1] - x[firsts] >= _NEAR].tolist():
            at = first  # in a run of near values a group may end too
            while (at := at + int(np.searchsorted(x[at:stop] - x[at], _NEAR))) < stop:
                starts[at] = True
        group = np.cumsum(starts) - 1
        counts = np.bincount(group, weights)
        sums = np.bincount(group, is_class if weights is None else is_class * weights)
        kept = counts > 0.0
        means = sums[kept] / counts[kept]
        fitted = isotonic_regression(means, weights=counts[kept]).x
        return cls(x[starts][kept], np.clip(fitted, 0.0, 1.0))

    def __call__(self, x: Floats) -> Floats:
        """The calibrated probabilities."""
        return np.interp(x, self.x, self.y)


def needs_calibration(x: Floats, is_class: NDArray[np.bool_]) -> bool:
    """Whether the probability of a class is nearer to the truth once calibrated, on samples that this did not see.

    The decision of NannyML 0.13: compare the expected calibration errors of both on held-out tenths. It is no where
    there is nothing to decide by: fewer than two samples in or outside the class, or fewer than two to test on.
    """
    count, members = len(x), int(is_class.sum())
    tested = math.ceil(_TESTED * count)
    if min(members, count - members, tested) < 2 or _separation(x, is_class) > _SEPARATED:
        return False
    order = np.argsort(x, kind="stable")
    before, after, truths = [], [], []
    for test in _stratified_tests(is_class, tested):
        train = np.ones(count, dtype=bool)
        train[test] = False
        # Sorted once for all splits: sorting what is sorted takes no time.
        few = order[train[order]]
        fitted = Isotonic.fit(x[few], is_class[few])
        before.append(x[test])
        after.append(fitted(x[test]))
        truths.append(is_class[test])
    truth = np.concatenate(truths)
    return _calibration_error(np.concatenate(before), truth) > _calibration_error(np.concatenate(after), truth)


def _separation(x: Floats, is_class: NDArray[np.bool_]) -> float:
    """Area under the receiver operating characteristic."""
    inside, ordered = int(is_class.sum()), np.sort(x)
    # Ties have the mean of their ranks.
    ranks = 0.5 * (1 + np.searchsorted(ordered, x, "left") + np.searchsorted(ordered, x, "right"))
    above = float(ranks[is_class].sum()) - inside * (inside + 1) / 2
    return above / (inside * (len(x) - inside))


def _calibration_error(x: Floats, is_class: NDArray[np.bool_]) -> float:
    """Expected calibration error over bins of equally many samples; the last has the rest."""
    order = np.argsort(x, kind="stable")
    excess = (x - is_class)[order]
    bins = _BINS if len(x) > 2 * _BINS else len(x) // 2
    starts = np.arange(0, len(x) + 1, len(x) // bins)[:-1]
    return float(np.abs(np.add.reduceat(excess, starts)).sum() / len(x))


def _stratified_tests(is_class: NDArray[np.bool_], tested: int) -> Iterator[NDArray[np.int64]]:
    """Indices of the samples to test on: those that scikit-learn's StratifiedShuffleSplit draws with the same seed."""
    rng = np.random.RandomState(_SEED)
    strata = [np.flatnonzero(~is_class), np.flatnonzero(is_class)]
    counts = np.array([len(members) for members in strata])
    for _ in range(_SPLITS):
        train = _apportioned(counts, len(is_class) - tested, rng)
        test = _apportioned(counts - train, tested, rng)
        drawn = [members[rng.permutation(len(members))] for members in strata]
        rng.permutation(train.sum())
        parts = [members[a : a + b] for members, a, b in zip(drawn, train, test, strict=True)]
        yield rng.permutation(np.concatenate(parts))


def _apportioned(counts: NDArray[np.int64], draws: int, rng: np.random.RandomState) -> NDArray[np.int64]:
    """Numbers of draws nearest to proportional; of equal remainders a random one is rounded up."""
    exact = counts / counts.sum() * draws
    rounded = np.floor(exact)
    missing, remainders = int(draws - rounded.sum()), exact - rounded
    for value in np.sort(np.unique(remainders))[::-1]:
        if not missing:
            break
        places = np.flatnonzero(remainders == value)
        chosen = rng.choice(places, size=min(len(places), missing), replace=False)
        rounded[chosen] += 1
        missing -= len(chosen)
    return rounded.astype(np.int64)
