r"""Intervals for the error of a finite set from labels that were drawn at random within strata.

Stratum h has :math:`N_h` samples, of which :math:`n_h` were drawn without replacement and :math:`x_h` are wrong. With
:math:`K_h` the unknown number of wrong samples in it, :math:`x_h` has a hypergeometric law, and the estimate is

.. math:: T = \sum_h \frac{N_h}{N} \frac{x_h}{n_h}, \qquad \text{of} \quad \frac{K}{N} = \frac{1}{N} \sum_h K_h .

Both intervals invert a test with the exact law of T: a total K lies above the lower end if an estimate as large as this
one, or larger, has a probability above half of the miscoverage. That probability depends on how the K errors are
divided among the strata.

- `stratified_interval` takes the likeliest division after what was drawn, as in the estimated p-values of Storer and
  Kim, "Exact Properties of Some Exact Test Statistics for Comparing Two Binomial Proportions" (JASA 1990). Its coverage
  is near the level also with few labels; docs/few-labels.md has what was measured.
- `guaranteed_interval` takes the worst division (Wendell and Schmee, "Exact Inference for Proportions from a Stratified
  Finite Population", JASA 1996), so it holds with at least its level for every set and number of labels, as far as that
  division is found: by moving errors between pairs of strata, from several beginnings. It has to allow for strata that
  are useless, and is no narrower than without them.

With one stratum both are the interval of Clopper and Pearson for a hypergeometric law.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from projnorm.core.statistics import Floats, Interval
from projnorm.labels.counts import (
    Counts,
    StratumCounts,
    largest_multiplier,
    likeliest_division,
    log_choose,
)

# Values that the estimate is rounded to, always so that probabilities grow; a power of two for the Fourier transform.
_GRID = 4096
# Divisions tried along a line between two strata at once, and rounds over all pairs of strata.
_TRIED, _ROUNDS = 17, 12
# A round that raises the probability by less than this is the last one.
_NO_RISE = 1e-7
# Halvings of the range of the multiplier.
_HALVINGS = 30


def stratified_interval(counts: StratumCounts, level: float = 0.9) -> Interval:
    """The stratified estimate with an interval at the likeliest division of errors; every stratum needs a label.

    >>> interval = stratified_interval(StratumCounts([500, 500], [25, 25], [1, 9]))
    >>> round(interval.value, 2), round(interval.low, 2), round(interval.high, 2)
    (0.2, 0.12, 0.3)
    """
    low, high = (_likeliest_end(side, level) for side in (counts, counts.mirrored))
    return _around(counts.estimate, low, 1.0 - high)


def guaranteed_interval(counts: StratumCounts, level: float = 0.9) -> Interval:
    """The stratified estimate with an interval that holds with at least this probability, whatever the errors are."""
    low, high = (_guaranteed_end(side, level) for side in (counts, counts.mirrored))
    return _around(counts.estimate, low, 1.0 - high)


def _around(error: float, low: float, high: float) -> Interval:
    """An interval that has the estimate in it: that of the likeliest division may be another, by less than a sample."""
    return Interval(error, min(low, error), max(high, error))


def _likeliest_end(counts: StratumCounts, level: float) -> float:
    """Lower end at the likeliest division: as far as a falling multiplier goes with a probability above the tail's."""
    search, alpha = _Divisions.from_counts(counts), (1.0 - level) / 2.0
    inside, outside = 0.0, -largest_multiplier(counts)
    for _ in range(_HALVINGS):
        middle = 0.5 * (inside + outside)
        if search.probability(likeliest_division(counts, middle)) > alpha:
            inside = middle
        else:
            outside = middle
    return float(likeliest_division(counts, inside).sum()) / counts.total


def _guaranteed_end(counts: StratumCounts, level: float) -> float:
    """Lower end at the worst division."""
    search, alpha = _Divisions.from_counts(counts), (1.0 - level) / 2.0
    outside = int(counts.least.sum()) - 1
    inside = max(outside + 1, round(counts.estimate * counts.total))
    inside = min(inside, int(counts.most.sum()))
    while inside - outside > 1:
        middle = (inside + outside) // 2
        if any(search.best(start) > alpha for start in search.starts(middle)):
            inside = middle
        else:
            outside = middle
    return inside / counts.total


