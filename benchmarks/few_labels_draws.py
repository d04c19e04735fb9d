"""Draws of labels from one target, for `few_labels.py`: the intervals of every method, and paths label by label.

Whether an interval has the truth is told by the test that it inverts, at the one total that is true: a tenth of the
time of the interval itself. The intervals are computed on a part of the draws, on which the two are compared.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import beta, betabinom, norm
from sklearn.isotonic import IsotonicRegression

from benchmarks.few_labels_sets import LabelTarget
from projnorm.core.arrays import Arrays
from projnorm.core.statistics import Interval
from projnorm.core.store import digest
from projnorm.estimators.softmax import Floats
from projnorm.labels.counts import (
    Counts,
    StratumCounts,
    largest_multiplier,
    likeliest_division,
    log_likelihood,
)
from projnorm.labels.labelled import power_tuned_interval
from projnorm.labels.sequence import _FLAT, _LEAST_EXPECTED, _TRUSTED, anytime_interval, log_marginal
from projnorm.labels.strata import Strata, strata_count
from projnorm.labels.stratified_intervals import _Divisions, guaranteed_interval, stratified_interval

try:
    from ppi_py import ppi_mean_ci, ppi_mean_pointestimate
except ImportError:
    ppi_mean_ci = ppi_mean_pointestimate = None
HAS_PPI = ppi_mean_ci is not None

LEVEL = 0.9
_ALPHA = (1.0 - LEVEL) / 2.0
BUDGETS = (25, 50, 100, 200)
POWER_TUNED, EXACT, WALD, PPI = QUICK = (
    "power-tuned",
    "uniform, Clopper-Pearson",
    "uniform, Wald",
    "uniform, ppi_mean_ci",
)
STRATIFIED, ANYTIME, GUARANTEED = SLOW = ("stratified", "anytime", "guaranteed")
# What is compared with the mean of uniform labels; the last is the best that many strata in this order could do.
WORTHS = (STRATIFIED, POWER_TUNED, PPI, "ceiling")
PATH_ANYTIME, PATH_STRATIFIED = "anytime", "stratified, every 10th label"
PATHS = (
    PATH_ANYTIME,
    PATH_STRATIFIED,
    *(f"{method}, every {often}" for method in (EXACT, WALD) for often in ("10th label", "label")),
)
PATH_LABELS, PATH_FIRST, PATH_STEP = 500, 10, 10
# Rounding of the ends of intervals, which are found by bisection.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Amount:
    """How much is drawn.

    Attributes:
        draws: Draws of labels for each set and number of labels.
        slow_draws: Draws of them on which stratified and anytime intervals are computed too.
        guaranteed_draws: Draws of them with guaranteed intervals too, which take seconds.
        paths: Paths for each set.
        slow_paths: Paths of them on which the stratified interval is looked at again and again.
        worth_draws: Draws for each target on which the worth of a label is measured.
    """

    draws: int
    slow_draws: int
    guaranteed_draws: int
    paths: int
    slow_paths: int
    worth_draws: int

    @classmethod
    def for_draws(cls, draws: int) -> Amount:
        """The usual amounts for a number of draws."""
        tenth = math.ceil(draws / 10)
        return cls(draws, tenth, math.ceil(draws / 80), draws, tenth, min(draws, 200))


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A target with its part of the draws of its set: part `number` of `parts`."""

    target: LabelTarget
    number: int
    parts: int
    amount: Amount

    def part(self, total: int) -> int:
        """The number of draws, of all those of the set, that fall to this target."""
        return len(range(self.number, total, self.parts))

    @property
    def identity(self) -> str:
        """A name for all that the result depends on."""
        target = self.target
        data = [digest(values.tolist()) for values in (target.expected, target.wrong)]
        return digest([target.suite, target.name, data, self.number, self.parts, str(self.amount), HAS_PPI])


