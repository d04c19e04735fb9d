"""Whole runs on small data: the same scores whatever interrupts them, official formats, and what is refused."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deep.comparison.analysis_config import NtkPredictConfig, SweepConfig
from deep.comparison.comparison import run_comparison
from deep.comparison.config import METHODS, DeepConfig
from deep.comparison.kernels_of_run import run_ntk_predict
from deep.comparison.modality import load_image_data
from deep.comparison.presets import IMAGE_PRESETS, preset
from deep.comparison.runs import Run, open_run
from deep.comparison.stages import NETWORK
from deep.comparison.sweep import run_sweep
from deep.comparison.trained_networks import TrainedNetworks, networks_of
from deep.training.loop import train
from projnorm.core.backends import Backend
from projnorm.core.errors import ChangedInputError, InputError
from projnorm.core.records import RunContext
from projnorm.core.statistics import subsample_indices
from projnorm.core.store import Store
from projnorm.data.corruptions.families import corrupt
from tests.reliability.samples import archive
from tests.small import SMALL

# One family, one severity and no training but that of the network.
SMALLEST = SMALL.updated({"data": {"families": ("contrast",), "severities": (5,)}, "methods": ("Entropy",)})


def documents(root: Path, name: str) -> dict[str, bytes]:
    """What a run has scored, as it stands on disk."""
    return {path.name: path.read_bytes() for path in sorted((root / name / "scores").glob("*.json"))}


def same_arrays(one, other) -> None:
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, other.arrays[name], err_msg=name)


def test_a_run_scores_every_target_with_every_method(finished):
    context, record = finished
    run = open_run(context.root, record.id)
    assert run.config == SMALL == DeepConfig.from_json(SMALL.to_json())
    scores = run.scores()
    shifts = [f"{f}-{s}" for f in SMALL.data.families for s in SMALL.data.severities]
    assert scores.targets.tolist() == ["clean", *shifts]
    assert scores.origins.tolist() == ["clean", *["generated"] * 4]
    assert scores.methods[:6] == METHODS
    np.testing.assert_array_equal(record.arrays["scores"], scores.values[:, :6])
    assert np.isfinite(scores.values).all()
    assert (scores.errors < 0.9).any()
    squares = record.arrays["layer_contributions"].sum(axis=1)
    np.testing.assert_allclose(np.sqrt(squares), scores.values[:, 5], rtol=1e-12)
    np.testing.assert_array_equal(record.arrays["trajectory"][:, 1], scores.values[:, 5])
    assert record.facts["corruptions"] == ["clean", "generated"]
    assert "random" in record.facts["weights"]


# A file that appears in each stage of a run, as a pattern below the folder of all runs.
_SIGNS = (
    "deep-*/run.json",
    "trained/network-*.json",
    "trained/reference-*.json",
    "trained/rotation-*.json",
    "outputs/*/*.json",
    "deep-*/target-scores/*.json",
    "projnorm/*/*.json",
)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_killed_in_any_stage_it_finishes_with_the_same_scores(finished, tmp_path, workers):
    (tmp_path / "small.toml").write_text(SMALL.to_toml())
    options = ("--config", "small.toml", "--workers", str(workers), "--out", str(tmp_path))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    command = [sys.executable, "-m", "projnorm", "deep", "run", "digits", *options]
    killed, runs = 0, tmp_path / "runs"
    for sign in _SIGNS if workers == 1 else _SIGNS[1::4]:
        child = subprocess.Popen(command, start_new_session=True, env=environment, cwd=tmp_path)
        while child.poll() is None and not any(runs.glob(sign)):
            time.sleep(0.002)
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            killed += 1
        child.wait()
    assert killed >= (4 if workers == 1 else 1)
    same_arrays(finished[1], run_comparison(SMALL, RunContext(runs, Backend(workers))))


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["resnet50", "vgg11"])
def test_the_papers_other_networks_run_through_at_a_small_size(tmp_path, architecture):
    small = {
        "data": {"families": ("contrast",), "severities": (5,), "n": 24, "n_validation": 20, "m": 20},
        "network": {"architecture": architecture},
        "finetune": {"epochs": 1, "lr": 1e-3, "batch": 12},
        "projnorm": {"steps": 2, "lr": 1e-3, "batch": 10, "trajectory": (1, 2)},
        "rotation": {"samples": 4},
        "methods": (*METHODS, "ProjNorm-matched"),
    }
    record = run_comparison(SMALL.updated(small), RunContext(tmp_path, device="cpu"))
    assert record.arrays["scores"].shape == (2, 7)
    assert np.isfinite(record.arrays["scores"]).all()
    assert (record.arrays["scores"][:, 5:] > 0.0).all()


def test_one_training_on_a_target_serves_the_published_and_the_matched_reference(finished, tmp_path, monkeypatch):
    context, record = finished
    root = shutil.copytree(context.root, tmp_path / "runs")
    alone = dict(zip(SMALL.methods, record.arrays["scores"].T, strict=True))["ProjNorm"]
    for folder in ("projnorm", record.id):
        shutil.rmtree(root / folder)
    trained = []

    def counted(model, inputs, labels, recipe, **options):
        trained.append(len(labels))
        return train(model, inputs, labels, recipe, **options)

    monkeypatch.setattr("deep.training.loop.train", counted)
    both = SMALL.updated({"methods": ("ProjNorm", "ProjNorm-matched")})
    found = run_comparison(both, RunContext(root, device="cpu"))
    np.testing.assert_array_equal(found.arrays["scores"][:, 0], alone)
    assert (found.arrays["scores"][:, 1] > 0.0).all()
    assert len(trained) == 2 * len(alone)  # on every target, and its reference
    trained.clear()
    matched = run_comparison(
        both.updated({"methods": ("ProjNorm",), "projnorm": {"reference": "matched"}}), RunContext(root, device="cpu")
    )
    np.testing.assert_array_equal(matched.arrays["scores"][:, 0], found.arrays["scores"][:, 1])
    sweep = run_sweep(SweepConfig(found.id, reference=("fine-tuned", "matched")), RunContext(root, device="cpu"))
    np.testing.assert_array_equal(sweep.arrays["scores"][:, [0, 2]], found.arrays["scores"])
    assert not trained  # all of it was there


def test_few_are_nested_and_spread():
    assert set(subsample_indices(100, 10, 3)) < set(subsample_indices(100, 30, 3))
    assert subsample_indices(100, 10, 3).max() > 50
    assert subsample_indices(5, 10, 3).tolist() == [0, 1, 2, 3, 4]


def test_fresh_trains_again_and_ends_the_same(tmp_path):
    config = SMALL.updated({"methods": ("ATC", "ProjNorm"), "data": {"families": SMALL.data.families[:1]}})
    first = run_comparison(config, RunContext(tmp_path))
    files = [*(tmp_path / "trained").glob("network-*.json"), *(tmp_path / "projnorm").glob("*/*.json")]
    written = {path: path.stat().st_mtime_ns for path in files}
    again = run_comparison(config, RunContext(tmp_path, fresh=True))
    assert all(path.stat().st_mtime_ns > before for path, before in written.items())
    same_arrays(first, again)


def _images(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, count)
    images = rng.integers(0, 60, (count, 32, 32, 3)).astype(np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[3 * label : 3 * label + 4] += 150
    return images, labels


def _official(folder: Path) -> tuple[Path, Path]:
    """CIFAR-10's binary archive and CIFAR-10-C's files, small."""
    source, corrupted = folder / "cifar-10-binary.tar.gz", folder / "CIFAR-10-C"
    test, test_labels = _images(60, 9)
    files = {}
    parts = {f"data_batch_{i}": _images(60, i) for i in range(1, 6)} | {"test_batch": (test, test_labels)}
    for name, (images, labels) in parts.items():
        planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
        files[f"{name}.bin"] = np.hstack([labels[:, None].astype(np.uint8), planes]).tobytes()
    source.write_bytes(archive(files))
    corrupted.mkdir()
    np.save(corrupted / "labels.npy", np.tile(test_labels.astype(np.uint8), 5))
    for family in SMALL.data.families:
        np.save(corrupted / f"{family}.npy", np.concatenate([corrupt(test, family, s, seed=0) for s in range(1, 6)]))
    return source, corrupted


def test_a_run_on_official_files(tmp_path):
    source, corrupted = _official(tmp_path)
    data = {"data": str(source), "corruptions": str(corrupted), "m": 40}
    config = SMALL.updated({"data": data, "methods": ("ConfScore", "ATC", "ProjNorm")})
    record = run_comparison(config, RunContext(tmp_path / "runs"))
    assert record.arrays["origins"].tolist() == ["clean", *["official"] * 4]
    assert record.facts["corruptions"] == ["clean", "official"]
    assert record.arrays["errors"][0] < 0.5
    generated = load_image_data(config.updated({"data": {"corruptions": "generated"}}))
    official = load_image_data(config)
    for ours, theirs in zip(generated.targets, official.targets, strict=True):
        np.testing.assert_array_equal(ours.samples.inputs, theirs.samples.inputs)
    with pytest.raises(ValueError, match="`family` must be one of contrast, gaussian_noise; got 'fog'"):
        load_image_data(config.updated({"data": {"families": ("fog",)}}))
    np.save(corrupted / "labels.npy", np.zeros(300, np.uint8))
    with pytest.raises(ValueError, match="CIFAR-10-C: its labels are not those of the test set"):
        load_image_data(config)


def test_other_images_under_the_same_name_are_refused_until_fresh(tmp_path):
    images, labels = _images(200, 0)
    path, context = tmp_path / "mine.npz", RunContext(tmp_path)
    np.savez(path, images=images, labels=labels)
    data = {"data": str(path), "n": 60, "n_validation": 20, "m": 30}
    config = SMALL.updated({"data": data, "methods": ("Entropy",)})
    first = run_comparison(config, context)
    np.savez(path, images=255 - images, labels=labels)
    changed = r"was computed with other data, weights, torch or device; compute it again with fresh=True"
    for again in (
        lambda: run_comparison(config, context),
        lambda: run_ntk_predict(NtkPredictConfig(first.id, n=10, m=10), context),
    ):
        with pytest.raises(ChangedInputError, match=changed):
            again()
    assert f"{first.id}/record" in Store(tmp_path)
    other = run_comparison(config, RunContext(tmp_path, fresh=True))
    assert not np.array_equal(first.arrays["scores"], other.arrays["scores"])


def test_a_run_begun_afresh_and_interrupted_is_gone_on_with(tmp_path, monkeypatch):
    first = run_comparison(SMALLEST, RunContext(tmp_path))
    whole = documents(tmp_path, first.id)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("deep.comparison.comparison.score_target", killed)
        with pytest.raises(KeyboardInterrupt):
            run_comparison(SMALLEST, RunContext(tmp_path, fresh=True))
    assert not documents(tmp_path, first.id)
    assert f"{first.id}/record" in Store(tmp_path)
    run_comparison(SMALLEST, RunContext(tmp_path))
    assert documents(tmp_path, first.id) == whole


def test_the_options_of_the_algorithm_change_what_they_should(finished, tmp_path):
    _, record = finished
    only, context = SMALLEST.updated({"methods": ("ProjNorm",)}), RunContext(tmp_path)
    place = record.arrays["targets"].tolist().index("contrast-5")
    for change in ({"reference": "fine-tuned"}, {"labels": "true"}, {"reference_samples": "all"}, {"momentum": 0.0}):
        arrays = run_comparison(only.updated({"projnorm": change}), context).arrays
        assert arrays["scores"][1, 0] != record.arrays["scores"][place, 5]
        assert arrays["errors"][0] == record.arrays["errors"][0]
    assert run_comparison(only, context).arrays["scores"][1, 0] == record.arrays["scores"][place, 5]


def test_joint_rotation_evaluates_the_jointly_trained_network(finished, tmp_path):
    _, record = finished
    joint = SMALLEST.updated({"rotation": {"head": "joint"}, "methods": ("Rotation", "ConfScore")})
    scores = run_comparison(joint, RunContext(tmp_path)).arrays["scores"]
    assert scores[0, 1] != record.arrays["scores"][0, 1]
    assert 0.0 <= scores[0, 0] < 0.75


def test_given_targets_are_numbered_after_the_training_classes(tmp_path):
    images, _ = _images(12, 0)
    for part, names in (("data/train", "abc"), ("data/test", "abc"), ("new", "bc"), ("odd", "bz")):
        for number, name in enumerate(names):
            folder = tmp_path / part / name
            folder.mkdir(parents=True)
            for i in range(4):
                Image.fromarray(images[4 * (number % 3) + i]).save(folder / f"{i}.png")
    np.savez(tmp_path / "far.npz", images=images, labels=np.arange(12))
    np.savez(tmp_path / "same.npz", images=images, labels=np.zeros(12, int))
    np.savez(tmp_path / "one.npz", images=images[:1], labels=[0])
    np.savez(tmp_path / "blind.npz", images=images)
    config = SMALL.updated({"data": {"data": str(tmp_path / "data"), "n": 8, "n_validation": 2, "m": 8}})

    def loaded(target: str, **data):
        return load_image_data(config.updated({"data": {"targets": (str(tmp_path / target),), **data}}))

    assert loaded("new").targets[-1].samples.labels.tolist() == [1] * 4 + [2] * 4
    for target, data, message in (
        ("odd", {}, "odd: has the class 'z', which the training samples lack"),
        ("far.npz", {}, r"far\.npz: has class 11; the training samples have 0 to 2"),
        ("same.npz", {"data": str(tmp_path / "same.npz"), "n": 2, "m": 2}, "all of one class"),
        ("one.npz", {}, "needs 2 samples of each; one has 1"),
        ("blind.npz", {}, r"blind\.npz: has no labels, which are needed here"),
    ):
        with pytest.raises(InputError, match=message):
            loaded(target, **data)


def test_presets_are_the_papers():
    paper = [name for name in IMAGE_PRESETS if name.startswith("paper-")]
    assert len(paper) == 6
    for name in paper:
        config = IMAGE_PRESETS[name]
        assert (config.finetune.lr, config.finetune.batch) == (config.projnorm.lr, config.projnorm.batch) == (1e-3, 128)
        assert (config.network.size, config.projnorm.steps, config.data.m) == (224, 1000, 10_000)
        assert config.finetune.epochs == (50 if "cifar100" in name else 20)
        assert len(config.data.families) * len(config.data.severities) == 90
        assert config.network.weights == "imagenet"
        assert name.endswith(config.network.architecture)
    with pytest.raises(InputError, match="`preset` must be one of paper-cifar10-resnet18"):
        preset("cifar11")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"projnorm": {"samples": 61}}, "`projnorm.samples` must be 0 for all, or from 2 to m = 60; got 61"),
        ({"projnorm": {"samples": 1}}, "`projnorm.samples` must be 0 for all, or at least 2"),
        ({"projnorm": {"layers": ("nope",)}}, "`projnorm.layers` must be of features, avgpool, fc, .*; got nope"),
        ({"finetune": {"layers": ("fc", "nope")}}, "got nope"),
        ({"data": {"n_validation": 898}}, "must leave 2 samples or more of the 899 of the training half of digits"),
        ({"data": {"m": 899}}, "`m` must be at most 898, the samples of the test half of digits"),
        ({"network": {"weights": "nowhere.pth"}}, "nowhere.pth"),
    ],
)
def test_what_cannot_be_computed_is_refused_before_anything_is_trained_or_begun(tmp_path, change, message):
    with pytest.raises((InputError, OSError), match=message):
        run_comparison(SMALL.updated(change), RunContext(tmp_path, device="cpu"))
    assert not [path for path in tmp_path.rglob("*") if "corruptions" not in path.parts]


def test_a_stage_that_another_run_trains_meanwhile_is_not_trained_again(finished, tmp_path, monkeypatch):
    context, record = finished
    plain = Store.lock

    @contextmanager
    def after_the_other(store, key="all"):
        if key.startswith(NETWORK):
            shutil.copytree(context.root / "trained", store.folder, dirs_exist_ok=True)
        with plain(store, key):
            yield

    monkeypatch.setattr(Store, "lock", after_the_other)
    monkeypatch.setattr(TrainedNetworks, "_trained", lambda *_: pytest.fail("trained again"))
    networks_of(Run(SMALL, RunContext(tmp_path, device="cpu"), record.id)).train_stage(NETWORK)
