"""An estimator that is fitted once: the same answers after saving and loading, and files that are not trusted."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier
from torch import nn

from projnorm.core.arrays import from_npz, to_npz
from projnorm.core.errors import InputError
from projnorm.estimate.calibrated_mixture import CalibratedMixture
from projnorm.estimate.calibration_by_size import CalibrationBySize
from projnorm.estimate.choose_labels import chosen_samples
from projnorm.estimate.error_estimator import ErrorEstimator
from projnorm.estimate.estimate import estimate_error
from projnorm.estimate.estimator_file import _checksum
from projnorm.labels.metrics import metric_names
from projnorm.outputs.outputs import Outputs
from tests.small import gaussian_outputs


def drawn(n: int, seed: int, noise: float = 0.0, shares=(1, 1, 1)) -> Outputs:
    """Outputs whose classes have names."""
    outputs = gaussian_outputs(n, shares, np.random.default_rng(seed), noise=noise)
    return replace(outputs, name="", class_names=("ant", "bee", "cat"))


SOURCE, TARGET = drawn(300, 0), drawn(120, 1, 0.5)
SETS = {f"f{i}-{j}": drawn(150, 10 * i + j, 0.4 * j) for i in range(4) for j in (1, 2)}


def table(n: int, seed: int):
    """Rows, and labels of which a model of the first column knows nothing where the second is positive."""
    x = np.random.default_rng(seed).standard_normal((n, 3))
    return x, np.where((x[:, 0] > 0) ^ ((x[:, 1] > 0) & (x[:, 2] > 0)), "yes", "no")


def images(n: int, seed: int, contrast: float = 1.0):
    """Noise, one colour of which is brighter: the class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=n)
    pixels = 6.0 * contrast * np.eye(3)[labels][:, None, None] + 45.0 * rng.standard_normal((n, 8, 8, 3))
    return np.clip(100.0 + pixels, 0, 255).astype(np.uint8), labels


def _dim(x, strength):
    return x / (1.0 + strength)


def _noisy(x, strength):
    return x + 60.0 * strength * np.random.default_rng(0).standard_normal(x.shape)


def _tinted(x, strength):
    return x + np.array([4.0 * strength, 0.0, 0.0])


def cheap_shifts():
    """Families of shifts in the form of `image_shifts`."""

    def changed(change, strength, x, _seed):
        return np.clip(change(x.astype(float), strength), 0, 255).astype(np.uint8)

    kinds = [(kind, strength) for kind in (_dim, _noisy, _tinted) for strength in (1, 2, 3)]
    return [(kind.__name__, strength, partial(changed, kind, strength)) for kind, strength in kinds]


@dataclass
class Case:
    """A fitted estimator, the model that it needs again, and targets."""

    fitted: ErrorEstimator
    targets: list[Any]
    model: Any = None


def _outputs_case(_):
    known = ErrorEstimator.fit(
        None, SOURCE, class_shares={"ant": 0.2, "bee": 0.5, "cat": 0.3}, level=0.8, seed=np.int64(3)
    )
    return Case(known, [TARGET, drawn(60, 2, shares=(2, 5, 3)), {"logits": TARGET.logits, "features": TARGET.features}])


def _sets_case(_):
    return Case(
        ErrorEstimator.fit(None, SOURCE, calibration=SETS, shift="any"), [TARGET, drawn(700, 2, 0.9), drawn(40, 3)]
    )


def _sklearn_case(_):
    """A threshold of its own, and slices of the source on which confidence fails."""
    x, y = table(60, 0)
    linear = LogisticRegression().fit(x[:, :1] * [1, 0, 0], np.where(x[:, 0] > 0, "yes", "no"))
    model = FixedThresholdClassifier(FrozenEstimator(linear), threshold=0.7, pos_label="yes").fit(x, y)
    x, y = table(400, 1)
    fitted = ErrorEstimator.fit(model, (x, y))
    assert fitted.fitted.slice_spread > 0.05
    sure = x[np.abs(x[:, 0]) > 1.0]
    return Case(fitted, [table(200, 2)[0], sure, table(90, 3)], model)