def measured(task: Task) -> Arrays:
    """What was drawn.

    Intervals that are quick and slow, ``(budget, draw, method, 3)``; whether the stratified, the anytime and the
    guaranteed interval hold, and the stratified estimate, ``(budget, draw, 4)``; the worth of a label, ``(budget,
    worth)``; missed paths.
    """
    target = task.target
    rng = np.random.default_rng([zlib.crc32(f"{target.suite} {target.name}".encode()), task.number])
    by_budget = [_draws(task, budget, rng) for budget in BUDGETS]
    quick, slow, holds, worth = (np.stack(arrays) for arrays in zip(*by_budget, strict=True))
    paths = [
        _path(target, number < task.part(task.amount.slow_paths), rng) for number in range(task.part(task.amount.paths))
    ]
    return {
        "quick": quick,
        "slow": slow,
        "holds": holds,
        "worth": worth,
        "paths": np.array(paths, dtype=np.float64).reshape(-1, len(PATHS)),
        "truth": np.array(target.wrong.mean()),
        "label_free": np.array(target.expected.mean()),
    }


def _draws(task: Task, budget: int, rng: np.random.Generator) -> tuple[Floats, ...]:
    """Intervals of the draws of one number of labels, and what one of these labels is worth."""
    target, amount = task.target, task.amount
    strata = Strata.by_error(target.expected, strata_count(budget))
    draws, slow_draws, guaranteed = map(task.part, (amount.draws, amount.slow_draws, amount.guaranteed_draws))
    division = np.bincount(strata.stratum_of_sample, target.wrong)
    holds = np.full((draws, len(SLOW) + 1), math.nan)
    quick = np.full((draws, len(QUICK), 3), math.nan)
    slow = np.full((slow_draws, len(SLOW), 3), math.nan)
    squares = np.full((max(draws, amount.worth_draws), 2), math.nan)
    for number in range(len(squares)):
        samples = strata.draws(budget, rng)
        y, of = target.wrong[samples], strata.stratum_of_sample[samples]
        power_tuned = power_tuned_interval(y, target.expected, samples, of, strata.sizes, LEVEL)
        uniform = rng.choice(len(target.wrong), budget, replace=False)
        ppi = _ppi(target, uniform)
        squares[number] = [(interval.value - target.wrong.mean()) ** 2 for interval in (power_tuned, ppi)]
        counts = StratumCounts.from_samples(of, y, strata.sizes)
        if number < draws:
            x = int(target.wrong[uniform].sum())
            intervals = (power_tuned, _clopper_pearson(x, budget), _wald(x, budget), ppi)
            quick[number] = [(interval.value, interval.low, interval.high) for interval in intervals]
            holds[number] = (
                _stratified_holds(counts, division),
                _anytime_holds(counts, division, strata),
                _guaranteed_holds(counts, division),
                counts.estimate,
            )
        if number < slow_draws:
            slow_intervals = [stratified_interval(counts, LEVEL), anytime_interval(counts, strata.expected, LEVEL)]
            slow_intervals += [guaranteed_interval(counts, LEVEL)] if number < guaranteed else []
            ends = [(interval.value, interval.low, interval.high) for interval in slow_intervals]
            slow[number, : len(ends)] = ends
    of_uniform = _variance(np.zeros(len(target.wrong), dtype=np.int64), target.wrong, np.array([budget]))
    drawn = np.bincount(strata.stratum_of_sample[samples], minlength=len(strata.sizes))
    of_stratified = _variance(strata.stratum_of_sample, target.wrong, drawn)
    worth = [of_uniform / variance for variance in (of_stratified, *squares.mean(axis=0))]
    return quick, slow, holds, np.array([*worth, _ceiling(target)])


