"""What runs share, and with which others."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from deep import stages
from deep.experiments.comparison import run_comparison
from deep.runs import Run
from projnorm.records import RunContext
from projnorm.store import Store
from projnorm.vision.networks import SmallCNN
from tests.deep.small import SMALL
from tests.deep.test_comparison import documents, same_arrays


def test_damaged_networks_and_values_are_computed_again(tmp_path, finished):
    _, record = finished
    config = SMALL.updated({"methods": ("Entropy", "ProjNorm")})
    first = run_comparison(config, RunContext(tmp_path))
    np.testing.assert_array_equal(first.arrays["scores"], record.arrays["scores"][:, [2, 5]])
    Store(tmp_path).remove(f"{first.id}/record")
    next((tmp_path / "projnorm").glob("*/*.npz")).write_bytes(b"damaged")
    for file in (tmp_path / "trained").glob("network-*.npz"):
        file.write_bytes(file.read_bytes()[:100])
    before = documents(tmp_path, first.id)
    same_arrays(first, run_comparison(config, RunContext(tmp_path)))
    assert documents(tmp_path, first.id) == before


def run_of(config, root) -> Run:
    return Run(config, RunContext(root, device="cpu"), "run")


@pytest.mark.parametrize(
    "change",
    [
        {"projnorm": {"samples": 31}},
        {"projnorm": {"lr": 0.3}},
        {"finetune": {"lr": 0.3}},
        {"projnorm": {"reference_samples": "m"}},
        {"projnorm": {"labels": "true"}},
        {"projnorm": {"trajectory": (2,)}},
        {"projnorm": {"reference": "trained"}},
        {"network": {"weights": "other.pth"}},
    ],
)
def test_a_value_of_projnorm_is_shared_only_with_runs_it_cannot_differ_in(tmp_path, monkeypatch, change):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    torch.save(SmallCNN(10).state_dict(), "other.pth")

    def identity(config, change):
        return stages.projnorm_identity(run_of(config.updated(change), tmp_path))

    base = SMALL.updated({"projnorm": {"reference": "fine-tuned", "reference_samples": "all"}})
    assert identity(base, {"data": {"families": ("fog",)}}) == identity(base, {})
    assert (identity(base, change) == identity(base, {})) == (change == {"projnorm": {"reference_samples": "m"}})
    if "finetune" in change:  # the network that labels, where it is not the reference
        assert identity(SMALL, change) != identity(SMALL, {})


@pytest.mark.parametrize(
    ("change", "stays"),
    [
        ({"projnorm": {"lr": 0.3}}, {"network", "second", "rotation"}),
        ({"projnorm": {"steps": 3, "trajectory": ()}}, {"network", "second", "rotation"}),
        ({"data": {"families": ("fog",)}}, {"network", "second", "reference", "rotation"}),
        ({"finetune": {"lr": 0.3}}, {"reference"}),
        ({"data": {"n": 90}}, {"reference"}),
        ({"rotation": {"samples": 17}}, {"network", "second", "reference"}),
        ({"rotation": {"head": "joint"}}, {"second", "reference"}),
        ({"data": {"m": 31}}, {"network", "second", "rotation"}),
        ({"projnorm": {"samples": 31}}, {"network", "second", "rotation"}),
        ({"network": {"size": 16}}, set()),
        ({"seed": 1}, set()),
    ],
)
def test_a_stage_is_shared_only_with_runs_it_cannot_differ_in(tmp_path, change, stays):
    def keys(config):
        return {name: stages.stage_key(run_of(config, tmp_path), name) for name in stages.STAGE_NAMES}

    before, after = keys(SMALL), keys(SMALL.updated(change))
    assert {name for name in before if before[name] == after[name]} == stays