def _network_case(patch):
    for module in ("shifted_images", "calibration_sets"):
        patch.setattr(f"projnorm.estimate.{module}.image_shifts", cheap_shifts)
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 3))
    model[2].weight.data, model[2].bias.data = 60.0 * torch.eye(3), torch.zeros(3)
    fitted = ErrorEstimator.fit(model, images(200, 0), sizes=(100, 40), device="cpu")
    assert list(fitted.fitted.calibration.sizes) == [100, 40]
    return Case(fitted, [images(100, 1)[0], images(300, 2, 0.5), images(30, 3)], model)


CASES = {"outputs": _outputs_case, "calibration sets": _sets_case, "sklearn": _sklearn_case, "network": _network_case}


@pytest.fixture(scope="module")
def cases():
    """Each case once, made when it is asked for."""
    made: dict[str, Case] = {}

    def case(name: str) -> Case:
        if name not in made:
            with pytest.MonkeyPatch.context() as patch:
                made[name] = CASES[name](patch)
        return made[name]

    return case


def documents(estimator, targets):
    """The estimates of targets as JSON, to the last bit."""
    return [json.dumps(estimator.estimate(target, metrics=True).to_dict()) for target in targets]


@pytest.mark.parametrize("options", [{}, {"calibration": SETS, "sizes": (len(TARGET),)}], ids=["outputs", "sets"])
def test_fit_and_estimate_give_the_numbers_of_estimate_error(options):
    fitted = ErrorEstimator.fit(None, SOURCE, **options)
    options = {name: value for name, value in options.items() if name != "sizes"}
    assert fitted.estimate(TARGET).to_dict() == estimate_error(None, SOURCE, TARGET, **options).to_dict()


@pytest.mark.parametrize(
    ("method", "message"), [("Dispersion", "nothing can be estimated"), ("Entropy", "need calibration")]
)
def test_named_methods_that_give_no_error_are_refused_by_fit(method, message):
    source = Outputs(SOURCE.logits, labels=SOURCE.labels, name="source")
    with pytest.raises(InputError, match=message):
        ErrorEstimator.fit(None, source, methods=method)


@pytest.mark.parametrize("name", CASES)
def test_a_loaded_estimator_gives_the_same_answers_to_the_last_bit(tmp_path, cases, name):
    case = cases(name)
    before = documents(case.fitted, case.targets)
    case.fitted.save(tmp_path / "estimator")
    loaded = ErrorEstimator.load(tmp_path / "estimator", model=case.model, device="auto")
    assert documents(loaded, case.targets) == before == documents(case.fitted, case.targets)
    assert loaded.fingerprint == case.fitted.fingerprint
    assert (loaded.n_source, loaded.source_error) == (case.fitted.n_source, case.fitted.source_error)
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "estimator").read_bytes()
    calibrated = name in ("calibration sets", "network")
    assert all((json.loads(document)["calibration"] is not None) == calibrated for document in before)


def test_estimators_that_learnt_something_else_have_other_fingerprints(cases):
    known = [cases(name).fitted.fingerprint for name in CASES] + [
        ErrorEstimator.fit(None, SOURCE, seed=s).fingerprint for s in (0, 1)
    ]
    assert len(set(known)) == len(known)
    assert ErrorEstimator.fit(None, SOURCE).fingerprint == known[-2]


@pytest.mark.parametrize("name", ["calibration sets", "network"])
def test_another_target_needs_no_calibration(tmp_path, cases, name, monkeypatch):
    case = cases(name)
    case.fitted.save(tmp_path / "estimator")

    def refuse(*_args, **_options):
        raise AssertionError("calibrated again")

    monkeypatch.setattr("projnorm.estimate.calibration_sets.shifted_images", refuse)
    monkeypatch.setattr("projnorm.estimate.calibration_sets.CalibrationSets.draws", refuse)
    monkeypatch.setattr(CalibratedMixture, "fit", refuse)
    for estimator in (case.fitted, ErrorEstimator.load(tmp_path / "estimator", model=case.model)):
        assert all(estimator.estimate(target).calibration is not None for target in case.targets)


