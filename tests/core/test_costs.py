"""Cost reports: arithmetic that can be followed by hand."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from deep.comparison.config import DeepConfig, ImageData
from deep.comparison.costs import network_cost, run_costs
from deep.comparison.presets import IMAGE_PRESETS
from figures.costs import show
from projnorm.core.costs import CostAssumptions, CostReport, Job, busiest, device_cost, job_rows
from projnorm.core.errors import InputError

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
    report = show(report)
    document = json.loads(json.dumps(report.values))
    assert [part["job"] for part in document["parts"]] == ["train", "between", "predict", "total"]
    assert (document["a"], document["parts"][-1]["samples trained on"], document["devices"][0]["devices"]) == (1, 10, 8)
    for words in ("samples passed", "All of it.", "2.00", "Note: rough.", "nothing was measured on a GPU"):
        assert words in report.text()


@given(st.lists(st.floats(0.0, 10.0), max_size=30), st.integers(1, 8))
def test_the_busiest_device_has_at_most_a_fair_share_and_one_job(costs, devices):
    fair, largest = sum(costs) / devices, max(costs, default=0.0)
    assert max(fair, largest) - 1e-9 <= busiest(costs, devices) <= fair + largest + 1e-9


def _tiny() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 2, bias=False))


def test_a_tiny_network_by_hand():
    """Weights of 12 and 8: forward 2 * 20; backward 2 * 20 for the weights and 2 * 8 for the inputs of the second."""
    cost = network_cost(_tiny(), torch.zeros(2, 3))
    assert (cost.parameters, cost.state_bytes) == (20, 80)
    assert (cost.forward, cost.training) == (40, 40 + 40 + 16)
    assert cost.activations == 4 * (3 + 4)


def test_where_only_the_last_layer_is_trained_the_backward_pass_ends_there():
    cost = network_cost(_tiny(), torch.zeros(2, 3), trains=lambda name: name.startswith("1"))
    assert (cost.forward, cost.training) == (40, 40 + 16)
    assert cost.activations == 4 * 4


DIGITS = IMAGE_PRESETS["digits"]


def rows(report) -> dict[str, dict]:
    return {row["job"]: row for row in report.parts}


def test_digits_by_hand():
    """899 digits less 200: 20 epochs twice; 60 steps of 64 for the reference and each of 55 targets."""
    report = run_costs(DIGITS)
    assert (report.values["n"], report.values["targets"]) == (699, 1 + 18 * 3)
    parts = rows(report)
    trained = {name: row["samples trained on"] for name, row in parts.items() if row["samples trained on"]}
    assert trained == {
        "fine-tuned network": 20 * 699,
        "second network": 20 * 699,
        "reference of ProjNorm": 60 * 64,
        "ProjNorm on targets": 55 * 60 * 64,
        "total": 2 * 20 * 699 + 56 * 60 * 64,
    }
    passed = {name: row["samples through the network"] for name, row in parts.items()}
    assert passed["validation outputs"] == 200
    assert passed["rotation head"] == 4 * 400
    assert passed["outputs of targets"] == 55 * 5 * 400
    assert parts["outputs of targets"]["times"] == parts["ProjNorm on targets"]["times"] == 55
    network = report.values["network"]
    flops = network["training"] * (2 * 20 * 699 + 56 * 60 * 64) + network["forward"] * (1800 + 55 * 2000)
    assert {row.flops for row in report.devices} == {flops}
    assert report.values["data_bytes"] == (699 + 200 + 55 * 400) * 3072
    assert "digits is 899 samples" in report.notes[1]


def test_what_is_not_known_unread_is_asked_for():
    with pytest.raises(InputError, match="`n` must be given to plan a run on 'mine'"):
        run_costs(DeepConfig(ImageData("mine")))
    with pytest.raises(InputError, match=r"`projnorm.layers` must be of features, .*got nope"):
        run_costs(DIGITS.updated({"projnorm": {"layers": ("nope",)}}))
