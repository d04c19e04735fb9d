"""The leaderboard and its figure."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.shifts.evaluate import (
    OUTPUTS_ONLY,
    WITH_MODEL,
)
from benchmarks.shifts.leaderboard import standings
from projnorm.core.records import Record


@pytest.fixture
def record() -> Record:
    """Two cases, of one and of three targets, and three rows, the last of which was run on the second case only."""
    nan = np.nan
    arrays = {
        "rows": np.array([OUTPUTS_ONLY, WITH_MODEL, "X"]),
        "cases": np.array(["a", "b", "b", "b"]),
        "suites": np.array(["s", "t", "t", "t"]),
        "tables": np.array(["outputs"] * 4),
        "targets": np.array(list("wxyz")),
        "kinds": np.array(["time", "place", "place", "time"]),
        "sizes": np.full(4, 100),
        "truth": np.array([0.1, 0.2, 0.3, 0.4]),
        "source_errors": np.full(4, 0.1),
        "estimates": np.array([[0.2, 0.1, nan], [0.2, 0.2, 0.2], [0.3, 0.3, 0.2], [0.7, 0.4, 0.4]]),
        "low": np.array([[0.15, 0.0, nan], [0.1, 0.1, nan], [0.2, 0.2, nan], [0.6, 0.3, nan]]),
        "high": np.array([[0.25, 0.2, nan], [0.3, 0.3, nan], [0.4, 0.4, nan], [0.8, 0.5, nan]]),
        "warned": np.array([[0.0, 0.0, nan], [1.0, 0.0, nan], [0.0, 0.0, nan], [1.0, 0.0, nan]]),
    }
    facts = {"seconds_per_target": {"a": {OUTPUTS_ONLY: 1.0}, "b": {OUTPUTS_ONLY: 3.0, "X": 0.5}}, "failures": {}}
    return Record("benchmark-0", "benchmark", {}, arrays, {}, "", 0.0, {}, facts)


def test_a_case_counts_once_however_many_targets_it_has(record):
    by_row = {standing.row: standing for standing in standings(record)}
    default = by_row[OUTPUTS_ONLY]
    assert default.mae == pytest.approx((0.1 + 0.1) / 2)
    assert default.worst_miss == pytest.approx(0.3)
    assert default.worst_mae == pytest.approx(0.1)
    assert default.coverage == pytest.approx((0.0 + 2 / 3) / 2)
    assert default.width == pytest.approx(0.2)
    assert default.misses == 2
    assert (default.warned_misses, default.warned_hits) == (0.5, 0.5)
    assert default.seconds == 2.0
    assert by_row[WITH_MODEL].mae == 0.0
    assert np.isnan(by_row[WITH_MODEL].warned_misses)


def test_a_row_is_compared_with_the_default_on_the_cases_it_was_run_on(record):
    ranked = standings(record)
    partial = next(standing for standing in ranked if standing.row == "X")
    assert (partial.cases, partial.targets, partial.worst_case) == (1, 3, "b")
    assert partial.mae == pytest.approx(0.1 / 3)
    assert partial.default_mae == pytest.approx(0.1)
    assert np.isnan(partial.coverage)
    assert np.isnan(partial.width)
    assert [standing.row for standing in ranked] == [WITH_MODEL, "X", OUTPUTS_ONLY]


def test_the_leaderboard_can_be_of_one_kind_of_shift_or_one_suite(record):
    assert {standing.row: standing.targets for standing in standings(record, kind="place")}[OUTPUTS_ONLY] == 2
    assert {standing.row for standing in standings(record, suite="s")} == {OUTPUTS_ONLY, WITH_MODEL}
    assert {standing.row: standing.targets for standing in standings(record, case="b", kind="time")}["X"] == 1
    assert standings(record, table="confidences") == []


def test_the_figure_has_a_panel_for_each_kind_and_the_table_a_line(record, tmp_path):
    from benchmarks.shifts.figure import draw, show

    report = show(record, tmp_path)
    by_kind = report.tables["leaderboard_by_kind"]
    assert [line[0] for line in by_kind.rows] == ["time", "place"]
    assert by_kind.header[:4] == ("kind", WITH_MODEL, "X", OUTPUTS_ONLY)
    assert [str(cell) for cell in by_kind.rows[0][1:]] == ["0.00", "0.00", "20.00", "0.00", "1.00"]
    titles = [axes.get_title() for axes in draw(record).axes if axes.get_title()]
    assert titles == ["time (2 targets)", "place (2 targets)"]