@pytest.mark.parametrize("calibration", ["none", SETS])
def test_a_fitted_estimator_says_what_estimate_error_does(calibration):
    fitted = ErrorEstimator.fit(None, SOURCE, calibration=calibration, sizes=[120])
    asked = estimate_error(None, SOURCE, TARGET, calibration=calibration, metrics=True)
    assert documents(fitted, [TARGET]) == [json.dumps(asked.to_dict())]
    assert tuple(metric.name for metric in asked.metrics) == metric_names(3)
    assert asked.metrics[0].value == 1.0 - asked.error
    assert estimate_error(None, SOURCE, TARGET).metrics == fitted.estimate(TARGET).metrics == ()


def test_labels_are_taken_as_estimate_error_takes_them(tmp_path):
    fitted = ErrorEstimator.fit(None, SOURCE)
    plan = chosen_samples(fitted, TARGET, 30)
    plan = plan.with_labels({row: TARGET.class_names[TARGET.labels[row]] for row in plan.samples.tolist()})
    asked = estimate_error(None, SOURCE, TARGET, labelled=plan, interval="anytime", metrics=True)
    fitted.save(tmp_path / "estimator")
    for one in (fitted, ErrorEstimator.load(tmp_path / "estimator")):
        assert one.estimate(TARGET, labelled=plan, interval="anytime", metrics=True).to_dict() == asked.to_dict()


def test_a_target_is_judged_by_the_size_that_is_nearest_in_ratio():
    sets = CalibrationBySize("given", dict.fromkeys((60, 120, 240)))
    assert [sets.size_for(m) for m in (1, 84, 85, 169, 170, 10**6)] == [60, 60, 120, 120, 240, 240]


@pytest.mark.parametrize("sizes", [(0,), (60, -1), (50.5,), ("50",), [[60]]])
def test_sizes_that_are_no_numbers_of_samples_are_refused(sizes):
    with pytest.raises(InputError, match="`sizes` must be whole numbers, 1 or more; got"):
        ErrorEstimator.fit(None, SOURCE, sizes=sizes)


def test_what_looks_at_more_than_outputs_is_not_saved(tmp_path):
    others = replace(SOURCE, others=(SOURCE.logits[::-1].copy(),))
    for fitted in (ErrorEstimator.fit(None, SOURCE, methods="cheap"), ErrorEstimator.fit(None, others)):
        with pytest.raises(InputError, match="saved with `methods` default and without `others`; fit it so"):
            fitted.save(tmp_path / "estimator")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_an_earlier_file_is_kept_if_writing_fails(tmp_path, cases, monkeypatch, failing):
    path = tmp_path / "estimator"
    cases("outputs").fitted.save(path)
    before = path.read_bytes()

    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*{"fsync": (os, "fsync", full), "replace": (Path, "replace", full)}[failing])
    with pytest.raises(OSError, match="No space left"):
        ErrorEstimator.fit(None, SOURCE).save(path)
    assert [path.name for path in tmp_path.iterdir()] == ["estimator"]
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (TARGET.logits, "target: without a model .*; got ndarray; pass"),
        (replace(TARGET, logits=TARGET.logits[:, :2]), "must come from one model"),
        (replace(TARGET, class_names=("ant", "bee", "dog")), r"have other classes \(cat\); they must come from one"),
        (replace(TARGET, predictions=TARGET.predicted), "give them for both, or for neither"),
    ],
)
def test_a_target_that_does_not_fit_is_refused(tmp_path, cases, target, message):
    fitted = cases("outputs").fitted
    fitted.save(tmp_path / "estimator")
    for one in (fitted, ErrorEstimator.load(tmp_path / "estimator")):
        with pytest.raises(InputError, match=message):
            one.estimate(target)


def changed(data: bytes, change, *, is_summed: bool = True) -> bytes:
    """A file whose document and arrays were changed, if asked for with the checksum that belongs to them."""
    arrays = from_npz(data)
    document = json.loads(arrays.pop("document").tobytes())
    change(document, arrays)
    if is_summed:
        document.pop("checksum", None)
        document["checksum"] = _checksum(document, {name.replace("|", "/"): one for name, one in arrays.items()})
    return to_npz({**arrays, "document": np.frombuffer(json.dumps(document).encode(), np.uint8)})


def lies(name: str, value: Any):
    """A change of the document."""
    return partial(changed, change=lambda document, _: document.update({name: value}))


