r"""Strata of a target by how likely each prediction is to be wrong, and how many labels each should get.

With :math:`p_i` the probability that sample i is wrong, :math:`\sqrt{p_i (1 - p_i)}` is the standard deviation of its
mistake. The samples are sorted by it and cut where its cumulative sum reaches equal parts (Dalenius and Hodges,
"Minimum Variance Stratification", JASA 1959), and labels are allotted in proportion to its sum in each stratum (Neyman,
1934). Predictions may be wrong under a shift nobody thought of, so every sample counts with a part of the mean besides
its own: no stratum is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from projnorm.core.errors import InputError
from projnorm.core.statistics import Floats

# Weight of the mean over the target in the probability that a sample is wrong.
_CAUTION = 0.2
# Number of labels for which there is a stratum, and the largest number of strata.
_LABELS_A_STRATUM, MOST_STRATA = 20, 4


@dataclass(frozen=True, slots=True, eq=False)
class Strata:
    """A division of the samples of a target.

    >>> strata = Strata.by_error(np.array([0.01, 0.02, 0.4, 0.5]), count=2)
    >>> strata.stratum_of_sample, strata.draws(3, np.random.default_rng(0))
    (array([0, 0, 1, 1]), array([0, 2, 3]))

    Attributes:
        stratum_of_sample: Stratum of each sample, counted from 0, shape ``(m,)``.
        expected: Expected error of each stratum, shape ``(strata,)``.
        allotted: Part of the labels that each stratum is allotted.
    """

    stratum_of_sample: NDArray[np.int64]
    expected: Floats
    allotted: Floats

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of samples in each stratum."""
        return np.bincount(self.stratum_of_sample, minlength=len(self.expected))

    @classmethod
    def by_error(cls, wrong: Floats, count: int) -> Strata:
        """At most `count` strata by the probability of each sample to be wrong."""
        cautious = (1.0 - _CAUTION) * wrong + _CAUTION * wrong.mean()
        deviations = np.sqrt(np.maximum(cautious * (1.0 - cautious), 1e-12))
        order = np.argsort(wrong, kind="stable")
        reached = np.cumsum(deviations[order])
        number = np.minimum((reached / reached[-1] * count - 1e-9).astype(np.int64), count - 1)
        stratum = np.empty(len(wrong), dtype=np.int64)
        stratum[order] = np.unique(number, return_inverse=True)[1]
        sizes = np.bincount(stratum)
        spread = np.bincount(stratum, deviations)
        return cls(stratum, np.bincount(stratum, wrong) / sizes, spread / spread.sum())

    @classmethod
    def single(cls, count: int) -> Strata:
        """One stratum of `count` samples, of whose errors nothing is expected."""
        return cls(np.zeros(count, dtype=np.int64), np.array([0.5]), np.array([1.0]))

    def draws(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Samples in the order in which they are to be labelled; each beginning of it has about the allotted parts.

        Within a stratum the order is random, so that the first samples of it are drawn without replacement.
        """
        sizes = self.sizes
        queues = [rng.permutation(np.flatnonzero(self.stratum_of_sample == h)) for h in range(len(sizes))]
        taken = np.zeros(len(sizes), dtype=np.int64)
        chosen = np.empty(min(count, len(self.stratum_of_sample)), dtype=np.int64)
        for position in range(len(chosen)):
            # One of each stratum first, then whichever lags most behind its part.
            lag = np.where(taken == 0, np.inf, self.allotted * (position + 1) - taken)
            h = int(np.argmax(np.where(taken < sizes, lag, -np.inf)))
            chosen[position] = queues[h][taken[h]]
            taken[h] += 1
        return chosen


def strata_count(budget: int) -> int:
    """Number of strata that a budget of labels suffices for."""
    if budget < 1:
        raise InputError(f"`budget` must be 1 or more; got {budget}.")
    return int(np.clip(budget // _LABELS_A_STRATUM, min(2, budget), MOST_STRATA))
