"""The alarm is an e-process: exact expectations at most 1, rarely ever false, quick where the error rises."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import beta, binom, hypergeom

from projnorm.core.errors import InputError
from projnorm.labels.counts import StratumCounts
from projnorm.monitor.alarm import Alarm, labelled_log_values, log_values, source_margin

RATES = st.floats(0.02, 0.9)


def mistakes(count, n):
    return np.repeat([1.0, 0.0], [count, n - count])


@given(RATES, st.integers(1, 200), st.floats(0.0, 1.0))
def test_a_value_of_a_count_has_mean_one_at_the_threshold_and_less_below_it(threshold, n, part):
    counts = np.arange(n + 1)
    values = np.exp([log_values(threshold, mistakes(k, n)) for k in counts])
    assert binom.pmf(counts, n, threshold) @ values == pytest.approx(np.ones(6), rel=1e-9)
    assert (binom.pmf(counts, n, part * threshold) @ values <= 1.0 + 1e-9).all()


@given(RATES, st.integers(0, 1000))
def test_numbers_between_0_and_1_whose_mean_is_the_threshold_have_values_of_mean_one(threshold, seed):
    # Two numbers with the threshold as mean, neither 0 nor 1.
    rng = np.random.default_rng(seed)
    low, high = threshold * rng.random(), threshold + (1.0 - threshold) * rng.random()
    weight = (threshold - low) / (high - low)
    values = np.exp([log_values(threshold, np.array([one])) for one in (low, high)])
    assert (1.0 - weight) * values[0] + weight * values[1] == pytest.approx(np.ones(6))


def test_labels_of_one_stratum_are_a_count():
    found = labelled_log_values(0.2, StratumCounts([10**6], [30], [9]))
    assert found == pytest.approx(log_values(0.2, mistakes(9, 30)), abs=1e-9)


def test_numbers_that_vary_less_say_more():
    quiet = log_values(0.2, np.full(100, 0.25))
    assert quiet.max() > 2.0 * log_values(0.2, mistakes(25, 100)).max()


@pytest.mark.parametrize("wrong", [(0, 0, 8), (8, 0, 0), (3, 2, 3), (0, 4, 4), (1, 1, 1)])
def test_labels_within_strata_have_a_mean_of_at_most_one_for_every_division_of_the_errors(wrong):
    sizes, labelled = np.array([20, 10, 10]), np.array([3, 4, 3])
    mean = np.zeros(6)
    for drawn in itertools.product(*(range(n + 1) for n in labelled)):
        chance = np.prod(hypergeom.pmf(drawn, sizes, wrong, labelled))
        if chance > 0.0:
            mean += chance * np.exp(labelled_log_values(0.2, StratumCounts(sizes, labelled, np.array(drawn))))
    assert (mean <= 1.0 + 1e-9).all()
    assert mean[0] > 0.9 or sum(wrong) < 8


def test_labels_of_every_stratum_are_needed():
    with pytest.raises(InputError, match="every stratum must have a label"):
        labelled_log_values(0.2, StratumCounts([5, 5], [3, 0], [1, 0]))


def test_evidence_is_the_mean_over_the_batches_in_which_the_error_may_have_risen():
    values = [log_values(0.2, mistakes(count, 50)) for count in (5, 15, 18)]
    alarm = Alarm(0.2)
    for one in values:
        alarm = alarm.after(one)
    begun = [np.exp(sum(values[j:])).mean() / ((j + 1) * (j + 2)) for j in range(3)]
    assert math.exp(alarm.log_evidence) == pytest.approx(sum(begun) + 1.0 / 4.0)
    assert Alarm(0.2).log_evidence == 0.0


def test_an_alarm_is_seldom_ever_false_at_the_threshold_and_soon_true_above_it():
    rng = np.random.default_rng(0)

    def alarmed_after(rates, m=100):
        alarm = Alarm(0.2, 0.1)
        for number, rate in enumerate(rates, start=1):
            alarm = alarm.after(log_values(0.2, mistakes(rng.binomial(m, rate), m)))
            if alarm.is_raised:
                assert alarm.batch_of_alarm == number
                return number
        return 0

    paths = 300
    false = np.mean([alarmed_after([0.2] * 100) > 0 for _ in range(paths)])
    assert false <= 0.1 + 3.0 * math.sqrt(0.1 * 0.9 / paths)
    naive = np.mean([(rng.binomial(100, 0.2, 100) > binom.ppf(0.9, 100, 0.2)).any() for _ in range(paths)])
    assert naive > 0.9  # each batch tested by itself
    assert np.median([alarmed_after([0.1] * 50 + [0.35] * 50) - 50 for _ in range(20)]) <= 5


def test_what_was_raised_stays_raised():
    alarm = Alarm(0.2).after(log_values(0.2, mistakes(450, 500)))
    assert alarm.batch_of_alarm == 1
    assert alarm.after(log_values(0.2, mistakes(0, 5000))).batch_of_alarm == 1


def test_room_for_the_source_is_what_its_labels_leave_open():
    room = source_margin(0.2, 400, 0.05)
    assert beta.cdf(0.2 + room, 81, 320) == pytest.approx(0.95)
    assert source_margin(0.2, 40_000, 0.05) < room / 5


@pytest.mark.parametrize(("threshold", "alpha"), [(0.0, 0.05), (1.0, 0.05), (0.2, 0.0), (0.2, 1.5)])
def test_what_is_no_probability_is_refused(threshold, alpha):
    with pytest.raises(InputError, match="must be above 0 and below 1"):
        Alarm(threshold, alpha)
