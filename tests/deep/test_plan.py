"""A run on paper: counted by hand on a tiny network, and consistent with the configuration."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from deep.config import DeepConfig
from deep.plan import network_cost, plan_run
from deep.presets import PRESETS, TEXT_PRESETS
from projnorm.runs.rates import Rates


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


def test_digits_by_hand():
    """899 digits less 200: 20 epochs twice; 60 steps of 64 for the reference and each of 55 targets."""
    plan = plan_run(PRESETS["digits"])
    assert plan.n_train == 699
    assert plan.targets == 1 + 18 * 3
    assert [(job.name, job.trained) for job in plan.stages] == [
        ("network", 20 * 699),
        ("second", 20 * 699),
        ("reference", 60 * 64),
    ]
    assert [(job.name, job.passed) for job in plan.between] == [("validation outputs", 200), ("rotation", 4 * 400)]
    assert len(plan.tasks) == 2 * 55
    assert {(job.trained, job.passed) for job in plan.tasks} == {(0, 5 * 400), (60 * 64, 0)}
    network = plan.network
    assert plan.flops == network.training * (2 * 20 * 699 + 56 * 60 * 64) + network.forward * (1800 + 55 * 2000)
    assert plan.data_bytes == (699 + 200 + 55 * 400) * 3072
    assert "digits is 899 samples" in plan.notes[1]


def test_hours_fall_with_devices_until_the_longest_way_through():
    plan, rates = plan_run(PRESETS["digits"]), Rates(tflops=1e-3)
    hours = [plan.hours(devices, rates) for devices in (1, 2, 8, 1000)]
    assert hours == sorted(hours, reverse=True)
    assert hours[0] == pytest.approx(rates.hours(plan.flops, plan.moved))
    longest = max(job.flops for job in plan.stages) + sum(job.flops for job in plan.between)
    assert hours[-1] == pytest.approx(rates.hours(longest + max(job.flops for job in plan.tasks), plan.moved))


def test_a_joint_rotation_trains_twice_as_much_and_needs_no_head():
    plan = plan_run(replace(PRESETS["digits"], rotation="joint"))
    assert [job.trained for job in plan.stages][:2] == [2 * 20 * 699, 20 * 699]
    assert [job.name for job in plan.between] == ["validation outputs"]


def test_fewer_layers_and_methods_cost_less():
    whole = plan_run(PRESETS["digits"])
    head = plan_run(replace(PRESETS["digits"], projnorm_layers=("fc",)))
    assert head.tasks[-1].flops < 0.6 * whole.tasks[-1].flops
    outputs = plan_run(replace(PRESETS["digits"], methods=("ATC",)))
    assert [job.name for job in outputs.stages] == ["network"]
    assert len(outputs.tasks) == 55
    assert all(job.passed == 400 for job in outputs.tasks)


def test_data_of_unknown_size_asks_for_the_number():
    with pytest.raises(ValueError, match="`n_train` must be given to plan a run on 'mine'"):
        plan_run(DeepConfig(data="mine"))


def test_a_tiny_text_network_is_planned_without_pairs():
    plan = plan_run(TEXT_PRESETS["templates"])
    assert plan.n_train == 3000
    assert plan.targets == 1 + len(TEXT_PRESETS["templates"].targets)
    assert plan.network.training == pytest.approx(3 * plan.network.forward, rel=0.1)


def test_a_dry_run_says_what_it_takes_for_granted_and_leaves_nothing(projnorm, tmp_path):
    code, out, err = projnorm("deep", "run", "cpu-cifar10-resnet18", "--dry-run", "--devices", "1,4")
    assert (code, err) == (0, "")
    for word in ("ProjNorm on targets  91", "11,181,642 parameters", "nothing was measured on a GPU", "Note: images"):
        assert word in out
    assert not list(tmp_path.rglob("*"))
    code, out, _ = projnorm("deep", "run", "digits", "--dry-run", "--json", "--tflops", "1")
    document = json.loads(out)
    assert [row["devices"] for row in document["devices"]] == [1, 8, 64]
    assert document["tflops"] == 1
    code, out, err = projnorm("deep", "text", "templates", "--dry-run")
    assert (code, err) == (0, "")
    assert "outputs of targets" in out


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("run", "digits", "--data", "nowhere.npz"), "`n_train`"),
        (("run", "digits", "--devices", "0"), "--devices"),
        (("run", "digits", "--tflops", "-1"), "`tflops`"),
        (("text", "templates", "--model", "no-such-model"), "`model` no-such-model"),
    ],
)
def test_a_bad_dry_run_is_one_line(projnorm, asked, words):
    code, out, err = projnorm("deep", *asked, "--dry-run")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err
