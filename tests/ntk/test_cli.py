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

from tests.commands import assert_refused, run_cli, run_process

SMALL = ("--n", "12", "--m", "10", "--families", "contrast", "--severities", "1,5", "--workers", "1")
SMALL_CNN = ("--architecture", "small-cnn", "--size", "16")


@pytest.mark.slow
def test_predict_runs_with_no_download_and_draws_the_three_panels(tmp_path):
    result = run_cli("ntk", "predict", *SMALL, "--out", str(tmp_path))
    assert (result.code, result.err) == (0, "")
    for word in ("clean", "contrast-1", "contrast-5", "R^2", "ProjNormLinear", "never trained"):
        assert word in result.out
    folder = next((tmp_path / "runs").glob("ntk-[0-9a-f]*"))
    assert {path.name for path in folder.glob("ntk_panels.*")} == {f"ntk_panels.{e}" for e in ("pdf", "png", "svg")}
    assert run_cli("ntk", "predict", *SMALL, "--out", str(tmp_path)).out == result.out


@pytest.mark.slow
def test_analyse_prints_every_interval_and_draws_four_figures(tmp_path):
    command = ("ntk", "predict", "--analyse", *SMALL, *SMALL_CNN, "--accumulate", "float64", "--out", str(tmp_path))
    document = json.loads(run_cli(*command, "--json", pictures=True).out)
    assert [row["target"] for row in document["rows"]] == ["clean", "contrast-1", "contrast-5"]
    assert all(row["generalised_holds"] and row["sharp_holds"] for row in document["rows"])
    names = {Path(path).stem for path in document["figures"]}
    assert names == {"ntk_panels", "ntk_norm_ratio", "ntk_decay_grid", "ntk_intervals"}
    assert "holds" in run_cli(*command).out


def test_gram_plans_computes_and_is_listed(tmp_path):
    plan = run_cli("ntk", "gram", *SMALL, "--dry-run", "--out", str(tmp_path))
    for word in ("layer4.1.conv2", "structured", "multiply-adds of products", "at most about", "11,177,025"):
        assert word in plan.out
    assert run_cli("ntk", "predict", *SMALL, "--dry-run", "--out", str(tmp_path)).out == plan.out
    assert not (tmp_path / "runs").exists()
    planned = json.loads(run_cli("ntk", "gram", *SMALL, "--dry-run", "--json").out)
    assert (planned["samples"], planned["passes"]) == (12 + 3 * 10, 12 + 3 * 10)
    done = run_cli("ntk", "gram", *SMALL, *SMALL_CNN, "--out", str(tmp_path))
    assert "Spot check against autograd" in done.out
    folder = next((tmp_path / "runs").glob("ntk-gram-*"))
    assert (folder / "ntk_traces.csv").read_text().startswith("set,trace\ntrain,")
    assert (folder / "ntk_traces.tex").exists()
    assert "ntk-gram-" in run_cli("runs", "--out", str(tmp_path)).out


@pytest.mark.parametrize("command", ["gram", "predict"])
def test_help_names_own_networks_texts_and_unlabelled_targets(command):
    said = " ".join(run_cli("ntk", command, "--help").out.split())
    for words in ("--model", "FILE.py:FUNCTION", "transformers", "--length", "with or without labels"):
        assert words in said


@pytest.mark.slow
def test_subsample_draws_its_figure(tmp_path):
    options = (*SMALL, *SMALL_CNN, "--counts", "500,5000", "--draws", "1")
    result = run_cli("ntk", "subsample", *options, "--json", "--out", str(tmp_path), pictures=True)
    document = json.loads(result.out)
    expected = [(kind, count) for kind in ("coordinates", "projection") for count in (500, 5000)]
    assert [(row["kind"], row["count"]) for row in document["rows"]] == expected
    assert all(Path(path).stat().st_size > 1000 for path in document["figures"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--architecture", "alexnet"), ("--architecture", "alexnet")),
        (("--families", "fog of war"), ("--families", "fog of war")),
        (("--severities", "one"), ("--severities", "'one'")),
        (("--severities", "9"), ("--severities", "9")),
        (("--n", "100000"), ("--n must be at most 899",)),
        (("--families", "contrast,contrast"), ("--families", "contrast, contrast")),
        (("--seed", "36893488147419103232"), ("--seed",)),
        (("--memory", "inf"), ("--memory",)),
        (("--count", "10"), ("--count is for the kinds coordinates and projection",)),
        (("--device", "abacus"), ("--device", "abacus")),
        (("--memory", "0.01"), ("--memory", "too small")),
        (("--kind", "coordinates", "--count", "99999999"), ("--count", "11,177,025")),
        (("--dry-run", "--n", "50000000"), ("--memory", "too small")),
    ],
)
def test_a_bad_option_is_one_line_and_leaves_nothing(tmp_path, options, words):
    assert_refused(run_cli("ntk", "gram", *SMALL, *options, "--out", str(tmp_path / "out")), *words)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_bits(tmp_path):
    """SIGKILL while tiles are being computed; the next run goes on and ends where an undisturbed one ends."""
    asked = ("ntk", "gram", "--n", "40", "--m", "40", "--families", "contrast,brightness", "--workers", "1", "--out")

    def tiles(folder: str) -> dict[str, Path]:
        return {path.name: path for path in (tmp_path / folder).rglob("tiles/*/[0-9]*.json")}

    assert run_process(*asked, str(tmp_path / "whole")).code == 0
    command = [sys.executable, "-m", "projnorm", *asked, str(tmp_path / "killed")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and len(tiles("killed")) < 5:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
    early = {name: path.stat().st_mtime_ns for name, path in tiles("killed").items()}
    whole = tiles("whole")
    assert 5 <= len(early) < len(whole)
    assert run_process(*asked, str(tmp_path / "killed")).code == 0
    resumed = tiles("killed")
    # The file of a tile holds the checksum of its array.
    assert {name: path.read_bytes() for name, path in resumed.items()} == {n: p.read_bytes() for n, p in whole.items()}
    assert all(resumed[name].stat().st_mtime_ns == written for name, written in early.items())
