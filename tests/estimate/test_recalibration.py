"""Labels of earlier batches correct later estimates: the formulas, their limits, and what they are worth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

import projnorm as pn
from projnorm.core.errors import InputError
from projnorm.estimate.recalibration import Recalibration
from tests.monitor.test_monitor import outputs


def test_one_exact_batch_moves_the_estimate_by_most_of_what_it_missed():
    recalibration = Recalibration.fit(np.array([0.3]), np.array([0.2]), np.zeros(1), 0.04)
    # Prior variance 0.04^2 of the shared part, 0.6 of it between batches: 1 / (1 + 0.6) of the difference.
    assert recalibration.shift == pytest.approx(0.1 / 1.6)
    assert recalibration.deviation**2 == pytest.approx(0.04**2 * (1.0 / (1.0 + 1.0 / 0.6) + 0.6))
    assert recalibration.batches == 1


def test_many_equal_batches_give_what_they_have_in_common_and_later_ones_count_more():
    same = Recalibration.fit(np.full(50, 0.3), np.full(50, 0.2), np.zeros(50), 0.1)
    assert same.shift == pytest.approx(0.1, abs=0.01)
    assert same.deviation < 0.07
    rising, falling = (
        Recalibration.fit(np.linspace(*ends, 10), np.full(10, 0.2), np.zeros(10), 0.1)
        for ends in ((0.2, 0.4), (0.4, 0.2))
    )
    assert rising.shift > 0.11 > 0.09 > falling.shift > 0.0


def test_variance_of_labels_is_not_taken_for_a_difference_between_batches():
    differences = np.random.default_rng(0).normal(0.0, 0.05, 40)
    exact, noisy = (Recalibration.fit(0.5 + differences, np.full(40, 0.5), np.full(40, v), 0.02) for v in (0.0, 0.01))
    assert noisy.deviation < 0.7 * exact.deviation


@given(st.integers(1, 30), st.integers(0, 1000), st.floats(0.0, 0.05), st.floats(0.001, 0.3))
def test_labels_without_information_change_nothing_and_no_shift_exceeds_what_was_seen(k, seed, noise, spread):
    differences = np.random.default_rng(seed).normal(0.0, 0.1, k)
    free = np.full(k, 0.5)
    recalibration = Recalibration.fit(free + differences, free, np.full(k, noise), spread)
    assert abs(recalibration.shift) <= np.abs(differences).max()
    blank = Recalibration.fit(free + differences, free, np.full(k, 1e9), spread)
    assert abs(blank.shift) < 1e-6
    assert blank.deviation >= spread * (1.0 - 1e-6)


def blind(m, seed, extra):
    """Outputs whose errors are by `extra` more frequent than their probabilities say."""
    one = outputs(m, seed)
    flipped = (np.random.default_rng(seed).random(m) < extra) & (one.predicted == one.labels)
    return pn.Outputs.from_logits(one.logits, labels=np.where(flipped, 1 - one.labels, one.labels), name="batch")


def test_an_estimator_learns_from_labelled_batches_and_keeps_it_in_its_file(tmp_path):
    estimator = pn.ErrorEstimator.fit(None, outputs(800, 0))

    def labelled(seed):
        full = blind(400, seed, 0.3)
        rows = np.random.default_rng(seed).choice(400, 100, replace=False)
        return estimator.estimate(full.without_labels(), labelled={"sample": rows, "label": full.labels[rows]})

    batches = [labelled(seed) for seed in range(1, 4)]
    target = blind(400, 9, 0.3)
    before, after = (one.estimate(target) for one in (estimator, estimator.recalibrated(batches)))
    assert abs(after.error - target.error) < abs(before.error - target.error) / 2
    assert after.low <= target.error <= after.high
    assert after.recalibrated_by == 3
    assert "corrected by 3 labelled batches" in after.sentence
    assert "90 % interval" in str(after)
    estimator.recalibrated(batches).save(tmp_path / "e")
    assert pn.ErrorEstimator.load(tmp_path / "e").estimate(target).to_dict() == after.to_dict()
    assert pn.ErrorEstimator.load(tmp_path / "e").fingerprint != estimator.fingerprint
    own = estimator.recalibrated(batches).estimate(
        target.without_labels(), labelled={"sample": np.arange(50), "label": target.labels[:50]}
    )
    assert own.based_on == ("labels",)
    with pytest.raises(InputError, match="must be of labelled targets"):
        estimator.recalibrated([before])


def test_batches_with_few_mistakes_by_chance_do_not_pull_the_estimate_down():
    rng = np.random.default_rng(0)
    wrong = rng.binomial(50, 0.06, (400, 30)) / 50
    shifts = [Recalibration.fit(one, np.full(30, 0.06), np.full(30, 1 / 50), 0.02).shift for one in wrong]
    assert abs(np.mean(shifts)) < 3.0 * np.std(shifts) / np.sqrt(len(shifts))
