"""The comparison of the intervals: those that must hold do, and the bound for both ratios contains the loss."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from projnorm.core.records import RunContext
from projnorm_theory import LinearPair, joint_ratio, min_norm_solution, ood_loss
from simulations import IntervalWidthsConfig, run_interval_widths
from simulations.interval_widths import INTERVALS, SHIFTS, TRUTHS, draw_power_law, setting_rows, width_rows
from simulations.two_ratios import two_ratio_interval

SMALL = IntervalWidthsConfig(n=8, m=6, dim=40, decays=(1.0, 2.0), draws=4)


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return run_interval_widths(SMALL, RunContext(tmp_path_factory.mktemp("runs")))


def test_every_interval_that_must_hold_holds(record):
    rows = width_rows(record)
    assert len(rows) == len(TRUTHS) * len(SHIFTS) * len(INTERVALS)
    for row in rows:
        if row["interval"] in ("sharp", "joint", "both"):
            assert row["coverage"] == 1.0, row


def test_both_ratios_are_no_wider_than_either(record):
    for row in setting_rows(record):
        assert row["both"] <= row["intersection"] * (1 + 1e-3) <= min(row["sharp"], row["joint"]) * (1 + 1e-2)
        assert row["eta"][0] >= 1.0


def test_a_draw_depends_on_its_setting_and_number_alone(record, tmp_path):
    fewer = run_interval_widths(
        IntervalWidthsConfig(n=8, m=6, dim=40, decays=(1.0, 2.0), draws=2), RunContext(tmp_path)
    )
    for name in ("loss", "joint", "power"):
        np.testing.assert_array_equal(record.arrays[name][:, :2], fewer.arrays[name])


@given(st.integers(0, 2**32 - 1), st.sampled_from(SHIFTS), st.sampled_from(TRUTHS), st.floats(0.0, 2.0))
def test_bounds_from_both_ratios_contain_the_loss(seed, shift, truth, decay):
    X, X_ood, theta_star = draw_power_law(np.random.default_rng(seed), SMALL, decay, shift, truth)
    Y, Y_ood = X @ theta_star, X_ood @ theta_star
    pair, theta = LinearPair.from_features(X, X_ood), min_norm_solution(X, Y).theta
    rho = np.linalg.norm(pair.ood_coordinates(Y_ood)) / np.linalg.norm(theta)
    lower, upper = two_ratio_interval(pair, Y, rho=rho, eta=joint_ratio(pair, Y, Y_ood=Y_ood))
    loss = ood_loss(theta, X_ood, Y_ood)
    assert lower * (1 - 1e-6) - 1e-9 * upper <= loss <= upper * (1 + 1e-6)
