"""Experiments on images: what they refuse, what they record, and when they compute."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import ntk.experiments.networks
import ntk.experiments.samples
from deep.comparison.kernels_of_run import TUNED
from deep.comparison.score_quality import Quality
from figures import deep_table, ntk_experiment
from ntk.experiments.config import GramConfig, NtkConfig, NtkImages, NtkNetwork, SubsampleConfig
from ntk.experiments.experiment import run_analysis, run_gram
from ntk.experiments.subsample import run_subsample
from ntk.kernel_config import KernelConfig, KernelKind
from projnorm.core.backends import Backend
from projnorm.core.errors import ChangedInputError, InputError
from projnorm.core.records import RunContext, find_record
from projnorm.core.statistics import Interval
from projnorm.models.networks import resnet18

FEW = NtkImages(n=8, m=6, families=(), severities=(5,))
SMALL_CNN = NtkNetwork(architecture="small-cnn", size=16)


@pytest.fixture
def images(tmp_path) -> Path:
    """A small labelled set, as a user would bring it."""
    rng = np.random.default_rng(0)
    return saved(tmp_path / "mine.npz", rng.integers(0, 256, (30, 32, 32, 3), dtype=np.uint8), rng.integers(0, 3, 30))


@pytest.fixture
def context(tmp_path) -> RunContext:
    return RunContext(tmp_path / "runs", device="cpu")


def saved(path: Path, images: np.ndarray, labels: np.ndarray) -> Path:
    np.savez(path, images=images, labels=labels)
    return path


def small(images: Path | str = "digits", **changes) -> NtkConfig:
    return NtkConfig(replace(FEW, data=str(images), **changes), SMALL_CNN, top=4)


def test_a_run_is_found_again_without_a_network(context, monkeypatch):
    config = small(families=("contrast",))
    first, gram_first = run_analysis(config, context), run_gram(config, context)
    assert first.arrays["targets"].tolist() == ["clean", "contrast-5"]
    assert first.facts["weights"] == "random (the network was never trained)"
    monkeypatch.setattr(ntk.experiments.networks, "load_network", lambda *_a, **_k: pytest.fail("a network was loaded"))
    monkeypatch.setattr(ntk.experiments.samples, "corrupt", lambda *_a, **_k: pytest.fail("images were corrupted"))
    assert run_analysis(config, context).created == first.created
    again = run_gram(config, context)
    assert again.arrays["trace"].tolist() == gram_first.arrays["trace"].tolist()
    assert set(first.facts["inputs"]) == {*again.facts["inputs"], "labels_sha256"}


def test_the_intervals_hold_in_double_precision(context):
    config = replace(small(families=("contrast",)), kernel=KernelKind(accumulate="float64"))
    arrays = run_analysis(config, context).arrays
    for name in ("generalised", "sharp"):
        lower, upper = arrays[name].T
        assert (lower <= arrays["test_loss"]).all()
        assert (arrays["test_loss"] <= upper).all()


def test_ridge_and_top_change_no_kernel(context):
    run_gram(small(), context)
    other = replace(small(), ridge=0.5, top=2)
    run_analysis(other, context)
    assert len(list(context.root.glob("ntk-gram-*"))) == 1
    assert find_record(context.root, "ntk", other) is not None


@pytest.mark.slow
def test_own_images_own_targets_and_own_weights(tmp_path, images, context):
    weights = tmp_path / "net.pth"
    torch.save(resnet18(7).state_dict(), weights)
    config = NtkConfig(replace(FEW, data=str(images), targets=(str(images),)), NtkNetwork(weights=str(weights)))
    record = run_analysis(config, context)
    assert record.arrays["targets"].tolist() == ["clean", "mine"]
    assert record.facts["weights"] == "net.pth"
    assert record.facts["inputs"]["weights_sha256"] == record.facts["weights_sha256"] != ""


@pytest.mark.parametrize("what", ["images", "labels"])
def test_changed_images_or_labels_are_refused_and_earlier_results_stay(images, context, what):
    config = small(images)
    first = run_analysis(config, context)
    with np.load(images) as before:
        changed = {"images": before["images"][::-1], "labels": (before["labels"] + 1) % 3}
        saved(images, **{**before, what: changed[what]})
    for run in (run_analysis, run_gram) if what == "images" else (run_analysis,):
        with pytest.raises(ChangedInputError, match=r"computed from other inputs.*fresh=True"):
            run(config, context)
    assert find_record(context.root, "ntk", config).created == first.created
    again = run_analysis(config, replace(context, fresh=True))
    assert again.facts["inputs"] != first.facts["inputs"]
    assert run_analysis(config, context).facts["inputs"] == again.facts["inputs"]


def test_changed_weights_are_refused_where_only_tiles_are_there(tmp_path, context):
    weights, network = tmp_path / "net.pth", resnet18(1)
    torch.save(network.state_dict(), weights)
    config = NtkConfig(FEW, NtkNetwork(weights=str(weights), layers=("fc",)))
    run_gram(config, context)
    with torch.no_grad():
        network.conv1.weight.mul_(1.5)
    torch.save(network.state_dict(), weights)
    with pytest.raises(ChangedInputError, match=r"different: network.*fresh=True"):
        run_analysis(config, context)


def test_damaged_tiles_are_computed_again(context):
    before = run_analysis(small(), context)
    tile = next(context.root.glob("ntk-gram-*/tiles/*/*.npz"))
    tile.write_bytes(tile.read_bytes()[:-9])
    again = run_analysis(replace(small(), top=3), context)
    assert again.facts["damaged_tiles"] == [tile.stem[:11]]
    np.testing.assert_array_equal(again.arrays["projnorm"], before.arrays["projnorm"])


def test_a_target_smaller_than_m_keeps_its_own_size(tmp_path, images, context):
    with np.load(images) as whole:
        few = saved(tmp_path / "small.npz", whole["images"][:3], whole["labels"][:3])
    record = run_analysis(replace(small(images, targets=(str(few),)), top=300), context)
    assert record.arrays["sizes"].tolist() == [6, 3]
    assert record.arrays["alignment"].shape == (2, 6, 6)
    assert np.isnan(record.arrays["alignment"][1, 3:]).all()


def test_heads_average_and_are_recorded(context):
    record = run_analysis(NtkConfig(FEW, replace(SMALL_CNN, heads=2)), context)
    assert len(set(record.facts["head_norms"])) == 2
    assert record.arrays["targets"].tolist() == ["clean"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": {"data": "same.npz"}}, "training samples drawn are all of one class"),
        ({"data": {"n": 900}}, "`n` must be at most 899"),
        ({"data": {"data": "nowhere.npz"}}, "there is no data at nowhere.npz"),
        ({"network": {"weights": "nowhere.pth"}}, "there are no weights at nowhere.pth"),
        ({"network": {"layers": ("nope",)}}, "`layers` names 'nope'"),
        ({"kernel": {"kind": "coordinates", "count": 99_999_999}}, "`count` must be between 1 and"),
        (None, r"`memory` of 0\.01 GB is too small"),
    ],
)
def test_what_cannot_be_computed_is_refused_before_anything_is_written(tmp_path, monkeypatch, context, change, message):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "same.npz", np.zeros((30, 32, 32, 3), np.uint8), np.zeros(30, int))
    if change is None:
        context = replace(context, memory=1e7)
    for run in (run_gram, run_analysis):
        with pytest.raises(InputError, match=message):
            run(small().updated(change or {}), context)
    assert not context.root.exists()


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (NtkImages, {"n": 0}),
        (NtkImages, {"targets": ("a", "a")}),
        (NtkNetwork, {"heads": 0}),
        (NtkNetwork, {"size": 0}),
        (KernelKind, {"kind": "some"}),
        (KernelKind, {"accumulate": "float16"}),
        (KernelConfig, {"route": "fast"}),
        (KernelConfig, {"panel": 0}),
        (KernelConfig, {"memory": 0.0}),
        (GramConfig, {"seed": -1}),
        (NtkConfig, {"ridge": -1.0}),
        (SubsampleConfig, {"counts": ()}),
        (SubsampleConfig, {"draws": 0}),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(make, change):
    with pytest.raises(InputError, match=f"`{next(iter(change))}`"):
        make(**change)


def test_samples_are_compared_with_an_exact_kernel_and_settings_survive_json():
    with pytest.raises(InputError, match="`kind` must be exact"):
        SubsampleConfig(NtkConfig(kernel=KernelKind("projection", 10)))
    config = SubsampleConfig(small(families=("fog",)), counts=(5, 7))
    assert SubsampleConfig.from_json(config.to_json()) == config


@pytest.mark.slow
def test_more_coordinates_come_closer_to_the_exact_kernel(context):
    images = replace(FEW, families=("contrast",))
    config = SubsampleConfig(NtkConfig(images, kernel=KernelKind(accumulate="float64")), counts=(500, 200_000), draws=1)
    arrays = run_subsample(config, context).arrays
    for kind in config.kinds:
        few, many = ((arrays["kinds"] == kind) & (arrays["counts"] == count) for count in config.counts)
        for what in ("eigenvalue_error", "projnorm_error"):
            assert np.abs(arrays[what][many]).mean() < 0.5 * np.abs(arrays[what][few]).mean()
    assert arrays["projnorm_error"].shape == (4, 2)


@pytest.mark.slow
def test_a_low_ceiling_is_that_of_each_process_and_changes_no_number(tmp_path):
    config = SubsampleConfig(small(families=("contrast",)), counts=(50,), draws=2)
    one, two = (
        run_subsample(config, RunContext(tmp_path / str(workers), Backend(workers), "cpu", memory=1.1e9))
        for workers in (1, 2)
    )
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(two.arrays[name], array)


def test_too_few_targets_or_equal_errors_have_no_r_squared(context, tmp_path):
    record = run_analysis(small(families=("contrast",)), context)
    report = ntk_experiment.show_predictions(record, tmp_path)
    assert report.verdict == "ProjNormLinear against the error: too few targets for R^2 (2; at least 3 are needed)."
    assert np.isnan(report.values["r_squared"])
    record = run_analysis(small(families=("contrast", "brightness")), context)

    def verdict(errors: list[float]) -> str:
        changed = replace(record, arrays={**record.arrays, "error": np.array(errors)})
        return ntk_experiment.show_predictions(changed, tmp_path).verdict

    assert verdict([0.5, 0.5, 0.5]).endswith("no R^2, because the errors do not vary over the 3 targets.")
    assert "R^2 = " in verdict([0.1, 0.5, 0.4])


def test_only_a_tuned_method_is_said_to_be_chosen_on_the_probes():
    def of(method: str) -> Quality:
        return Quality(method, *3 * [Interval(0.5)], targets=3)

    assert "called tuned" not in deep_table.caption([of("ProjNorm"), of("ProjNormLinear-NTK")])
    assert "called tuned" in deep_table.caption([of("ProjNorm"), of(TUNED)])


def test_a_warning_of_many_sets_is_printed_once(context):
    record = run_analysis(small(families=("contrast",)), context)
    warnings = [
        f"{name}: eigenvalues below {x} may be due to rounding" for name, x in (("train", 1e-3), ("clean", 0.2))
    ]
    warnings.append("clean: no sharp interval: it is too wide")
    notes = ntk_experiment._rounding_notes(replace(record, facts={**record.facts, "warnings": warnings}))
    assert notes == [
        "Note on train (likewise clean): eigenvalues below 0.001 may be due to rounding.",
        "Note on clean: no sharp interval: it is too wide.",
    ]