def _variance(of: Counts, wrong: NDArray[np.bool_], drawn: Counts) -> float:
    """Variance of the stratified estimate when `drawn` samples of the strata are taken without replacement."""
    sizes = np.bincount(of)
    rates = np.bincount(of, wrong) / sizes
    variances = rates * (1.0 - rates) * sizes / np.maximum(sizes - 1, 1)
    return float(((sizes / len(of)) ** 2 * (1.0 - drawn / sizes) * variances / drawn).sum())


def _ceiling(target: LabelTarget) -> float:
    """Worth of a label with endless strata in the order of the expected errors, and with known error rates in them."""
    rates = IsotonicRegression().fit_transform(target.expected, target.wrong)
    return float(target.wrong.var() / np.sqrt(rates * (1.0 - rates)).mean() ** 2)


def _path(target: LabelTarget, is_slow: bool, rng: np.random.Generator) -> list[float]:
    """Whether each kind of interval ever lacks the true error; nan where it is not computed."""
    truth, total = float(target.wrong.mean()), min(PATH_LABELS, len(target.wrong))
    strata = Strata.by_error(target.expected, strata_count(total))
    samples = strata.draws(total, rng)
    drawn = np.eye(len(strata.sizes), dtype=np.int64)[strata.stratum_of_sample[samples]]
    labelled, wrong = np.cumsum(drawn, axis=0), np.cumsum(drawn * target.wrong[samples, None], axis=0)
    counts = [StratumCounts(strata.sizes, *both) for both in zip(labelled, wrong, strict=True)]
    tenths = np.arange(PATH_FIRST, total + 1, PATH_STEP)
    division = np.bincount(strata.stratum_of_sample, target.wrong)
    suspects = np.flatnonzero(_evidence(strata, labelled, wrong, division) >= -math.log(1.0 - LEVEL))
    missed = [float(not all(_anytime_holds(counts[at], division, strata) for at in suspects)), math.nan]
    if is_slow:
        missed[1] = float(not all(_stratified_holds(counts[n - 1], division) for n in tenths))
    x = np.cumsum(target.wrong[rng.choice(len(target.wrong), total, replace=False)])
    n = np.arange(1, total + 1)
    for rule in (_clopper_pearson_ends, _wald_ends):
        low, high = rule(x, n)
        lacks = (truth < low - _ROUNDING) | (truth > high + _ROUNDING)
        missed += [float(lacks[tenths - 1].any()), float(lacks[PATH_FIRST - 1 :].any())]
    return missed


def _evidence(strata: Strata, labelled: Counts, wrong: Counts, division: Counts) -> Floats:
    """`_log_evidence` after every label of a path at once; minus infinity while a stratum has none."""
    rates = np.clip(strata.expected, _LEAST_EXPECTED, 1.0 - _LEAST_EXPECTED)
    priors = ((_TRUSTED * rates, _TRUSTED * (1.0 - rates)), (_FLAT, _FLAT))
    marginals = [betabinom.logpmf(wrong, labelled, *prior).sum(axis=1) for prior in priors]
    marginal = np.logaddexp(*marginals) - math.log(2.0)
    flat = StratumCounts(np.tile(strata.sizes, len(labelled)), labelled.ravel(), wrong.ravel())
    evidence = marginal - log_likelihood(flat, np.tile(division, len(labelled))).reshape(labelled.shape).sum(axis=1)
    last = StratumCounts(strata.sizes, labelled[-1], wrong[-1])
    assert math.isclose(evidence[-1], _log_evidence(last, division, strata.expected), abs_tol=1e-6)
    return np.where(labelled.all(axis=1), evidence, -math.inf)


def _anytime_holds(counts: StratumCounts, division: Counts, strata: Strata) -> bool:
    """Whether some division with the true total is not rejected; the true one need not be the last of them."""
    least, total = -math.log(1.0 - LEVEL), int(division.sum())
    return (
        _log_evidence(counts, division, strata.expected) < least
        or _log_evidence(counts, _likeliest(counts, total), strata.expected) < least
    )


