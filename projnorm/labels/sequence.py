r"""A confidence sequence for the error of a finite set: an interval that holds after every label at once.

For one stratum with :math:`n` labels of which :math:`x` are wrong, the ratio of the probability of what was drawn under
a prior over the number of wrong samples to that under a number :math:`K_h` is a nonnegative martingale as long as
:math:`K_h` is the true one (the prior-posterior ratio of Waudby-Smith and Ramdas, "Confidence Sequences for Sampling
Without Replacement", NeurIPS 2020). So is the product over strata, in whatever order they are drawn from, also one that
looks at earlier labels, and by Ville's inequality

.. math:: P\Bigl(\text{ever}\ \prod_h \frac{m_h(x_h, n_h)}{L_h(x_h, n_h \mid K_h)} \ge \frac1\alpha\Bigr) \le \alpha .

The interval has every total K that some division into :math:`K_h` keeps below :math:`1 / \alpha`. The likelihoods are
log-concave, so its ends are found by a single multiplier. The prior is the mean of one that knows nothing and one that
expects what the model's outputs predict; a wrong prediction widens the interval and never invalidates it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaln, logsumexp

from projnorm.core.statistics import Floats, Interval
from projnorm.labels.counts import (
    StratumCounts,
    largest_multiplier,
    likeliest_division,
    log_choose,
    log_likelihood,
)

# Samples that a prediction is worth in the prior that trusts it, and the parameter of the one that knows nothing.
_TRUSTED, _FLAT = 10.0, 0.5
_HALVINGS = 40
# A predicted error of 0 or 1 in a stratum would not allow for surprises.
_LEAST_EXPECTED = 0.02


def anytime_interval(counts: StratumCounts, expected: ArrayLike, level: float = 0.9) -> Interval:
    """The stratified estimate with the interval of a confidence sequence; every stratum needs a label.

    >>> interval = anytime_interval(StratumCounts([1000], [50], [10]), expected=[0.2])
    >>> round(interval.value, 2), round(interval.low, 2), round(interval.high, 2)
    (0.2, 0.08, 0.37)

    Args:
        counts: What was drawn so far.
        expected: Error that is predicted in each stratum, before any label is seen.
        level: Probability that the intervals after all labels hold together.
    """
    least = log_marginal(counts, expected) - math.log(1.0 / (1.0 - level))
    low, high = (_end(counts, least, sign) for sign in (-1.0, 1.0))
    return Interval(counts.estimate, low, high)


def log_marginal(counts: StratumCounts, expected: ArrayLike) -> float:
    """Logarithm of the probability of what was drawn under the prior."""
    rates = np.clip(np.asarray(expected, float), _LEAST_EXPECTED, 1.0 - _LEAST_EXPECTED)
    trusting = _beta_binomial(counts, _TRUSTED * rates, _TRUSTED * (1.0 - rates))
    flat = _beta_binomial(counts, np.full_like(rates, _FLAT), np.full_like(rates, _FLAT))
    return float(logsumexp([trusting.sum(), flat.sum()]) - math.log(2.0))


def _end(counts: StratumCounts, least: float, sign: float) -> float:
    """The total furthest from the estimate whose likeliest division has a log likelihood of at least `least`."""
    inside, outside = 0.0, sign * largest_multiplier(counts)
    for multiplier in (outside, *([None] * _HALVINGS)):
        tried = 0.5 * (inside + outside) if multiplier is None else multiplier
        is_kept = log_likelihood(counts, likeliest_division(counts, tried)).sum() > least
        inside, outside = (tried, outside) if is_kept else (inside, tried)
    return float(likeliest_division(counts, inside).sum()) / counts.total


def _beta_binomial(counts: StratumCounts, a: Floats, b: Floats) -> Floats:
    """Log probability of the wrong labels of each stratum if its numbers of wrong samples are beta-binomial."""
    right = counts.labelled - counts.wrong
    return log_choose(counts.labelled, counts.wrong) + betaln(counts.wrong + a, right + b) - betaln(a, b)
