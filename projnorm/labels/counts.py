"""What labels say of strata of a finite set, and the likeliest division of its errors among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import digamma, gammaln

from projnorm.core.errors import InputError
from projnorm.core.statistics import Floats

Counts = NDArray[np.int64]
_HALVINGS = 40


@dataclass(frozen=True, slots=True, eq=False)
class StratumCounts:
    """Numbers of samples, labels and mistakes in every stratum.

    >>> counts = StratumCounts.from_samples(strata=[0, 0, 1, 1], wrong=[False, True, False, False], sizes=[20, 60])
    >>> counts.labelled, counts.wrong, counts.estimate
    (array([2, 2]), array([1, 0]), 0.125)

    Attributes:
        sizes: Number of samples in each stratum, shape ``(strata,)``.
        labelled: Number of them that were labelled.
        wrong: Number of these that the model got wrong.
    """

    sizes: Counts
    labelled: Counts
    wrong: Counts

    def __post_init__(self) -> None:
        """Refuse counts that do not fit together."""
        for name in ("sizes", "labelled", "wrong"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.int64).reshape(-1))
        if not len(self.sizes) == len(self.labelled) == len(self.wrong) or not len(self.sizes):
            raise InputError("`sizes`, `labelled` and `wrong` must have one number for each stratum.")
        if (self.wrong < 0).any() or (self.wrong > self.labelled).any() or (self.labelled > self.sizes).any():
            raise InputError("every stratum must have 0 <= wrong <= labelled <= size.")
        if not self.labelled.any():
            raise InputError("`labelled` must be positive in one stratum or more.")

    @classmethod
    def from_samples(cls, strata: ArrayLike, wrong: ArrayLike, sizes: ArrayLike) -> StratumCounts:
        """Counts from the stratum of every labelled sample, whether it is wrong, and the sizes of the strata."""
        numbers, is_wrong, n = np.asarray(strata, np.int64), np.asarray(wrong, bool), len(np.atleast_1d(sizes))
        return cls(np.asarray(sizes), np.bincount(numbers, minlength=n), np.bincount(numbers, is_wrong, n))

    @property
    def total(self) -> int:
        """Number of samples in all strata."""
        return int(self.sizes.sum())

    @property
    def least(self) -> Counts:
        """Smallest number of wrong samples that each stratum can have."""
        return self.wrong

    @property
    def most(self) -> Counts:
        """Largest number of wrong samples that each stratum can have."""
        return self.sizes - self.labelled + self.wrong

    @property
    def noise(self) -> float:
        """Variance of the estimate that comes from the draw, if the mistakes had the variance 1 in every stratum."""
        share, n = self.sizes / self.total, np.maximum(self.labelled, 1)
        return float(share**2 @ ((1.0 - n / self.sizes) / n))

    @property
    def mirrored(self) -> StratumCounts:
        """The same with right and wrong exchanged."""
        return StratumCounts(self.sizes, self.labelled, self.labelled - self.wrong)

    @property
    def estimate(self) -> float:
        """The stratified estimate; strata without labels are taken to be as wrong as the others."""
        seen = self.labelled > 0
        return float(self.sizes[seen] @ (self.wrong[seen] / self.labelled[seen]) / self.sizes[seen].sum())


def likeliest_division(counts: StratumCounts, multiplier: float) -> Floats:
    r"""Numbers of wrong samples of the strata that maximise their likelihood times :math:`e^{\mu K}`.

    For a multiplier of 0 they are the likeliest of all; as it runs through the numbers, they are the likeliest with
    their total, for every total that is possible. They need not be whole. Every stratum must have labels.
    """
    low, high = counts.least.astype(float), counts.most.astype(float)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        rises = _slope(counts, middle) + multiplier > 0.0
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    return 0.5 * (low + high)


def largest_multiplier(counts: StratumCounts) -> float:
    """A multiplier beyond which, and below whose negative, the likeliest division does not change any more."""
    ends = [np.abs(_slope(counts, end.astype(float))).max() for end in (counts.least, counts.most)]
    return float(max(ends)) + 1.0


def log_likelihood(counts: StratumCounts, division: NDArray[Any]) -> Floats:
    """Logarithm of the probability of what was drawn in each stratum, also for numbers that are not whole."""
    right = counts.labelled - counts.wrong
    return (
        log_choose(division, counts.wrong)
        + log_choose(counts.sizes - division, right)
        - log_choose(counts.sizes, counts.labelled)
    )


def log_choose(n: NDArray[Any], k: NDArray[Any]) -> Floats:
    """Logarithm of a binomial coefficient; what is negative counts as zero."""
    return gammaln(n + 1.0) - gammaln(np.maximum(k, 0) + 1.0) - gammaln(np.maximum(n - k, 0) + 1.0)


def _slope(counts: StratumCounts, division: Floats) -> Floats:
    """Derivative of the log likelihood of each stratum with respect to its number of wrong samples."""
    right = counts.labelled - counts.wrong
    rest = counts.sizes - division
    rising = digamma(division + 1.0) - digamma(division - counts.wrong + 1.0)
    return rising - digamma(rest + 1.0) + digamma(rest - right + 1.0)