def _stratified_holds(counts: StratumCounts, division: Counts) -> bool:
    """Whether the true total is rejected from neither side, at its likeliest division."""
    return not _rejecting(counts, division)


def _guaranteed_holds(counts: StratumCounts, division: Counts) -> bool:
    """The same at the worst division, at which no side rejects that does not at the likeliest."""
    totals = {False: int(division.sum()), True: counts.total - int(division.sum())}
    return all(
        _tail_probability(counts.mirrored if mirrored else counts, totals[mirrored]) > _ALPHA
        for mirrored in _rejecting(counts, division)
    )


def _rejecting(counts: StratumCounts, division: Counts) -> list[bool]:
    """Sides, False for the lower end, that reject the true total at its likeliest division."""
    likeliest = _likeliest(counts, int(division.sum()))
    sides = {False: (counts, likeliest), True: (counts.mirrored, counts.sizes - likeliest)}
    return [
        mirrored
        for mirrored, (seen, errors) in sides.items()
        if _Divisions.from_counts(seen).probability(errors) <= _ALPHA
    ]


def _log_evidence(counts: StratumCounts, division: Counts, expected: Floats) -> float:
    """Logarithm of the martingale behind `anytime_interval`, at a division of the errors among strata."""
    return log_marginal(counts, expected) - float(log_likelihood(counts, division).sum())


def _tail_probability(counts: StratumCounts, total: int) -> float:
    """The largest probability of an estimate at least as large as this one, over all divisions of `total` errors.

    Args:
        counts: What was drawn.
        total: Number of wrong samples in all strata, which must be possible after what was drawn.
    """
    search = _Divisions.from_counts(counts)
    return max(search.best(start) for start in search.starts(total))


def _likeliest(counts: StratumCounts, total: int) -> Floats:
    """The likeliest division of a number of errors, which is the last to be rejected of all that have this total."""
    end = largest_multiplier(counts)
    ends = [float(likeliest_division(counts, multiplier).sum()) for multiplier in (-end, end)]
    if not ends[0] < total < ends[1]:
        return likeliest_division(counts, -end if total <= ends[0] else end)
    return likeliest_division(counts, brentq(lambda m: likeliest_division(counts, m).sum() - total, -end, end))


def _clopper_pearson(x: int, n: int) -> Interval:
    low, high = _clopper_pearson_ends(np.array([x]), np.array([n]))
    return Interval(x / n, float(low[0]), float(high[0]))


def _wald(x: int, n: int) -> Interval:
    low, high = _wald_ends(np.array([x]), np.array([n]))
    return Interval(x / n, float(low[0]), float(high[0]))


def _clopper_pearson_ends(x: Counts, n: Counts) -> tuple[Floats, Floats]:
    low = np.where(x > 0, beta.ppf(_ALPHA, np.maximum(x, 1), n - x + 1), 0.0)
    high = np.where(x < n, beta.ppf(1.0 - _ALPHA, x + 1, np.maximum(n - x, 1)), 1.0)
    return low, high


def _wald_ends(x: Counts, n: Counts) -> tuple[Floats, Floats]:
    rate = x / n
    reach = norm.ppf(0.5 + LEVEL / 2.0) * np.sqrt(rate * (1.0 - rate) / n)
    return np.maximum(rate - reach, 0.0), np.minimum(rate + reach, 1.0)


def _ppi(target: LabelTarget, uniform: Counts) -> Interval:
    """What ppi-python says of uniform labels, with power tuning; nan if it is not installed."""
    if ppi_mean_ci is None:
        return Interval(math.nan, math.nan, math.nan)
    rest = np.delete(target.expected, uniform)
    arguments = (target.wrong[uniform].astype(float), target.expected[uniform], rest)
    low, high = ppi_mean_ci(*arguments, alpha=1.0 - LEVEL)
    return Interval(float(ppi_mean_pointestimate(*arguments)[0]), float(low[0]), float(high[0]))
