"""Draws of a few labels: every interval and path is computed, and the worth of a label is a number."""

from __future__ import annotations

import numpy as np

from benchmarks.few_labels_draws import BUDGETS, PATHS, PPI, QUICK, SLOW, WORTHS, Amount, Task, measured
from benchmarks.few_labels_sets import LabelTarget


def test_draws_of_a_target_have_an_interval_of_every_method():
    rng = np.random.default_rng(0)
    expected = rng.uniform(0.0, 0.6, 300)
    target = LabelTarget("drawn", "target", expected, rng.random(300) < expected)
    amount = Amount(draws=3, slow_draws=2, guaranteed_draws=0, paths=1, slow_paths=0, worth_draws=3)
    drawn = measured(Task(target, 0, 1, amount))
    assert drawn["quick"].shape == (len(BUDGETS), 3, len(QUICK), 3)
    assert drawn["slow"].shape == (len(BUDGETS), 2, len(SLOW), 3)
    without_peer = [column for column, method in enumerate(QUICK) if method != PPI]
    assert np.isfinite(drawn["quick"][:, :, without_peer]).all()
    assert (drawn["worth"][:, [WORTHS.index(worth) for worth in WORTHS if worth != PPI]] > 0.0).all()
    assert drawn["paths"].shape == (1, len(PATHS))
