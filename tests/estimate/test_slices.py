"""Slices of a table: what confidence misses on them beyond sampling noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from projnorm.estimate.estimate import estimate_error
from projnorm.estimate.slices import slice_spread
from projnorm.estimators.scaling import Scaling
from projnorm.outputs.outputs import Outputs


def outputs(n: int, inputs, *, wrong) -> Outputs:
    """Two classes; the model says class 0 and is wrong on these samples."""
    return Outputs(np.tile([2.0, 0.0], (n, 1)), labels=wrong.astype(np.int64), inputs=inputs)


def test_a_column_that_decides_the_error_is_seen_and_noise_alone_is_not():
    rng = np.random.default_rng(0)
    table = rng.standard_normal((3000, 4))
    even = outputs(3000, table, wrong=rng.random(3000) < 0.2)
    uneven = outputs(3000, table, wrong=rng.random(3000) < np.where(table[:, 0] > 0.0, 0.4, 0.0))
    assert slice_spread(even, lambda _: 0.2, seed=0) < 0.02
    assert slice_spread(uneven, lambda _: 0.2, seed=0) > 0.05


def test_columns_that_are_constant_up_to_rounding_and_missing_entries_do_no_harm():
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.standard_normal(600), np.full(600, 0.1) + 1e-17, np.full(600, 0.003467)])
    table[::7, 0] = np.nan
    source = outputs(600, table, wrong=rng.random(600) < 0.2)
    assert slice_spread(source, lambda _: 0.2, seed=0) < 0.05


def test_fewer_different_rows_than_clusters_do_no_harm():
    table = np.repeat(np.eye(3), 200, axis=0) * (1.0 + 1e-12 * np.arange(600)[:, None])
    source = outputs(600, table, wrong=np.arange(600) % 5 == 0)
    assert slice_spread(source, lambda _: 0.2, seed=0) < 0.05


@pytest.mark.parametrize("n", [10, 200])
def test_what_is_no_table_or_too_small_has_no_slices(n):
    plain = outputs(n, None, wrong=np.arange(n) % 5 == 0)
    assert slice_spread(plain, lambda _: 0.2, seed=0) == 0.0
    few = replace(plain, inputs=np.arange(float(n))[:, None]).take(np.arange(min(n, 60)))
    assert slice_spread(few, lambda _: 0.2, seed=0) >= 0.0


def test_source_and_target_are_calibrated_once_however_many_slices_there_are(monkeypatch):
    calls, calibrate = [], Scaling.__call__

    def counted(self, outputs):
        calls.append(outputs)
        return calibrate(self, outputs)

    monkeypatch.setattr(Scaling, "__call__", counted)
    rng = np.random.default_rng(0)
    source, target = (
        Outputs(rng.normal(size=(600, 3)), rng.normal(size=(600, 4)), rng.integers(0, 3, 600), name="outputs")
        for _ in range(2)
    )
    estimate_error(None, source, target.without_labels())
    assert len(calls) == 2
