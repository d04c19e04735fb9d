"""The plan of a run: arithmetic that can be followed by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from deep.comparison.config import DeepConfig, ImageData
from deep.comparison.plan import network_size, plan_run
from deep.comparison.presets import IMAGE_PRESETS
from figures.run_plan import show
from projnorm.core.errors import InputError


def _tiny() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 2, bias=False))


def test_a_tiny_network_by_hand():
    """Weights of 12 and 8: forward 20 multiply-adds; backward 20 for the weights and 8 for the inputs of the second."""
    size = network_size(_tiny(), torch.zeros(2, 3))
    assert (size.parameters, size.state_bytes) == (20, 80)
    assert (size.forward, size.training) == (20, 20 + 20 + 8)
    assert size.activations == 4 * (3 + 4)


def test_where_only_the_last_layer_is_trained_the_backward_pass_ends_there():
    size = network_size(_tiny(), torch.zeros(2, 3), trains=lambda name: name.startswith("1"))
    assert (size.forward, size.training) == (20, 20 + 8)
    assert size.activations == 4 * 4


DIGITS = IMAGE_PRESETS["digits"]


def test_digits_by_hand():
    """899 digits less 200: 20 epochs twice; 60 steps of 64 for the reference and each of 55 targets."""
    plan = plan_run(DIGITS)
    assert (plan.values["n"], plan.values["targets"]) == (699, 1 + 18 * 3)
    parts = {row["part"]: row for row in plan.parts}
    trained = {name: row["samples trained on"] for name, row in parts.items() if row["samples trained on"]}
    assert trained == {
        "fine-tuned network": 20 * 699,
        "second network": 20 * 699,
        "reference of ProjNorm": 60 * 64,
        "ProjNorm on targets": 55 * 60 * 64,
    }
    assert (parts["fine-tuned network"]["steps"], parts["ProjNorm on targets"]["steps"]) == (20 * 11, 55 * 60)
    passed = {name: row["samples through the network"] for name, row in parts.items()}
    assert passed["validation outputs"] == 200
    assert passed["rotation head"] == 4 * 400
    assert passed["outputs of targets"] == 55 * 5 * 400
    assert parts["outputs of targets"]["times"] == parts["ProjNorm on targets"]["times"] == 55
    network = plan.values["network"]
    multiply_adds = network["training"] * (2 * 20 * 699 + 56 * 60 * 64) + network["forward"] * (1800 + 55 * 2000)
    assert plan.values["multiply_adds"] == multiply_adds
    assert plan.values["data_bytes"] == (699 + 200 + 55 * 400) * 3072
    assert "digits is 899 samples" in plan.notes[1]
    assert "ProjNorm on targets" in show(plan).text()


def test_what_is_not_known_unread_is_asked_for():
    with pytest.raises(InputError, match="`n` must be given to plan a run on 'mine'"):
        plan_run(DeepConfig(ImageData("mine")))
    with pytest.raises(InputError, match=r"`projnorm.layers` must be of features, .*got nope"):
        plan_run(DIGITS.updated({"projnorm": {"layers": ("nope",)}}))
