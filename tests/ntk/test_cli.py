"""`projnorm ntk` as a user meets it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from figures import ntk_decay_grid, ntk_intervals, ntk_norm_ratio, ntk_panels
from ntk.experiment import NtkConfig, run_analysis
from ntk.subsample import SubsampleConfig, run_subsample
from projnorm.cli.app import main
from projnorm.vision import resnet18
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


@pytest.fixture
def images(tmp_path) -> Path:
    """A small labelled set, as a user would bring it."""
    rng = np.random.default_rng(0)
    path = tmp_path / "mine.npz"
    np.savez(path, images=rng.integers(0, 256, (30, 32, 32, 3), dtype=np.uint8), labels=rng.integers(0, 3, 30))
    return path


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


def test_a_dry_run_needs_neither_so_many_images_nor_the_weights(tmp_path, images, projnorm):
    asked = ("--n", "50000", "--m", "10000", "--weights", "nowhere.pth", "--memory", "16", "--dry-run")
    result = projnorm("ntk", "gram", "--data", str(images), *asked, "--out", str(tmp_path))
    assert result.returncode == 0, result.stderr
    for word in ("260,000 samples", "GFLOP each", "hours", "nothing was measured on a GPU", "10 TFLOP/s", "10 Gbit/s"):
        assert word in result.stdout
    assert not (tmp_path / "runs").exists()


def test_hours_fall_with_devices_and_with_their_rate(projnorm):
    asked = ("ntk", "gram", "--n", "4000", "--m", "2000", "--dry-run", "--json", "--devices", "1,8")
    slow, quick = (json.loads(projnorm(*asked, "--tflops", rate).stdout) for rate in ("1", "10"))
    assert [row["devices"] for row in slow["devices"]] == [1, 8]
    one, eight = slow["devices"]
    assert one["tasks"] == 1 < eight["tasks"]
    assert one["hours"] / 8 < eight["hours"] < one["hours"] / 4
    assert quick["devices"][0]["hours"] < 0.2 * one["hours"]
    assert {key: slow[key] for key in slow if key not in ("tflops", "devices")} == {
        key: quick[key] for key in quick if key not in ("tflops", "devices")
    }


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


def test_own_images_own_targets_and_own_weights(tmp_path, images, projnorm):
    weights = tmp_path / "net.pth"
    torch.save(resnet18(7).state_dict(), weights)
    own = ("--data", str(images), "--target", str(images), "--weights", str(weights), "--families", "none")
    result = projnorm("ntk", "predict", "--n", "9", "--m", "8", *own, "--json", "--out", str(tmp_path / "out"))
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    document = json.loads(result.stdout)
    assert [row["target"] for row in document["rows"]] == ["clean", "mine"]
    assert document["facts"]["weights"] == "net.pth"
    assert len(document["facts"]["weights_sha256"]) == 64


@pytest.mark.slow
def test_changed_images_or_weights_are_refused_and_earlier_results_stay(tmp_path, images, projnorm):
    weights = tmp_path / "net.pth"
    torch.manual_seed(0)
    network = resnet18(1)
    torch.save(network.state_dict(), weights)
    command = ("ntk", "predict", "--n", "6", "--m", "5", "--families", "none", "--data", str(images))
    command += ("--weights", str(weights), "--out", str(tmp_path / "out"))
    assert projnorm(*command).returncode == 0
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    with np.load(images) as archive:
        pictures, labels = archive["images"], archive["labels"]
    np.savez(images, images=pictures[::-1], labels=labels)
    assert_one_line_error(projnorm(*command), "different: ", "inputs of", "--fresh")
    np.savez(images, images=pictures, labels=labels)
    with torch.no_grad():
        network.conv1.weight.mul_(1.5)
    torch.save(network.state_dict(), weights)
    assert_one_line_error(projnorm(*command), "different: network", "--fresh")
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()} == before
    assert projnorm(*command, "--fresh").returncode == 0


@pytest.mark.slow
def test_a_record_of_earlier_images_is_not_passed_off_as_one_of_these(tmp_path, images, projnorm):
    asked = ("--n", "6", "--m", "5", "--families", "none", "--data", str(images), "--out", str(tmp_path / "out"))
    first = json.loads(projnorm("ntk", "predict", *asked, "--json").stdout)
    with np.load(images) as archive:
        pictures, labels = archive["images"], archive["labels"]
    np.savez(images, images=255 - pictures, labels=labels)
    assert projnorm("ntk", "gram", *asked, "--fresh").returncode == 0
    assert_one_line_error(projnorm("ntk", "predict", *asked), "other images, weights or labels", "--fresh")
    again = json.loads(projnorm("ntk", "predict", *asked, "--json", "--fresh").stdout)
    assert again["rows"] != first["rows"]


def test_a_target_smaller_than_m_keeps_its_own_size(tmp_path, images):
    small = tmp_path / "small.npz"
    with np.load(images) as archive:
        np.savez(small, images=archive["images"][:3], labels=archive["labels"][:3])
    config = NtkConfig(data=str(images), n=8, m=6, families=(), targets=(str(small),))
    record = run_analysis(config, root=tmp_path / "runs", device="cpu")
    assert record.arrays["sizes"].tolist() == [6, 3]
    assert record.arrays["alignment"].shape == (2, 6, 6)
    assert np.isnan(record.arrays["alignment"][1, 3:]).all()
    for module in (ntk_panels, ntk_decay_grid, ntk_intervals, ntk_norm_ratio):
        module.draw(record)


def test_one_class_in_training_is_refused(tmp_path, images):
    with np.load(images) as archive:
        np.savez(images, images=archive["images"], labels=np.zeros(30, np.int64))
    with pytest.raises(ValueError, match="training images drawn are all of one class"):
        run_analysis(NtkConfig(data=str(images), n=8, m=6, families=()), root=tmp_path)


def test_ntk_alone_prints_its_help(projnorm):
    result = projnorm("ntk")
    assert result.returncode == 0
    assert "predict" in result.stdout
    assert result.stderr == ""


def test_changed_labels_are_refused_too(tmp_path, images, projnorm):
    command = ("ntk", "predict", "--n", "6", "--m", "5", "--families", "none", "--data", str(images))
    command += ("--out", str(tmp_path / "out"))
    assert projnorm(*command).returncode == 0
    with np.load(images) as archive:
        pictures, labels = archive["images"], archive["labels"]
    np.savez(images, images=pictures, labels=(labels + 1) % 3)
    assert_one_line_error(projnorm(*command), "labels", "--fresh")


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


def test_heads_average_and_are_recorded(tmp_path):
    config = NtkConfig(n=8, m=6, families=(), heads=2)
    record = run_analysis(config, root=tmp_path, device="cpu")
    assert len(record.facts["head_norms"]) == 2
    assert record.facts["head_norms"][0] != record.facts["head_norms"][1]
    assert record.arrays["targets"].tolist() == ["clean"]


@pytest.mark.parametrize("change", [{"n": 0}, {"heads": 0}, {"ridge": -1.0}, {"seed": -1}, {"size": 0}])
def test_an_experiment_that_cannot_be_is_refused(change):
    with pytest.raises(ValueError, match="`"):
        NtkConfig(**change)


def test_two_targets_of_one_name_are_refused(tmp_path, images):
    with pytest.raises(ValueError, match="`targets` must name each one once"):
        run_analysis(NtkConfig(n=8, m=6, families=(), targets=(str(images),) * 2), root=tmp_path)


@pytest.mark.slow
def test_more_coordinates_come_closer_to_the_exact_kernel(tmp_path):
    experiment = NtkConfig(n=8, m=6, families=("contrast",), severities=(5,), accumulate="float64")
    config = SubsampleConfig(experiment, counts=(500, 200_000), kinds=("coordinates", "projection"), draws=1)
    arrays = run_subsample(config, root=tmp_path).arrays
    for kind in config.kinds:
        few, many = ((arrays["kinds"] == kind) & (arrays["counts"] == count) for count in config.counts)
        for what in ("eigenvalue_error", "projnorm_error"):
            assert np.abs(arrays[what][many]).mean() < 0.5 * np.abs(arrays[what][few]).mean()
    assert arrays["projnorm_error"].shape == (4, 2)


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