@dataclass(frozen=True, slots=True, eq=False)
class _Divisions:
    """Divisions of a number of errors among strata, and the probability of an estimate at least as large as observed.

    Attributes:
        counts: What was drawn.
        places: Place on the grid, from above, that each number of wrong labels adds to the estimate, by stratum.
        observed: Place of the observed estimate.
    """

    counts: StratumCounts
    places: tuple[Counts, ...]
    observed: int

    @classmethod
    def from_counts(cls, counts: StratumCounts) -> _Divisions:
        drawn = np.maximum(counts.labelled, 1)
        steps = counts.sizes / counts.total / drawn
        # Rounded upwards, sums reach the observed one whenever the estimate reaches the observed estimate.
        grid = _GRID - 1 - len(steps)
        places = tuple(
            np.ceil(np.arange(n + 1) * step * grid - 1e-9).astype(np.int64)
            for n, step in zip(counts.labelled, steps, strict=True)
        )
        observed = int(np.ceil(counts.wrong @ steps * grid - 1e-9))
        return cls(counts, places, observed)

    def starts(self, total: int) -> list[Counts]:
        """Divisions to begin with.

        They are one rate for all, rates like those observed, and each stratum as wrong or as right as can be; from the
        first two alone, the search misses the worst division at times.
        """
        c = self.counts
        even: Floats = np.asarray(c.sizes * (total / c.total), dtype=np.float64)
        divisions = [self._adding_up(rates, total) for rates in (even, c.sizes * (c.wrong + 0.5) / (c.labelled + 1.0))]
        for h in range(len(even)):
            for extreme in (c.most, c.least):
                division = even.copy()
                division[h] = extreme[h]
                divisions.append(self._adding_up(division, total, last=h))
        return [np.array(division) for division in dict.fromkeys(tuple(division.tolist()) for division in divisions)]

    def best(self, division: Counts) -> float:
        """The largest probability that is found by moving errors between pairs of strata."""
        pairs = [(i, j) for i in range(len(division)) for j in range(i)]
        probability = self.probability(division)
        for _ in range(_ROUNDS if pairs else 0):
            before = probability
            for i, j in pairs:
                probability, division = self._moved(division, i, j, probability)
            if probability - before < _NO_RISE:
                break
        return probability

    def probability(self, division: NDArray[Any]) -> float:
        """Probability of an estimate at least as large as the observed one, by a division that need not be whole."""
        return float(self._sums(division)[self.observed :].sum())

    def _moved(self, division: Counts, i: int, j: int, probability: float) -> tuple[float, Counts]:
        """The best move of errors from stratum i to j or back, with the probability that it gives."""
        low = max(self.counts.least[i] - division[i], division[j] - self.counts.most[j])
        high = min(self.counts.most[i] - division[i], division[j] - self.counts.least[j])
        if low >= high:
            return probability, division
        others = self._sums(division, without=(i, j))
        # Probability that the other strata reach what i and j leave.
        reach = np.append(np.cumsum(others[::-1])[::-1], 0.0)
        missing = np.maximum(self.observed - self.places[i][:, None] - self.places[j][None, :], 0)
        pair = reach[missing]
        best = 0
        while True:
            moves = np.unique(np.linspace(low, high, _TRIED).round().astype(np.int64))
            first, second = self._laws(i, division[i] + moves), self._laws(j, division[j] - moves)
            values = np.einsum("ma,ab,mb->m", first, pair, second, optimize=True)
            at = int(values.argmax())
            if values[at] > probability:
                probability, best = float(values[at]), int(moves[at])
            if len(moves) < _TRIED:
                break
            low, high = int(moves[max(0, at - 1)]), int(moves[min(len(moves) - 1, at + 1)])
        moved = division.copy()
        moved[i] += best
        moved[j] -= best
        return probability, moved

    def _sums(self, division: NDArray[Any], without: tuple[int, ...] = ()) -> Floats:
        """Probability of every place of the sum over strata."""
        product = np.ones(_GRID // 2 + 1, dtype=complex)
        for h, wrong in enumerate(division.tolist()):
            if h not in without:
                # Between two whole numbers, the mixture of their laws.
                below = math.floor(wrong)
                laws = self._laws(h, np.array([below, math.ceil(wrong)]))
                law = laws[0] + (wrong - below) * (laws[1] - laws[0])
                product *= np.fft.rfft(np.bincount(self.places[h], law, _GRID))
        return np.maximum(np.fft.irfft(product, _GRID), 0.0)

    def _laws(self, h: int, wrong: Counts) -> Floats:
        """Hypergeometric probabilities of every number of wrong labels, a row for each number of wrong samples."""
        n, size = int(self.counts.labelled[h]), int(self.counts.sizes[h])
        x, K = np.arange(n + 1)[None, :], wrong[:, None]
        with np.errstate(invalid="ignore"):
            logs = log_choose(K, x) + log_choose(size - K, n - x) - log_choose(np.array(size), np.array(n))
        possible = (x <= K) & (n - x <= size - K)
        return np.where(possible, np.exp(np.where(possible, logs, 0.0)), 0.0)

    def _adding_up(self, division: Floats, total: int, last: int = -1) -> Counts:
        """Whole numbers near these that each stratum can have and that add up to the total; `last` changes last."""
        whole = np.clip(np.round(division), self.counts.least, self.counts.most).astype(np.int64)
        order = np.argsort(-(self.counts.most - self.counts.least))
        for h in sorted(order, key=lambda h: h == last):
            excess = int(whole.sum()) - total
            whole[h] = np.clip(whole[h] - excess, self.counts.least[h], self.counts.most[h])
        return whole
