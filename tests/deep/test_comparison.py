"""Whole runs on small data: the same ledger whatever interrupts them, official formats, and what is refused."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from deep.ledger import Scores
from projnorm.runs import Backend, record_id

from deep.config import METHODS
from deep.estimators.projnorm import ProjNorm
from deep.experiments.comparison import LEDGER, open_run, run_comparison
from deep.experiments.ntk_predict import (
    NtkPredictConfig,
    run_ntk_predict,
)
from deep.images import load_image_data
from deep.presets import PRESETS, preset
from deep.samples import few_indices
from deep.stages import NETWORK, Workplace, outputs_of, reference_of, run_stage
from deep.training import Hardware
from projnorm.vision import corrupt
from tests.deep.small import SMALL


def test_a_run_scores_every_target_with_every_method(finished):
    root, record = finished
    config, ledger = open_run(root / record.id)
    assert config == SMALL
    assert [row.method for row in ledger.rows] == [*METHODS[:5] * 5, *METHODS[5:] * 5]
    scores = Scores.of(ledger.rows)
    assert scores.targets.tolist() == ["clean", *(f"{f}-{s}" for f in SMALL.families for s in SMALL.severities)]
    assert scores.origins.tolist() == ["clean", *["generated"] * 4]
    assert scores.methods == METHODS
    np.testing.assert_array_equal(record.arrays["scores"], scores.values)
    assert np.isfinite(scores.values).all()
    assert (scores.errors < 0.9).any()
    squares = record.arrays["layer_contributions"].sum(axis=1)
    np.testing.assert_allclose(np.sqrt(squares), scores.values[:, 5], rtol=1e-12)
    np.testing.assert_array_equal(record.arrays["trajectory"][:, 1], scores.values[:, 5])
    assert record.facts["corruptions"] == ["clean", "generated"]
    assert "random" in record.facts["weights"]


def test_the_numbers_do_not_depend_on_the_workers_and_a_finished_run_is_read(finished, tmp_path, monkeypatch):
    root, record = finished
    other = run_comparison(SMALL, root=tmp_path, backend=Backend(2))
    assert (tmp_path / other.id / LEDGER).read_bytes() == (root / record.id / LEDGER).read_bytes()

    def never(*_):
        raise AssertionError("computed again")

    monkeypatch.setattr("deep.experiments.comparison.run_stage", never)
    assert run_comparison(SMALL, root=tmp_path).created == other.created


_CHILD = """
import json, sys
from pathlib import Path
from deep.config import DeepConfig
from deep.experiments.comparison import run_comparison
from projnorm.backends import Backend
if __name__ == "__main__":
    config, backend = DeepConfig.from_json(json.loads(sys.argv[1])), Backend(int(sys.argv[3]))
    run_comparison(config, root=Path(sys.argv[2]), backend=backend)