NO_FILE = "was not written by `projnorm fit`, or is damaged"
FILES = {
    "empty": (lambda _: b"", f"{NO_FILE} .*not a whole NPZ file"),
    "truncated": (lambda data: data[:-100], f"{NO_FILE} .*not a whole NPZ file"),
    "other arrays": (lambda _: to_npz({"logits": TARGET.logits}), rf"{NO_FILE} \('document'\)"),
    "a document that is none": (lambda _: to_npz({"document": np.zeros(3)}), f"{NO_FILE} .*not a whole JSON document"),
    "another kind": (lies("kind", "monitor"), f"{NO_FILE} .*it is of another kind"),
    "an older version": (lies("version", 1), r"has version 1, and this one reads 2; fit it again\.$"),
    "other arrays than were summed": (
        partial(changed, change=lambda _, arrays: arrays.update({"source|labels": SOURCE.labels * 0}), is_summed=False),
        f"{NO_FILE} .*its checksum differs",
    ),
    "another document than was summed": (
        partial(changed, change=lambda document, _: document.update(level=0.5), is_summed=False),
        f"{NO_FILE} .*its checksum differs",
    ),
    "no labels": (
        partial(changed, change=lambda _, arrays: arrays.pop("source|labels")),
        f"{NO_FILE} .*it has no labelled outputs of the source",
    ),
    "labels that do not fit": (
        partial(changed, change=lambda _, arrays: arrays.update({"source|labels": SOURCE.labels + 1})),
        f"{NO_FILE} .*`labels` must be column numbers of the outputs, 0 to 2; got 3",
    ),
    "other answers": (lies("probe", [0.1, 0.0, 0.2]), "gives other answers than when it was written; fit and save it"),
    "answers of another number": (lies("probe", [0.1, 0.0]), NO_FILE),
    "an impossible level": (lies("level", 7.0), NO_FILE),
    "a negative seed": (lies("seed", -1), NO_FILE),
    "no size": (lies("sizes", []), NO_FILE),
    "a size of nothing": (lies("sizes", [0]), NO_FILE),
    "methods of no kind": (lies("methods of 150", [["COT"], ["nonsense"]]), NO_FILE),
}


@pytest.fixture(scope="module")
def whole(cases, tmp_path_factory):
    """The bytes of a file."""
    path = tmp_path_factory.mktemp("whole") / "estimator"
    cases("calibration sets").fitted.save(path)
    return path.read_bytes()


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_is_not_as_it_was_written_is_refused_in_a_line(tmp_path, whole, kind):
    change, message = FILES[kind]
    (tmp_path / "estimator").write_bytes(change(whole))
    with pytest.raises(InputError, match=f"estimator: .*{message}") as caught:
        ErrorEstimator.load(tmp_path / "estimator")
    assert "\n" not in str(caught.value)


@settings(max_examples=20)
@given(data=st.data())
def test_damage_anywhere_is_refused_or_changes_no_answer(whole, cases, tmp_path_factory, data):
    damaged, path = bytearray(whole), tmp_path_factory.getbasetemp() / "damaged"
    damaged[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(damaged[: data.draw(st.sampled_from([len(whole), len(whole), len(whole) // 2]))])
    refused = ""
    try:
        loaded = ErrorEstimator.load(path)
    except InputError as error:
        refused = str(error)
    if refused:
        assert NO_FILE in refused
    else:
        assert documents(loaded, [TARGET]) == documents(cases("calibration sets").fitted, [TARGET])


def test_nothing_in_a_file_is_executed_and_a_missing_one_is_an_error_of_the_system(tmp_path, whole):
    (tmp_path / "estimator").write_bytes(whole)
    with np.load(tmp_path / "estimator", allow_pickle=False) as arrays:
        assert not any(arrays[name].dtype.hasobject for name in arrays.files)
    np.savez(tmp_path / "objects.npz", document=np.array([print], dtype=object))
    with pytest.raises(InputError, match="holds Python objects, which are never read"):
        ErrorEstimator.load(tmp_path / "objects.npz")
    with pytest.raises(FileNotFoundError):
        ErrorEstimator.load(tmp_path / "nowhere")
    with pytest.raises(InputError, match="is a folder, not a file"):
        ErrorEstimator.load(tmp_path)
