"""What runs share, and with which others."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from deep.ledger import Scores

from deep import stages
from deep.experiments.comparison import LEDGER, open_run, run_comparison
from deep.stages import Workplace
from deep.training import Hardware
from projnorm.vision.networks import SmallCNN
from tests.deep.small import SMALL


def test_a_damaged_stage_is_trained_again(tmp_path, finished):
    root, record = finished
    run_comparison(replace(SMALL, methods=("Entropy", "ProjNorm")), root=tmp_path)
    folder = next(tmp_path.glob("deep-*"))
    entropies = [row.score for row in open_run(root / record.id)[1].rows if row.method == "Entropy"]
    assert [row.score for row in open_run(folder)[1].rows if row.method == "Entropy"] == entropies
    (folder / "record.json").unlink()
    next((tmp_path / "projnorm").glob("*/*.npz")).write_bytes(b"damaged")
    for file in (tmp_path / "trained").glob("network-*.safetensors"):
        file.write_bytes(file.read_bytes()[:100])
    before = (folder / LEDGER).read_bytes()
    again = run_comparison(replace(SMALL, methods=("Entropy", "ProjNorm")), root=tmp_path)
    assert (folder / LEDGER).read_bytes() == before
    assert again.arrays["layer_contributions"].shape[0] == 5


def test_runs_that_differ_in_projnorm_or_targets_share_their_networks(finished, tmp_path, monkeypatch):
    root, record = finished
    shutil.copytree(root / "trained", tmp_path / "trained")
    shutil.copytree(root / "outputs", tmp_path / "outputs")
    monkeypatch.setattr(stages, "_fine_tuned", _refused)
    other = replace(SMALL, projnorm_lr=2 * SMALL.projnorm_lr, families=SMALL.families[:1])
    found = run_comparison(other, root=tmp_path)
    whole = Scores.of(open_run(root / record.id)[1].rows)
    for target, scores in zip(found.arrays["targets"], found.arrays["scores"], strict=True):
        before = whole.values[whole.targets.tolist().index(target)]
        np.testing.assert_array_equal(scores[:-1], before[:-1])
        assert scores[-1] != before[-1]


def _refused(*_):
    raise AssertionError("trained again")


@pytest.mark.parametrize(
    "change",
    [
        {"projnorm_samples": 31},
        {"projnorm_lr": 0.3},
        {"lr": 0.3},
        {"reference_samples": "m"},
        {"labels": "true"},
        {"trajectory": (2,)},
        {"reference": "trained"},
        {"weights": "other"},
    ],
)
def test_a_value_of_projnorm_is_shared_only_with_runs_it_cannot_differ_in(tmp_path, change):
    base = replace(SMALL, reference="fine-tuned", reference_samples="all")
    before, *others = (
        Workplace(config, tmp_path / "run", Hardware()) for config in (base, replace(base, families=("fog",)), base)
    )
    assert all(work.projnorms == before.projnorms for work in others)
    if change == {"weights": "other"}:
        torch.manual_seed(0)
        torch.save(SmallCNN(10).state_dict(), tmp_path / "other.pth")
        change = {"weights": str(tmp_path / "other.pth")}
    after = Workplace(replace(base, **change), tmp_path / "run", Hardware()).projnorms
    assert (after == before.projnorms) == (change == {"reference_samples": "m"})


@pytest.mark.parametrize(
    ("change", "stays"),
    [
        ({"projnorm_lr": 0.3}, {"network", "second", "rotation"}),
        ({"steps": 3, "trajectory": ()}, {"network", "second", "rotation"}),
        ({"families": ("fog",)}, {"network", "second", "reference", "rotation"}),
        ({"lr": 0.3}, {"reference"}),
        ({"epochs": 4}, {"reference"}),
        ({"batch": 40}, {"reference"}),
        ({"n_train": 90}, {"reference"}),
        ({"rotation_samples": 17}, {"network", "second", "reference"}),
        ({"rotation": "joint"}, {"second", "reference"}),
        ({"m": 31}, {"network", "second", "rotation"}),
        ({"projnorm_batch_norm": "frozen"}, {"network", "second", "rotation"}),
        ({"projnorm_samples": 31}, {"network", "second", "rotation"}),
        ({"size": 16}, set()),
        ({"momentum": 0.5}, set()),
        ({"seed": 1}, set()),
    ],
)
def test_a_stage_is_shared_only_with_runs_it_cannot_differ_in(tmp_path, change, stays):
    def names(config):
        work = Workplace(config, tmp_path / "run", Hardware())
        return {name: work.stage(name) for name in ("network", "second", "reference", "rotation")}

    before, after = names(SMALL), names(replace(SMALL, **change))
    assert {name for name in before if before[name] == after[name]} == stays
