"""`projnorm ntk` as a user meets it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from projnorm.cli.app import main
from tests.commands import without_pictures
from tests.test_cli import assert_one_line_error, projnorm_process

# Loading torch takes seconds, so all but the killed run share this process.
SMALL = ("--n", "12", "--m", "10", "--families", "contrast", "--severities", "1,5")


@pytest.fixture
def projnorm(capsys, monkeypatch, request):
    """Run a command in this process: exit code, stdout and stderr as a shell would see them; tests of figures draw."""
    if "pictures" not in request.fixturenames:
        without_pictures(monkeypatch)
    monkeypatch.setattr("projnorm.cli.options.WORKERS", 1)  # a new process takes seconds to import torch

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["projnorm", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, stop.value.code, out, err)

    return run


def test_predict_runs_with_no_download_and_draws_the_three_panels(tmp_path, projnorm):
    result = projnorm("ntk", "predict", *SMALL, "--out", str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert "never trained" in result.stdout
    for word in ("clean", "contrast-1", "contrast-5", "R^2", "ProjNormLinear"):
        assert word in result.stdout
    folder = next((tmp_path / "runs").glob("ntk-[0-9a-f]*"))
    assert {path.name for path in folder.glob("ntk_panels.*")} == {f"ntk_panels.{e}" for e in ("pdf", "png", "svg")}
    again = projnorm("ntk", "predict", *SMALL, "--out", str(tmp_path))
    assert again.stdout == result.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("pictures")
def test_analyse_prints_every_interval_and_holds_where_it_must(tmp_path, projnorm):
    result = projnorm("ntk", "analyse", *SMALL, "--accumulate", "float64", "--json", "--out", str(tmp_path))
    document = json.loads(result.stdout)
    assert [row["target"] for row in document["rows"]] == ["clean", "contrast-1", "contrast-5"]
    for row in document["rows"]:
        assert row["generalised_holds"]
        assert row["sharp_holds"]
        assert row["generalised"][0] <= row["test_loss"] <= row["generalised"][1]
    assert document["facts"]["weights"].startswith("random")
    assert document["facts"]["check_error"] < 1e-5
    names = {Path(path).stem for path in document["figures"]}
    assert names == {"ntk_panels", "ntk_norm_ratio", "ntk_decay_grid", "ntk_intervals"}
    table = projnorm("ntk", "analyse", *SMALL, "--accumulate", "float64", "--out", str(tmp_path))
    assert "holds" in table.stdout


def test_gram_plans_computes_and_finds_again(tmp_path, projnorm):
    plan = projnorm("ntk", "gram", *SMALL, "--dry-run", "--out", str(tmp_path))
    assert plan.returncode == 0, plan.stderr
    for word in ("layer4.1.conv2", "structured", "TFLOP", "GB at most", "11,177,025"):
        assert word in plan.stdout
    assert not (tmp_path / "runs").exists()
    planned = json.loads(projnorm("ntk", "gram", *SMALL, "--dry-run", "--json").stdout)
    assert planned["samples"] == 12 + 3 * 10
    done = projnorm("ntk", "gram", *SMALL, "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "Spot check against autograd" in done.stdout
    listed = projnorm("runs", "--out", str(tmp_path))
    assert "ntk-gram-" in listed.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--devices", "0"), ("--devices", "'0'")),
        (("--devices", "none"), ("--devices", "'none'")),
        (("--tflops", "0"), ("`tflops`", "0.0")),
        (("--gbps", "nan"), ("`gbps`", "nan")),
        (("--families", "fog of war"), ("`family`", "fog of war")),
        (("--n", "50000000"), ("`memory`", "too small")),
    ],
)
def test_a_bad_dry_run_is_one_line(projnorm, options, words):
    assert_one_line_error(projnorm("ntk", "gram", *SMALL, "--dry-run", *options), *words)


def test_ntk_alone_prints_its_help(projnorm):
    result = projnorm("ntk")
    assert result.returncode == 0
    assert "predict" in result.stdout
    assert result.stderr == ""


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_bits(tmp_path):
    """SIGKILL while tiles are being computed; the next run goes on and ends where an undisturbed one ends."""
    asked = ("ntk", "gram", "--n", "40", "--m", "40", "--families", "contrast,brightness", "--workers", "1", "--out")
    assert projnorm_process(*asked, str(tmp_path / "whole")).returncode == 0
    command = [sys.executable, "-m", "projnorm", *asked, str(tmp_path / "killed")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and len(list((tmp_path / "killed").rglob("tiles/*.npy"))) < 5:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
    early = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "killed").rglob("tiles/*.npy")}
    assert 5 <= len(early) < 23
    assert projnorm_process(*asked, str(tmp_path / "killed")).returncode == 0
    tiles = {path.name: path for path in (tmp_path / "killed").rglob("tiles/*.npy")}
    whole = {path.name: path for path in (tmp_path / "whole").rglob("tiles/*.npy")}
    assert tiles.keys() == whole.keys()
    for name, path in tiles.items():
        assert path.read_bytes() == whole[name].read_bytes()
    kept = [name for name, written in early.items() if tiles[name].stat().st_mtime_ns == written]
    assert len(kept) >= len(early) - 1  # the last one may have been written and not yet marked


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--data", "nowhere.npz"), ("there is no data at nowhere.npz",)),
        (("--weights", "nowhere.pth"), ("there are no weights at nowhere.pth",)),
        (("--architecture", "alexnet"), ("`architecture`", "alexnet")),
        (("--families", "fog of war"), ("`family`", "fog of war")),
        (("--severities", "one"), ("--severities", "'one'")),
        (("--severities", "9"), ("`severity`", "9")),
        (("--n", "100000"), ("`n`", "899")),
        (("--families", "contrast,contrast"), ("`families`", "contrast, contrast")),
        (("--seed", "36893488147419103232"), ("`seed`",)),
        (("--memory", "inf"), ("`memory`", "inf")),
        (("--kind", "some"), ("`kind`", "some")),
        (("--device", "abacus"), ("`device`", "abacus")),
        (("--memory", "0.01"), ("`memory`", "too small")),
        (("--kind", "coordinates", "--count", "99999999"), ("`count`", "11,177,025")),
    ],
)
def test_a_bad_option_is_one_line_and_leaves_nothing(tmp_path, projnorm, options, words):
    result = projnorm("ntk", "gram", *SMALL, *options, "--out", str(tmp_path))
    assert_one_line_error(result, *words)
    assert not list(tmp_path.rglob("*.npy"))


@pytest.mark.slow
@pytest.mark.usefixtures("pictures")
def test_subsample_draws_its_figure(tmp_path, projnorm):
    counts = ("--counts", "500,5000", "--draws", "1", "--workers", "1")
    result = projnorm("ntk", "subsample", *SMALL, *counts, "--json", "--out", str(tmp_path))
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert [(row["kind"], row["count"]) for row in document["rows"]] == [
        ("coordinates", 500),
        ("coordinates", 5000),
        ("projection", 500),
        ("projection", 5000),
    ]
    assert all(Path(path).stat().st_size > 1000 for path in document["figures"])
