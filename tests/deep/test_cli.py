"""`projnorm deep` as a new user meets it, with good and bad input."""

from __future__ import annotations

import csv
import io
import json
from functools import partial

import pytest
import torch

from deep.comparison.config import METHODS, TEXT_METHODS
from deep.comparison.sweep import AS_RUN
from projnorm.models.networks import SmallCNN
from tests.commands import Result, assert_refused

QUICK = [
    *("--families", "contrast,gaussian_blur,fog", "--severities", "1,5", "--n", "100", "--n-validation", "40"),
    *("--m", "40", "--finetune-epochs", "2", "--projnorm-steps", "3", "--projnorm-trajectory", "1,3"),
    *("--projnorm-batch", "20", "--rotation-samples", "40"),
]
RUN = ("deep", "run", "digits", *QUICK)
QUICK_TEXT = [
    *("--n", "100", "--n-validation", "50", "--m", "30", "--finetune-epochs", "1", "--projnorm-steps", "2"),
    *("--projnorm-trajectory", "1,2"),
]


def fine(result: Result) -> str:
    assert (result.code, result.err) == (0, ""), result
    return result.out


@pytest.mark.slow
def test_a_run_ends_in_a_table_and_figures_that_come_back_from_its_scores(projnorm, tmp_path):
    projnorm = partial(projnorm, pictures=True)
    out = fine(projnorm(*RUN, "--workers", "1"))
    for method in METHODS:
        assert f"\n{method} " in out
    assert "Weights: random (the network was never trained before)." in out
    folder = next((tmp_path / "projnorm-out" / "runs").glob("deep-*"))
    for name in ("scatter.png", "severity.pdf", "table.md", "table.tex", "table.csv", "table.txt", "config.toml"):
        assert (folder / name).stat().st_size > 100, name
    assert (
        fine(projnorm("runs", "show", "--what", "table", "--format", "markdown")) == (folder / "table.md").read_text()
    )
    text = fine(projnorm("runs", "show", folder.name[:8], "--what", "table", "--targets", "--format", "csv"))
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["target"] for row in rows][:2] == ["clean", "contrast-1"]
    assert rows[1]["origin"] == "generated"
    assert fine(projnorm("runs", "show", "--what", "table", "--format", "latex")).startswith("\\begin{tabular}")
    before = (folder / "scatter.svg").read_bytes()
    assert "scatter.png" in fine(projnorm("runs", "show", "--what", "figures"))
    assert (folder / "scatter.svg").read_bytes() == before
    document = json.loads(fine(projnorm(*RUN, "--json")))
    assert {row["method"] for row in document["rows"]} >= {"ATC", "ProjNorm"}


@pytest.mark.slow
def test_every_experiment_about_a_run_finds_it(projnorm):
    fine(projnorm(*RUN))
    document = json.loads(fine(projnorm("deep", "analyse", "ntk", "--n", "20", "--m", "15", "--json")))
    assert len(document["variants"]) == 60
    assert AS_RUN in fine(projnorm("deep", "analyse", "sweep", "deep-", "--steps", "2", "--labels", "true"))
    assert "\neps = 4 " in fine(projnorm("deep", "analyse", "adversarial", "--eps", "0,4", "--m", "20", "--steps", "2"))
    assert "group 5 of 5" in fine(projnorm("deep", "analyse", "label-shift", "--draws", "1", "--m", "30"))
    assert "ProjNormLinear-NTK " in fine(projnorm("runs", "show", "--what", "residuals"))
    assert "\nProjNorm " in fine(projnorm("runs", "show", "deep-", "--what", "residuals"))
    assert "ProjNorm + ATC " in fine(projnorm("runs", "show", "--what", "ensemble", "--methods", "ProjNorm,ATC"))
    assert "trajectory" in fine(projnorm("runs", "show", "--what", "trajectory"))
    assert "as in the run" in fine(projnorm("runs", "show", "deep-sweep", "--what", "table"))
    assert_refused(projnorm("runs", "show", "--what", "ensemble", "--methods", "Crystal,ATC"), "Crystal")
    assert_refused(
        projnorm("runs", "show", "deep-none", "--what", "residuals"), "must name one run of `projnorm deep run` in"
    )
    assert_refused(projnorm("runs", "show", "--what", "figures", "--targets"), "--targets is for --what table")


def test_a_run_on_text_and_its_tables(projnorm, tmp_path):
    out = fine(projnorm("deep", "run", "templates", *QUICK_TEXT))
    assert "tiny" in out
    document = json.loads(fine(projnorm("deep", "run", "templates", *QUICK_TEXT, "--json")))
    assert [row["method"] for row in document["rows"]] == list(TEXT_METHODS)
    for what in ("table", "trajectory", "residuals", "ensemble"):
        fine(projnorm("runs", "show", "--what", what))
    settings = next((tmp_path / "projnorm-out" / "runs").glob("deep-text-*")) / "config.toml"
    again = json.loads(fine(projnorm("deep", "run", "--config", str(settings), "--json")))
    assert again["id"] == document["id"]


def test_presets_and_gallery(projnorm, tmp_path):
    assert "paper-cifar100-vgg11" in fine(projnorm("deep", "presets"))
    assert json.loads(fine(projnorm("deep", "presets", "--json")))["digits"]["data"]["data"] == "digits"
    fine(projnorm("deep", "gallery"))
    assert (tmp_path / "projnorm-out" / "figures" / "corruptions.png").exists()


def test_a_dry_run_says_what_it_takes_for_granted_and_leaves_nothing(projnorm, tmp_path):
    out = fine(projnorm("deep", "run", "cpu-cifar10-resnet18", "--dry-run"))
    for word in ("ProjNorm on targets", "11,181,642", "samples trained on", "Note: images"):
        assert word in out
    assert "outputs of targets" in fine(projnorm("deep", "run", "templates", "--dry-run"))
    assert not list(tmp_path.rglob("*"))
    assert_refused(
        projnorm("deep", "run", "digits", "--data", "nowhere.npz", "--dry-run"), "must be given to plan a run"
    )


def test_bad_input_is_one_line_and_loses_nothing(projnorm, tmp_path):
    torch.save(SmallCNN(4, (8, 8, 8)).state_dict(), tmp_path / "narrow.pth")
    assert_refused(projnorm("deep", "run", "nonsense"), "digits", "'nonsense'")
    refused = projnorm("deep", "run", "digits", "--preset", "digits", "--dry-run")
    assert_refused(refused, "PRESET is given without a flag")
    assert "--fresh" not in refused.err
    for options, *words in (
        (("--methods", "ATC,Oracle"), "must be one of", "got 'Oracle'"),
        (("--device", "abacus"), "must be auto or one of"),
        (("--projnorm-layers", "nope"), "must be of features, avgpool, fc", "got nope"),
        (("--architecture", "vgg11", "--size", "16"), "vgg11 cannot see images of", "16 px"),
        (("--data", "none.npz"), "there is no data at none.npz"),
        (("--data", "cifar10"), "cifar10 is not at"),
        (("--weights", "imagenet"), "no ImageNet weights of small-cnn"),
        (("--weights", "narrow.pth"), "narrow.pth: 'features.0.weight' has shape (8, 3, 3, 3)"),
    ):
        assert_refused(projnorm(*RUN, *options), *words)
    assert not list((tmp_path / "projnorm-out").rglob("deep-*"))
    for command in (("runs", "show", "--what", "residuals"), ("deep", "analyse", "ntk")):
        assert_refused(projnorm(*command), "must name one run of `projnorm deep run` in", "there is none")