"""


# A file that appears in each stage of a run, as a pattern below the folder of all runs.
_SIGNS = (
    "deep-*/run.json",
    "trained/network-*.json",
    "trained/reference-*.json",
    "trained/rotation-*.json",
    "outputs/*/*.npz",
    f"deep-*/{LEDGER}",
    "projnorm/*/*.npz",
)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_killed_in_any_stage_it_finishes_with_the_same_ledger(finished, tmp_path, workers):
    root, record = finished
    folder = tmp_path / record_id("deep", asdict(SMALL))
    script = tmp_path / "child.py"
    script.write_text(_CHILD)
    killed = 0
    for sign in _SIGNS if workers == 1 else _SIGNS[1::4]:
        child = subprocess.Popen(
            [sys.executable, str(script), json.dumps(asdict(SMALL)), str(tmp_path), str(workers)],
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        )
        while child.poll() is None and not any(tmp_path.glob(sign)):
            time.sleep(0.002)
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            killed += 1
        child.wait()
    assert killed >= (4 if workers == 1 else 1)
    run_comparison(SMALL, root=tmp_path, backend=Backend(workers))
    assert (folder / LEDGER).read_bytes() == (root / record.id / LEDGER).read_bytes()


def test_projnorm_of_fewer_images_predicts_the_error_on_all(tmp_path):
    config = replace(SMALL, methods=("ProjNorm",), families=SMALL.families[:1])
    few = run_comparison(replace(config, projnorm_samples=40), root=tmp_path).arrays
    all_of_them = run_comparison(config, root=tmp_path).arrays
    np.testing.assert_array_equal(few["errors"], all_of_them["errors"])
    work = Workplace(replace(config, projnorm_samples=40), tmp_path / "run", Hardware())
    clean = work.data.targets[0].samples.take(few_indices(60, 40, SMALL.seed))
    plain = ProjNorm(work.initial().model, reference_of(work), work.projnorm_recipe, SMALL.seed, work.prepare)
    labels = outputs_of(work, work.data.targets[0].samples).predicted[few_indices(60, 40, SMALL.seed)]
    assert few["scores"][0, 0] == pytest.approx(plain.measure(clean.images, labels).value, rel=1e-5)
    assert np.all(few["scores"] != all_of_them["scores"])
    with pytest.raises(ValueError, match="`projnorm_samples` must be 0 for all, or from 2 to m = 60; got 61"):
        replace(SMALL, projnorm_samples=61)


def test_few_are_nested_and_spread():
    assert set(few_indices(100, 10, 3)) < set(few_indices(100, 30, 3))
    assert few_indices(100, 10, 3).max() > 50
    assert few_indices(5, 10, 3).tolist() == [0, 1, 2, 3, 4]


def test_fresh_trains_again_and_ends_the_same(tmp_path):
    config = replace(SMALL, methods=("ATC", "ProjNorm"), families=SMALL.families[:1])
    first = run_comparison(config, root=tmp_path)
    stage = next((tmp_path / "trained").glob("network-*.json"))
    written = stage.stat().st_mtime_ns
    again = run_comparison(config, root=tmp_path, fresh=True)
    assert stage.stat().st_mtime_ns > written
    assert all(value.stat().st_mtime_ns > written for value in (tmp_path / "projnorm").glob("*/*.npz"))
    np.testing.assert_array_equal(again.arrays["scores"], first.arrays["scores"])


def _images(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, count)
    images = rng.integers(0, 60, (count, 32, 32, 3)).astype(np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[3 * label : 3 * label + 4] += 150
    return images, labels


def _official(folder: Path) -> tuple[Path, Path]:
    """CIFAR-10's binary archive and CIFAR-10-C's files, small."""
    archive, corrupted = folder / "cifar-10-binary.tar.gz", folder / "CIFAR-10-C"
    test, test_labels = _images(60, 9)
    with tarfile.open(archive, "w:gz") as tar:
        parts = {f"data_batch_{i}": _images(60, i) for i in range(1, 6)} | {"test_batch": (test, test_labels)}
        for name, (images, labels) in parts.items():
            planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
            data = np.hstack([labels[:, None].astype(np.uint8), planes]).tobytes()
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    corrupted.mkdir()
    np.save(corrupted / "labels.npy", np.tile(test_labels.astype(np.uint8), 5))
    for family in SMALL.families:
        np.save(corrupted / f"{family}.npy", np.concatenate([corrupt(test, family, s, seed=0) for s in range(1, 6)]))
    return archive, corrupted


def test_a_run_on_official_files(tmp_path):
    archive, corrupted = _official(tmp_path)
    config = replace(
        SMALL, data=str(archive), corruptions=str(corrupted), m=40, methods=("ConfScore", "ATC", "ProjNorm")
    )
    record = run_comparison(config, root=tmp_path / "runs")
    assert record.arrays["origins"].tolist() == ["clean", *["official"] * 4]
    assert record.facts["corruptions"] == ["clean", "official"]
    assert record.arrays["errors"][0] < 0.5
    generated = load_image_data(replace(config, corruptions="generated"))
    official = load_image_data(config)
    for ours, theirs in zip(generated.targets, official.targets, strict=True):
        np.testing.assert_array_equal(ours.samples.inputs, theirs.samples.inputs)
    with pytest.raises(ValueError, match="`family` must be one of contrast, gaussian_noise; got 'fog'"):
        load_image_data(replace(config, families=("fog",)))
    np.save(corrupted / "labels.npy", np.zeros(300, np.uint8))
    with pytest.raises(ValueError, match="CIFAR-10-C: its labels are not those of the test set"):
        load_image_data(config)


def test_other_images_under_the_same_name_are_refused_until_fresh(tmp_path):
    images, labels = _images(200, 0)
    path = tmp_path / "mine.npz"
    np.savez(path, images=images, labels=labels)
    config = replace(SMALL, data=str(path), n_train=60, n_validation=20, m=30, methods=("Entropy",))
    first = run_comparison(config, root=tmp_path)
    np.savez(path, images=255 - images, labels=labels)
    with pytest.raises(ValueError, match="was computed with other data, weights, torch or device; pass --fresh"):
        run_comparison(config, root=tmp_path)
    assert (tmp_path / first.id / "record.json").exists()
    with pytest.raises(ValueError, match="was computed with other data, weights, torch or device; run it again"):
        run_ntk_predict(NtkPredictConfig(first.id, n=10, m=10), root=tmp_path)
    other = run_comparison(config, root=tmp_path, fresh=True)
    assert not np.array_equal(first.arrays["scores"], other.arrays["scores"])


def test_a_run_begun_afresh_and_interrupted_is_gone_on_with(tmp_path, monkeypatch):
    config = replace(SMALL, families=("contrast",), severities=(5,), methods=("Entropy",))
    first = run_comparison(config, root=tmp_path)
    whole = (tmp_path / first.id / LEDGER).read_bytes()

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("deep.experiments.comparison._score", killed)
        with pytest.raises(KeyboardInterrupt):
            run_comparison(config, root=tmp_path, fresh=True)
    assert not (tmp_path / first.id / LEDGER).exists()
    assert (tmp_path / first.id / "record.json").exists()
    run_comparison(config, root=tmp_path)
    assert (tmp_path / first.id / LEDGER).read_bytes() == whole


def test_the_options_of_the_algorithm_change_what_they_should(finished, tmp_path):
    _, record = finished
    only = replace(SMALL, families=("contrast",), severities=(5,), methods=("ProjNorm",))
    shown = record.arrays["targets"].tolist()
    for change in ({"reference": "fine-tuned"}, {"labels": "true"}, {"reference_samples": "all"}, {"momentum": 0.0}):
        found = run_comparison(replace(only, **change), root=tmp_path)
        assert found.arrays["scores"][1, 0] != record.arrays["scores"][shown.index("contrast-5"), 5]
        assert found.arrays["errors"][0] == record.arrays["errors"][0] or "momentum" in change
    same = run_comparison(only, root=tmp_path)
    assert same.arrays["scores"][1, 0] == record.arrays["scores"][shown.index("contrast-5"), 5]


def test_joint_rotation_evaluates_the_jointly_trained_network(finished, tmp_path):
    _, record = finished
    joint = run_comparison(
        replace(SMALL, rotation="joint", methods=("Rotation", "ConfScore"), severities=(1,)), root=tmp_path
    )
    assert joint.arrays["scores"][0, 1] != record.arrays["scores"][0, 1]
    assert 0.0 <= joint.arrays["scores"][0, 0] < 0.75


def test_given_targets_are_numbered_after_the_training_classes(tmp_path):
    from PIL import Image

    images, _ = _images(12, 0)
    for part, names in (("data/train", "abc"), ("data/test", "abc"), ("new", "bc"), ("odd", "bz")):
        for number, name in enumerate(names):
            folder = tmp_path / part / name
            folder.mkdir(parents=True)
            for i in range(4):
                Image.fromarray(images[4 * (number % 3) + i]).save(folder / f"{i}.png")
    config = replace(
        SMALL, data=str(tmp_path / "data"), n_train=8, n_validation=2, m=8, targets=(str(tmp_path / "new"),)
    )
    assert load_image_data(config).targets[-1].samples.labels.tolist() == [1] * 4 + [2] * 4
    with pytest.raises(ValueError, match="odd: has the class 'z', which the training images lack"):
        load_image_data(replace(config, targets=(str(tmp_path / "odd"),)))
    np.savez(tmp_path / "far.npz", images=images, labels=np.arange(12))
    with pytest.raises(ValueError, match=r"far\.npz: has class 11; the training images have 0 to 2"):
        load_image_data(replace(config, targets=(str(tmp_path / "far.npz"),)))
    np.savez(tmp_path / "one.npz", images=images[:1], labels=[0])
    with pytest.raises(ValueError, match="needs 2 samples of each; one has 1"):
        load_image_data(replace(config, targets=(str(tmp_path / "one.npz"),)))


def test_presets_are_the_papers():
    paper = [name for name in PRESETS if name.startswith("paper-")]
    assert len(paper) == 6
    for name in paper:
        config = preset(name)
        assert (config.size, config.steps, config.m, config.lr, config.batch) == (224, 1000, 10_000, 1e-3, 128)
        assert config.epochs == (50 if "cifar100" in name else 20)
        assert len(config.families) * len(config.severities) == 90
        assert config.weights == "imagenet"
        assert name.endswith(config.architecture)
    with pytest.raises(ValueError, match="`preset` must be one of paper-cifar10-resnet18"):
        preset("cifar11")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architecture": "resnet19"}, "`architecture` must be one of"),
        ({"methods": ("Oracle",)}, "`methods` must be of Rotation, ConfScore.*got 'Oracle'"),
        ({"methods": ()}, "`methods` must name at least one"),
        ({"families": ("rain",)}, "`families` must be of gaussian_noise.*got 'rain'"),
        ({"families": ("fog", "fog")}, "`families` must name each one once"),
        ({"severities": (6,)}, "`severities` must be of 1, 2, 3, 4, 5; got 6"),
        ({"m": 0}, "`m` must be at least 1"),
        ({"batch": 1}, "`batch` must be at least 2, for batch norm"),
        ({"n_train": -1}, "`n_train` must be 0 for all"),
        ({"lr": 0.0}, "`lr` must be positive"),
        ({"projnorm_lr": float("nan")}, "`projnorm_lr` must be positive"),
        ({"momentum": 1.0}, "`momentum` must be at least 0 and below 1"),
        ({"seed": -1}, "`seed` must be at least 0"),
        ({"trajectory": (7,)}, "`trajectory` must hold steps from 1 to 6"),
        ({"labels": "guessed"}, "`labels` must be one of pseudo, true"),
    ],
)
def test_bad_configurations_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **change)


def test_data_that_is_too_small_is_refused(tmp_path):
    with pytest.raises(ValueError, match="must leave 2 samples or more of the 899 of digits"):
        load_image_data(replace(SMALL, n_validation=898))
    with pytest.raises(ValueError, match="`m` must be at most 898, the images of digits"):
        load_image_data(replace(SMALL, m=899))
    images, _ = _images(20, 0)
    np.savez(tmp_path / "one.npz", images=images, labels=np.zeros(20, int))
    with pytest.raises(ValueError, match="all of one class"):
        load_image_data(replace(SMALL, data=str(tmp_path / "one.npz"), n_train=0, n_validation=2, m=5))
    with pytest.raises(ValueError, match="`workers` must be at least 1"):
        run_comparison(SMALL, root=tmp_path, backend=Backend(0))


def test_a_damaged_row_is_computed_again_and_the_record_is_as_it_was(finished, tmp_path, caplog):
    root, record = finished
    shutil.copytree(root, tmp_path / "copy")
    ledger = tmp_path / "copy" / record.id / LEDGER
    lines = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(b"".join(line.replace(b'"target": "clean"', b'"target": "cleam"') for line in lines))
    (tmp_path / "copy" / record.id / "record.json").unlink()
    again = run_comparison(SMALL, root=tmp_path / "copy")
    assert "damaged and passed over" in caplog.text
    assert ledger.read_bytes() != b"".join(lines)
    assert sorted(ledger.read_bytes().splitlines(keepends=True)) == sorted(lines)
    for name, array in record.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array, err_msg=name)


def test_a_stage_that_another_run_trains_meanwhile_is_not_trained_again(finished, tmp_path, monkeypatch):
    root, record = finished
    work = Workplace(SMALL, tmp_path / record.id, Hardware())

    @contextmanager
    def after_the_other(folder, name):
        assert name == f".{work.stage(NETWORK).stem}.lock"
        shutil.copytree(root / "trained", folder, dirs_exist_ok=True)
        yield

    monkeypatch.setattr("deep.stages.sole_writer", after_the_other)
    monkeypatch.setattr("deep.stages._fine_tuned", lambda *_: pytest.fail("trained again"))
    run_stage(work, NETWORK)
