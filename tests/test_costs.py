"""Cost reports: arithmetic that can be followed by hand."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from figures.costs import show
from projnorm.costs import CostAssumptions, CostReport, Job, busiest, device_cost, job_rows

UNIT = CostAssumptions(tflops=1e-12)  # an operation a second
PHASES = (
    (Job("train", 10, {"trained on": 5}), Job("train", 10, {"trained on": 5})),
    (Job("between", 3),),
    (Job("predict", 4, {"passed": 7}), Job("predict", 2), Job("predict", 2)),
)


def test_phases_follow_each_other_and_jobs_of_one_run_beside_each_other():
    one, two = (device_cost(PHASES, count, UNIT, device_bytes=9.0) for count in (1, 2))
    assert one.hours == pytest.approx((10 + 10 + 3 + 4 + 2 + 2) / 3600)
    assert two.hours == pytest.approx((10 + 3 + 4) / 3600)
    assert (one.tasks, one.flops, one.samples) == (6, 31, {"trained on": 10, "passed": 7})


def test_a_report_is_json_and_a_table():
    report = CostReport(
        job_rows(PHASES), ("All of it.",), (device_cost(PHASES, 8, UNIT, device_bytes=2e9),), UNIT, ("rough",), {"a": 1}
    )
    shown = show(report)
    document = json.loads(json.dumps(shown.values))
    assert [part["job"] for part in document["parts"]] == ["train", "between", "predict", "total"]
    assert (document["a"], document["parts"][-1]["samples trained on"], document["devices"][0]["devices"]) == (1, 10, 8)
    for words in ("samples passed", "All of it.", "2.00", "Note: rough.", "nothing was measured on a GPU"):
        assert words in shown.text()


@given(st.lists(st.floats(0.0, 10.0), max_size=30), st.integers(1, 8))
def test_the_busiest_device_has_at_most_a_fair_share_and_one_job(costs, devices):
    fair, largest = sum(costs) / devices, max(costs, default=0.0)
    assert max(fair, largest) - 1e-9 <= busiest(costs, devices) <= fair + largest + 1e-9
