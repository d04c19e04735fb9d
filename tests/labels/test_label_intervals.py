"""Strata, and intervals from a few labels: coverage is enumerated exactly, other computations give the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import hypergeom

from projnorm.core.errors import InputError
from projnorm.labels.counts import StratumCounts, largest_multiplier, likeliest_division, log_likelihood
from projnorm.labels.plan import LabelPlan
from projnorm.labels.sequence import anytime_interval, log_marginal
from projnorm.labels.strata import Strata, strata_count
from projnorm.labels.stratified_intervals import _Divisions, guaranteed_interval, stratified_interval
from tests.strategies import generators

FIXED_INTERVALS = stratified_interval, guaranteed_interval
# No hypergeometric probability of small sets is exactly half of these away from one.
LEVELS = st.sampled_from([0.61, 0.83, 0.9123])
FEW = settings(max_examples=5)


@st.composite
def counts(draw, strata=st.integers(1, 3), largest: int = 12, most: int = 12) -> StratumCounts:
    """What at most `most` labels say of each of a few strata."""
    sizes = draw(st.lists(st.integers(1, largest), min_size=(n := draw(strata)), max_size=n))
    labelled = [draw(st.integers(1, min(most, size))) for size in sizes]
    return StratumCounts(sizes, labelled, [draw(st.integers(0, n)) for n in labelled])


def expected_everywhere(sizes, labelled, values):
    """Expectation of values of all outcomes, for each division of errors: shape ``(size + 1, ...)``, by definition."""
    for h, (size, n) in enumerate(zip(sizes, labelled, strict=True)):
        law = hypergeom.pmf(np.arange(n + 1), size, np.arange(size + 1)[:, None], n)
        values = np.moveaxis(np.tensordot(law, values, axes=(1, h)), 0, h)
    return values


def totals(sizes):
    """Number of errors of each division."""
    return np.indices([size + 1 for size in sizes]).sum(axis=0)


def worst_misses(interval, level, sizes, labelled):
    """The largest probabilities, over all divisions, that the error is below and above the interval."""
    shape, size, errors = [n + 1 for n in labelled], sum(sizes), totals(sizes)
    found = {x: interval(StratumCounts(sizes, labelled, x), level) for x in np.ndindex(*shape)}
    low, high = (np.reshape([getattr(one, end) for one in found.values()], shape) * size for end in ("low", "high"))
    misses = np.zeros(2)
    for total in range(size + 1):
        for side, missed in enumerate((low > total + 1e-6, high < total - 1e-6)):
            chances = expected_everywhere(sizes, labelled, missed.astype(float))
            misses[side] = max(misses[side], chances[errors == total].max())
    return misses


@given(generators, st.integers(1, 4), st.integers(1, 60))
def test_strata_have_equal_parts_of_the_deviations_and_labels_are_allotted_as_neyman_does(rng, count, m):
    wrong = np.round(rng.beta(0.5, 2.0, m), 2)
    found = Strata.by_error(wrong, count)
    p = 0.8 * wrong + 0.2 * wrong.mean()
    deviations = np.sqrt(np.maximum(p * (1 - p), 1e-12))
    assert found.sizes.min() > 0
    assert len(found.sizes) <= count
    parts = np.array([deviations[found.stratum_of_sample == h].sum() for h in range(len(found.sizes))])
    np.testing.assert_allclose(found.allotted, parts / deviations.sum())
    np.testing.assert_allclose(found.expected, [wrong[found.stratum_of_sample == h].mean() for h in range(len(parts))])
    # Cut along the order of the samples, at most one sample away from an equal part on either side.
    assert (np.diff(found.stratum_of_sample[np.argsort(wrong, kind="stable")]) >= 0).all()
    assert parts.max() <= deviations.sum() / count + 2 * deviations.max()


def test_samples_that_are_surely_right_are_labelled_too():
    found = Strata.by_error(np.repeat([0.0, 0.5], [900, 100]), 4)
    assert (found.expected[0], found.expected[-1]) == (0.0, 0.5)
    rates = found.allotted / found.sizes
    # They count with a fifth of the mean error, which is 5 percent.
    assert rates[0] / rates[-1] == pytest.approx(np.sqrt(0.01 * 0.99) / np.sqrt(0.41 * 0.59))


@given(generators, st.integers(1, 4), st.integers(1, 80), st.integers(1, 90))
def test_every_beginning_of_the_draws_has_about_the_allotted_parts(rng, count, m, n):
    strata = Strata.by_error(rng.beta(0.5, 2.0, m), count)
    drawn = strata.draws(n, np.random.default_rng(1))
    assert len(set(drawn.tolist())) == len(drawn) == min(n, m)
    np.testing.assert_array_equal(drawn, strata.draws(m, np.random.default_rng(1))[:n])
    taken = np.cumsum(strata.stratum_of_sample[drawn][:, None] == np.arange(len(strata.sizes)), axis=0)
    for k, so_far in enumerate(taken, start=1):
        is_open = so_far < strata.sizes
        # The one of each stratum that come first, and rounding; where a stratum is used up, the others get more.
        assert (so_far - strata.allotted * k)[is_open].min(initial=0.0) >= -len(strata.sizes)
        if (taken[k - 1] < strata.sizes).all():
            assert (so_far - strata.allotted * k).max() <= 1.0 + 1e-9


def test_the_first_labels_are_one_of_each_stratum():
    strata = Strata(np.arange(12) % 3, np.zeros(3), np.array([0.98, 0.01, 0.01]))
    assert set(strata.stratum_of_sample[strata.draws(3, np.random.default_rng(0))].tolist()) == {0, 1, 2}


def test_samples_of_a_stratum_are_equally_likely_to_be_drawn():
    strata = Strata.by_error(np.repeat([0.05, 0.4], [6, 4]), 2)
    draws = 800
    chosen = [strata.draws(5, np.random.default_rng(seed)) for seed in range(draws)]
    n, times = np.bincount(strata.stratum_of_sample[chosen[0]]), np.bincount(np.concatenate(chosen), minlength=10)
    plan = LabelPlan(chosen[0], strata.stratum_of_sample[chosen[0]], strata.sizes, strata.expected, ("",) * 5)
    np.testing.assert_allclose(plan.probabilities, (n / strata.sizes)[plan.strata])
    p = (n / strata.sizes)[strata.stratum_of_sample]
    assert (np.abs(times / draws - p) <= 4 * np.sqrt(p * (1 - p) / draws)).all()


def test_there_is_a_stratum_for_every_twenty_labels_and_two_to_four():
    assert [strata_count(n) for n in (1, 2, 39, 60, 79, 80, 10_000)] == [1, 2, 2, 3, 3, 4, 4]
    with pytest.raises(InputError, match="`budget` must be 1 or more; got 0"):
        strata_count(0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (([5], [2, 1], [0]), "must have one number for each stratum"),
        (([], [], []), "must have one number for each stratum"),
        (([5], [2], [3]), "every stratum must have 0 <= wrong <= labelled <= size"),
        (([5], [6], [3]), "every stratum must have 0 <= wrong <= labelled <= size"),
        (([5], [2], [-1]), "every stratum must have 0 <= wrong <= labelled <= size"),
        (([5, 5], [0, 0], [0, 0]), "`labelled` must be positive in one stratum or more"),
    ],
)
def test_counts_that_do_not_fit_together_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        StratumCounts(*given)


@given(counts(), st.sampled_from([-1.2, -0.4, -0.2, -0.1, 0.0, 0.1, 0.2, 0.4, 1.2]))
def test_no_division_is_likelier_than_the_likeliest(one, part):
    multiplier = part * largest_multiplier(one)
    found = likeliest_division(one, multiplier)
    assert (one.least - 1e-9 <= found).all()
    assert (found <= one.most + 1e-9).all()
    reached = log_likelihood(one, found) + multiplier * found
    for between in np.linspace(0, 1, 301):
        other = one.least + between * (one.most - one.least)
        assert (reached >= log_likelihood(one, other) + multiplier * other - 1e-9).all()
    whole = np.round(found)
    expected = hypergeom.logpmf(one.wrong, one.sizes, whole, one.labelled)
    np.testing.assert_allclose(log_likelihood(one, whole), expected, atol=1e-9)


@settings(max_examples=15)
@given(counts(strata=st.just(1), largest=40), LEVELS)
def test_for_one_stratum_both_intervals_are_that_of_clopper_and_pearson(one, level):
    (size,), (n,), (x,), alpha = one.sizes, one.labelled, one.wrong, (1 - level) / 2
    possible = np.arange(x, size - n + x + 1)
    low = possible[hypergeom.sf(x - 1, size, possible, n) > alpha][0]
    high = possible[hypergeom.cdf(x, size, possible, n) > alpha][-1]
    found = guaranteed_interval(one, level)
    np.testing.assert_allclose([found.value, found.low, found.high], [x / n, low / size, high / size])
    # The other one ends between whole numbers, where the probability is the tail's.
    found = stratified_interval(one, level)
    assert (np.ceil(found.low * size - 1e-4), np.floor(found.high * size + 1e-4)) == (low, high)


@pytest.mark.parametrize("interval", [*FIXED_INTERVALS, anytime_interval])
@FEW
@given(counts(largest=30), st.data())
def test_right_and_wrong_are_treated_alike_and_a_higher_level_is_no_narrower(interval, one, data):
    expected = np.array(data.draw(st.lists(st.floats(0, 1), min_size=len(one.sizes), max_size=len(one.sizes))))
    more, more_mirrored = ((), ()) if interval in FIXED_INTERVALS else ((expected,), (1 - expected,))
    found, wide = (interval(one, *more, level=level) for level in (0.7, 0.95))
    mirrored = interval(one.mirrored, *more_mirrored, level=0.7)
    ends = [1 - mirrored.value, 1 - mirrored.high, 1 - mirrored.low]
    np.testing.assert_allclose([found.value, found.low, found.high], ends, atol=1e-6)
    assert wide.low - 1e-6 <= found.low <= found.high <= wide.high + 1e-6
    if interval is not guaranteed_interval:  # whose ends are whole numbers of errors
        assert found.low - 1e-6 <= found.value <= found.high + 1e-6
    whole = StratumCounts(one.sizes, one.sizes, one.wrong)
    all_labelled = interval(whole, *more)
    np.testing.assert_allclose([all_labelled.low, all_labelled.high], whole.wrong.sum() / whole.total, atol=1e-9)


@pytest.mark.parametrize(
    ("level", "sizes", "labelled"),
    [(0.9, (12, 8), (4, 3)), (0.5, (5, 9), (3, 2)), (0.95, (6, 3, 5), (1, 2, 1)), (0.9, (4, 9, 4), (2, 4, 3))],
)
def test_a_guaranteed_interval_covers_whatever_the_division_of_errors_is(level, sizes, labelled):
    assert (worst_misses(guaranteed_interval, level, sizes, labelled) <= (1 - level) / 2 + 1e-9).all()


@pytest.mark.parametrize(("level", "least"), [(0.9, 0.88), (0.7, 0.65)])
def test_an_interval_at_the_likeliest_division_covers_about_as_often_as_it_says(level, least):
    assert 1 - worst_misses(stratified_interval, level, (12, 8), (4, 3)).sum() >= least


def brute_tail(one, total):
    """The largest probability of an estimate at least as large, by enumeration in whole numbers."""
    unit = np.lcm.reduce(one.labelled)
    weights = one.sizes * unit // one.labelled
    shape = [n + 1 for n in one.labelled]
    reaches = np.tensordot(weights, np.indices(shape), axes=1) >= weights @ one.wrong
    chances = expected_everywhere(one.sizes, one.labelled, reaches.astype(float))
    errors = totals(one.sizes)
    possible = tuple(slice(a, b + 1) for a, b in zip(one.least, one.most, strict=True))
    return chances[possible][errors[possible] == total].max()


def tail_probability(one, total):
    """The largest probability of an estimate at least as large, over the divisions that the search finds."""
    search = _Divisions.from_counts(one)
    return max(search.best(start) for start in search.starts(total))


def log_evidence(one, division, expected):
    """Logarithm of the martingale at a division of the errors among strata."""
    return log_marginal(one, expected) - log_likelihood(one, np.asarray(division)).sum()


@given(counts(strata=st.integers(1, 2), most=4), st.floats(0, 1))
def test_the_worst_division_between_two_strata_is_found(one, part):
    total = round(one.least.sum() + part * (one.most - one.least).sum())
    assert tail_probability(one, total) == pytest.approx(brute_tail(one, total), abs=1e-9)


@pytest.mark.parametrize(
    ("sizes", "labelled", "wrong", "total"),
    [
        ((10, 7, 11), (3, 4, 3), (0, 0, 3), 5),
        ((9, 9, 9), (3, 5, 2), (0, 0, 2), 4),
        ((5, 5, 3, 5), (4, 2, 3, 4), (1, 2, 2, 1), 7),
        ((3, 5, 3, 2), (1, 4, 1, 2), (0, 4, 0, 1), 6),
    ],
)
def test_the_worst_division_is_found_where_moves_from_an_even_one_do_not_lead_to_it(sizes, labelled, wrong, total):
    one = StratumCounts(sizes, labelled, wrong)
    assert tail_probability(one, total) == pytest.approx(brute_tail(one, total), abs=1e-9)


@given(counts(), st.data())
def test_the_evidence_against_the_true_division_is_a_martingale_whichever_stratum_is_next(one, data):
    """It falls in the mean only where the next outcome is certain."""
    division = np.array([data.draw(st.integers(a, b)) for a, b in zip(one.least, one.most, strict=True)])
    expected = [data.draw(st.floats(0, 1)) for _ in one.sizes]
    now = np.exp(log_evidence(one, division, expected))
    for h, step in enumerate(np.eye(len(one.sizes), dtype=int)):
        if (rest := one.sizes[h] - one.labelled[h]) == 0:
            continue
        mean, chance = 0.0, (division[h] - one.wrong[h]) / rest
        for p, x in ((chance, 1), (1 - chance, 0)):
            if p > 0:
                after = StratumCounts(one.sizes, one.labelled + step, one.wrong + x * step)
                mean += p * np.exp(log_evidence(after, division, expected))
        assert mean == pytest.approx(now, rel=1e-9) if 0 < chance < 1 else mean <= now * (1 + 1e-9)


@pytest.mark.parametrize(("sizes", "labelled"), [((6,), (3,)), ((5, 4), (2, 2)), ((3, 4, 2), (1, 2, 1))])
def test_the_evidence_against_the_true_division_is_one_in_the_mean_or_less_if_draws_are_impossible(sizes, labelled):
    expected = [0.9, 0.1, 0.5][: len(sizes)]
    for division in np.ndindex(*(size + 1 for size in sizes)):
        mean = 0.0
        for x in np.ndindex(*(n + 1 for n in labelled)):
            p = np.prod(hypergeom.pmf(x, sizes, division, labelled))
            if p > 0:
                mean += p * np.exp(log_evidence(StratumCounts(sizes, labelled, x), division, expected))
        are_possible = all(n <= k <= size - n for size, n, k in zip(sizes, labelled, division, strict=True))
        assert mean == pytest.approx(1.0, rel=1e-9) if are_possible else mean < 1.0


def ever_missed(sizes, expected, order, level):
    """Probability, for each division, that the error is outside some interval with strata labelled in this order."""
    division, n = np.indices([size + 1 for size in sizes]), np.zeros(len(sizes), int)
    errors = division.sum(axis=0)
    alive = {tuple(n): np.ones(errors.shape)}
    for h in order:
        before, alive = alive, {}
        for x, mass in before.items():
            chance = np.clip((division[h] - x[h]) / (sizes[h] - n[h]), 0, 1)
            for more, p in ((1, chance), (0, 1 - chance)):
                after = tuple(one + more * (k == h) for k, one in enumerate(x))
                alive[after] = alive.get(after, 0.0) + mass * p
        n[h] += 1
        for x in alive if n.all() else ():
            one = anytime_interval(StratumCounts(sizes, n, x), expected, level)
            alive[x] *= (errors >= one.low * sum(sizes) - 1e-6) & (errors <= one.high * sum(sizes) + 1e-6)
    return 1.0 - sum(alive.values())


@pytest.mark.parametrize(
    ("sizes", "expected", "order", "level"),
    [((8,), (0.2,), [0] * 6, 0.8), ((4, 2), (0.9, 0.1), [0, 1, 0, 0], 0.5)],
)
def test_an_anytime_interval_ever_misses_no_more_often_than_it_says(sizes, expected, order, level):
    missed = ever_missed(sizes, expected, order, level)
    assert 0.0 < missed.max() <= 1 - level


def test_a_right_prediction_narrows_an_anytime_interval():
    one = StratumCounts([2000, 500], [30, 30], [1, 15])
    right, wrong = (anytime_interval(one, expected) for expected in ((0.03, 0.5), (0.6, 0.02)))
    assert right.high - right.low < 0.9 * (wrong.high - wrong.low)
    assert right.value == wrong.value == pytest.approx((2000 / 30 + 500 / 2) / 2500)
