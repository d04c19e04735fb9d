"""`estimate_error`: what it estimates, what it rests on, and what it says of itself."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from deep.estimate import Outputs, estimate_error, estimate_errors
from deep.estimate.calibration_sets import family_of, given_sets
from deep.estimate.error_estimator import CALIBRATED, UNCALIBRATED, halves, offered_methods, part_score
from deep.estimate.result import joined
from deep.estimate.shifts import corrupted, drawn_anew, is_images, moved
from deep.estimators import Estimator
from deep.recipe import Recipe
from deep.training import train
from projnorm.errors import InputError
from projnorm.vision import ImageNetInput, corrupt, digits, load_network
from tests.deep.small import world
from tests.test_packaging import WITHOUT, run_python

CLASSES = 4
PREPARE = ImageNetInput(32)
FEW = ("fog", "contrast", "gaussian_noise")
SOURCE = {"logits": np.eye(3)[[0, 1, 2] * 10], "labels": np.array([0, 1, 2] * 10)}


@pytest.fixture(scope="module")
def linear() -> LogisticRegression:
    return LogisticRegression().fit(*world(1000, 0.0, 0))


def outputs(model, points, labels=None):
    found = {"logits": model.predict_log_proba(points), "features": points}
    return found if labels is None else {**found, "labels": labels}


def asked(model, n: int = 60, shift: float = 0.0, **options):
    """The estimate for a target of so many samples from a source of as many."""
    return estimate_error(model, world(n, 0.0, 1), world(n, shift, 2)[0], **options)


def test_without_calibration_the_interval_covers_sampling_noise_and_says_so(linear):
    source, (target, _) = outputs(linear, *world(600, 0.0, 1)), world(400, 0.0, 2)
    found = estimate_error(None, source, outputs(linear, target))
    assert found.based_on == UNCALIBRATED
    assert found.calibration is None
    assert found.low < found.error < found.high
    assert "the method's own error under shift is not covered" in found.sentence
    assert {one.method for one in found.methods} == set(offered_methods())
    assert found.probability_above(found.error) == pytest.approx(0.5)
    assert found.probability_above(0.99) == pytest.approx(0.0, abs=1e-6)
    # A quarter of the samples: the noise of the target doubles, that of the source stays.
    fewer = estimate_error(None, source, outputs(linear, target[:100]))
    assert 1.2 < (fewer.high - fewer.low) / (found.high - found.low) < 2.2
    wider = estimate_error(None, source, outputs(linear, target), level=0.99)
    assert wider.error == found.error
    assert wider.high - wider.low > found.high - found.low


@pytest.mark.slow
def test_few_samples_of_many_classes_are_not_biased_without_a_shift():
    # The classes of so few do not have the shares that COTT takes them to have.
    rng = np.random.default_rng(0)

    def drawn(n):
        labels = rng.integers(10, size=n)
        return 4.0 * (np.eye(10)[labels] + 0.35 * rng.standard_normal((n, 10))), labels

    logits, labels = drawn(20_000)
    truth = float(np.mean(logits.argmax(axis=1) != labels))
    held, errors = 0, []
    for _ in range(10):
        source, known = drawn(300)
        found = estimate_error(None, {"logits": source, "labels": known}, {"logits": drawn(100)[0]}, methods=("COTT",))
        errors.append(found.error)
        held += found.low <= truth <= found.high
    assert held >= 7  # of 10 at 90 %, fewer than 7 has a probability of 0.013
    assert np.mean(errors) == pytest.approx(truth, abs=0.03)


def test_one_sample_says_little_and_it_is_said():
    logits = 9.0 * np.eye(3)[[0, 1, 2] * 20]
    source = {"logits": logits, "labels": logits.argmax(axis=1), "features": logits}
    found = estimate_error(None, source, {"logits": logits[:1], "features": logits[:1]})
    assert found.high - found.low > 0.5
    assert found.warnings == ("The target has 1 sample; so few say little.",)
    sure = estimate_error(None, source, {"logits": logits, "features": logits})
    assert sure.high > 0.01  # sixty samples without an error are no proof


def test_a_method_that_does_not_follow_the_error_is_said_not_to():
    rng = np.random.default_rng(0)
    source = {"logits": rng.standard_normal((100, 3)), "labels": rng.integers(3, size=100)}
    sets = {f"s{i}": {"logits": (1 + i) * source["logits"], "labels": source["labels"]} for i in range(10)}
    sets |= {"better": {"logits": 0.1 * np.eye(3)[source["labels"]], "labels": source["labels"]}}
    found = estimate_error(None, source, {"logits": source["logits"]}, calibration=sets, methods=("NuclearNorm",))
    assert any("No method follows the error" in warning for warning in found.warnings)


def test_probabilities_that_were_given_as_logits_are_noticed():
    rows = np.eye(3)[[0, 1, 2] * 10]
    found = estimate_error(None, {"logits": rows, "labels": [0, 1, 2] * 10}, {"logits": rows})
    assert any("looks like probabilities" in warning for warning in found.warnings)


def test_a_model_whose_source_cannot_be_shifted_says_so():
    model = nn.Sequential(nn.Linear(CLASSES, CLASSES), nn.Softmax(dim=1))
    found = asked(model, 100)
    assert found.calibration is None
    assert any("could not be shifted" in warning for warning in found.warnings)
    with pytest.raises(ValueError, match=r"`init` must be the same network .*; 0.bias differs"):
        asked(model, 100, init=nn.Sequential(nn.Linear(CLASSES, 3)))


def test_labelled_shifted_sets_give_the_full_interval(linear):
    source = outputs(linear, *world(600, 0.0, 1))
    rng = np.random.default_rng(0)
    sets = {}
    for family in range(10):
        direction = 0.3 * rng.standard_normal(CLASSES)
        for severity, shift in enumerate((0.2, 0.5), start=1):
            moved_points, moved_labels = world(400, shift, 10 + 2 * family + severity)
            sets[f"f{family}-{severity}"] = outputs(linear, moved_points + direction, moved_labels)
    target, truth = world(400, 0.4, 99)
    found = estimate_error(None, source, outputs(linear, target), calibration=sets)
    error = float(np.mean(linear.predict(target) != truth))
    assert set(found.based_on) <= set(CALIBRATED)
    assert found.low <= error <= found.high
    assert abs(found.error - error) < 0.08
    assert len(set(found.calibration.families.tolist())) == 11
    assert "21 labelled sets of 11 families (given)" in found.sentence
    assert not found.warnings
    far = estimate_error(None, source, outputs(linear, target + 9.0), calibration=sets, methods=("FeatureShift",))
    assert "outside the calibration sets (FeatureShift is" in far.warnings[0]


def test_too_few_families_are_said_to_be_too_few(linear):
    source = outputs(linear, *world(200, 0.0, 1))
    sets = {f"s{i}": outputs(linear, *world(200, 0.1 * i, 5 + i)) for i in range(4)}
    found, narrower = (estimate_error(None, source, source, calibration=sets, level=level) for level in (0.9, 0.8))
    assert (found.low, found.high) == (0.0, 1.0)
    assert "5 families of calibration sets are too few for an interval at 90 %" in found.warnings[0]
    assert "83 % at the most" in found.warnings[0]
    assert narrower.high - narrower.low < 0.5


def test_a_model_of_numbers_is_calibrated_on_moved_inputs(linear):
    found = asked(linear, 600, 0.3)
    assert found.calibration.origin == "inputs of the source, moved and drawn anew"
    points, truth = world(600, 0.3, 2)
    assert found.low <= float(np.mean(linear.predict(points) != truth)) <= found.high
    again = asked(linear, 600, 0.3)
    assert (again.error, again.low, again.high) == (found.error, found.low, found.high)
    assert asked(linear, 600, 0.3, seed=1).error != found.error


def test_a_network_of_numbers_is_calibrated_on_moved_features():
    model = nn.Sequential(nn.Linear(CLASSES, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    train(model, *world(1000, 0.0, 0), Recipe(200, 0.1, 50), seed=0)
    found = asked(model, 600, 0.3, others=[model, model])
    assert found.calibration.origin == "features of the source, moved and drawn anew"
    notes = {one.method: one.note for one in found.methods}
    assert notes["Rotation"] == notes["ProjNorm"] == "not run: costly, name it in methods"
    assert notes["COT"] == ""
    assert notes["ALine-S"] == "undefined on this set"  # three networks that always agree have no line


@pytest.fixture(scope="module")
def on_digits():
    splits = digits()
    model, initial, other = (load_network("small-cnn", "random", num_outputs=10, seed=s).model for s in (0, 0, 1))
    images, labels = splits.train.images[:500], splits.train.labels[:500]
    for network, seed in ((model, 0), (other, 1)):
        train(network, images, labels, Recipe(80, 0.05, 64), seed=seed, prepare=PREPARE)
    return model, initial, other, splits


@pytest.mark.slow
def test_a_network_with_images_is_calibrated_on_corruptions_and_runs_every_method(on_digits, monkeypatch):
    model, initial, other, splits = on_digits
    monkeypatch.setattr("deep.estimate.shifts.corruption_families", lambda: FEW)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    (found,) = estimate_errors(
        model,
        (splits.train.images[500:600], splits.train.labels[500:600]),
        {"fog": corrupt(splits.test.images[:50], "fog", 2, seed=3)},
        methods="all",
        init=(initial, Recipe(2, 0.05, 50)),
        others=[other, other],
        prepare=PREPARE,
    )
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    for one in found.methods:
        assert not one.note.startswith("not run"), one
        if one.method in ("ProjNorm", "Rotation", "Dis2", "COT", "GDE"):
            assert math.isfinite(one.score), one
            assert math.isfinite(one.error), one
    assert len(found.calibration.errors) == 1 + 3 * len(FEW)


def test_float_images_with_colours_first_are_corrupted_as_bytes_are():
    images = digits().test.images[:3]
    floats = np.moveaxis(images, 3, 1).astype(np.float32) / 255.0
    assert is_images(images)
    assert is_images(floats)
    assert not is_images(floats * 2.0)
    assert not is_images(images[..., :1])
    (from_bytes,) = corrupted(images, seed=0, families=("contrast",), severities=(2,))
    (from_floats,) = corrupted(floats, seed=0, families=("contrast",), severities=(2,))
    np.testing.assert_allclose(np.moveaxis(from_floats.rows, 1, 3) * 255.0, from_bytes.rows, atol=1e-3)


def test_moves_do_not_depend_on_units_and_grow_with_severity():
    points, _ = world(300, 0.0, 1)
    scaled = points * np.array([1.0, 10.0, 100.0, 1000.0], dtype=np.float32)
    for plain, large in zip(moved(points, seed=0), moved(scaled, seed=0), strict=True):
        if plain.family != "leading noise":
            np.testing.assert_allclose(large.rows / [1.0, 10.0, 100.0, 1000.0], plain.rows, atol=1e-3)
    by_family: dict[str, list[float]] = {}
    for shift in moved(points, seed=0):
        by_family.setdefault(shift.family, []).append(float(np.abs(shift.rows - points).mean()))
    assert all(sizes == sorted(sizes) for sizes in by_family.values())
    assert len(by_family) + 2 >= 9  # with the two below, enough for an interval at 90 %


def test_other_shares_are_drawn_of_the_same_samples():
    _, labels = world(400, 0.0, 1)
    confidence = np.linspace(0.3, 1.0, 400)
    families = list(drawn_anew(labels, confidence, seed=0))
    unsure = [confidence[one.indices].mean() for one in families if one.family == "unsure samples"]
    assert unsure == sorted(unsure, reverse=True)
    assert unsure[0] < confidence.mean()
    spread = [np.bincount(labels[one.indices], minlength=4).std() for one in families if one.family == "class priors"]
    assert spread[2] > spread[0]


def test_families_by_name():
    families = {"fog-1": "fog", "fog-12": "fog", "motion-blur-3": "motion-blur", "night": "night", "v-x": "v-x"}
    assert {name: family_of(name) for name in families} == families
    one = Outputs(np.eye(3), labels=np.arange(3), name="one")
    with pytest.raises(ValueError, match="two labelled sets or more; got 1"):
        given_sets({"one": one}, one)
    with pytest.raises(ValueError, match="two: a calibration set must have labels"):
        given_sets({"one": one, "two": Outputs(np.eye(3), name="two")}, one)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": ("nonsense",)}, "`methods` must be default, all, or of .*; got 'nonsense'"),
        ({"methods": ("ATC", "ATC")}, "at least one method, each once"),
        ({"methods": ("Dispersion",)}, r"nothing can be estimated \(Dispersion: not run: needs features"),
        ({"methods": ("entropy",)}, "Entropy: scores .* need calibration; .* or the model with its inputs"),
        ({"device": "cuda"}, "`device` 'cuda' needs `model` to be a network of torch"),
        ({"calibration": "perhaps"}, "`calibration` must be auto, none, or labelled sets by name; got 'perhaps'"),
        ({"others": ["x"]}, "`others` needs `model`"),
        ({"init": nn.Linear(1, 1)}, "`init` needs `model` to be a network of torch"),
    ],
)
def test_what_cannot_be_asked_is_said_in_a_line(options, message):
    with pytest.raises(ValueError, match=message):
        estimate_error(None, SOURCE, {"logits": SOURCE["logits"]}, **options)


def test_a_model_with_calibration_none_is_told_how_to_calibrate(linear):
    with pytest.raises(InputError, match=r'need calibration; .*, or calibration="auto"'):
        asked(linear, methods="Entropy", calibration="none")
    words = 'For that, pass labelled shifted sets as `calibration`, or calibration="auto".'
    assert words in asked(linear, calibration="none").sentence


def test_targets_may_be_a_list_and_labels_of_a_target_give_the_truth(linear, caplog):
    points, truth = world(60, 0.2, 2)
    found = estimate_errors(linear, world(100, 0.0, 1), [points, (points, truth)], methods="ATC")
    assert [one.target for one in found] == ["target 1", "target 2"]
    assert found[0].truth is None
    assert found[1].truth == pytest.approx(np.mean(linear.predict(points) != truth))
    assert found[1].error == found[0].error
    assert "The true error, from the target's labels, is" in str(found[1])
    assert not caplog.records
    (wrong,) = estimate_errors(linear, world(100, 0.0, 1), [(points, np.full(60, 9))], methods="ATC")
    assert wrong.truth is None
    assert "`labels` has '9', which is not among `classes`" in caplog.text
    for targets, problem in ((points, "must be a mapping by name or a list; got ndarray"), ({}, "one set or more")):
        with pytest.raises(InputError, match=problem):
            estimate_errors(linear, world(100, 0.0, 1), targets)


def test_a_target_in_a_file_is_called_after_it(linear, tmp_path):
    np.savez(tmp_path / "source.npz", **outputs(linear, *world(60, 0.0, 1)))
    np.savez(tmp_path / "july.npz", **outputs(linear, world(60, 0.2, 2)[0]))
    assert estimate_error(None, tmp_path / "source.npz", str(tmp_path / "july.npz")).target == "july"


def test_an_estimate_is_plain_data_that_leads_with_the_answer(linear):
    plain = estimate_error(None, outputs(linear, *world(60, 0.0, 1)), outputs(linear, world(60, 0.2, 2)[0]))
    calibrated = "sampling noise and the method's error"
    for found, covers in ((plain, "sampling noise only"), (asked(linear, shift=0.2), calibrated)):
        again = pickle.loads(pickle.dumps(found))  # noqa: S301
        assert str(again.to_dict()) == str(found.to_dict())
        assert again.probability_above(0.1) == found.probability_above(0.1)
        assert json.loads(json.dumps(found.to_dict()))["low"] == found.low
        assert str(found).startswith(f"Estimated error {100 * found.error:.1f} %, 90 % interval")
        assert f"The interval covers {covers}" in str(found)
        based = f"Based on {joined(found.based_on)}; {100 * found.source_error:.1f} % on the labelled source."
        assert based in str(found)
        assert str(replace(found, warnings=("a", "b"))).endswith(" 2 warnings in .warnings.")
        assert "<table>" in found._repr_html_()
        assert len(repr(found)) < 400


def test_a_network_that_always_says_the_same_has_no_interval_of_zero_width():
    model = nn.Linear(CLASSES, CLASSES)
    nn.init.zeros_(model.weight)
    model.bias.data = torch.tensor([1.0, 0.0, 0.0, 0.0])
    found = asked(model, shift=0.3)
    # 1.64 standard deviations of an error counted on 60 samples.
    assert found.high - found.low >= 3.28 * math.sqrt(found.error * (1.0 - found.error) / 60) > 0.1


def test_images_as_bytes_with_colours_last_are_prepared_as_the_command_line_does(on_digits):
    _, initial, _, splits = on_digits
    images, labels = splits.test.images[:40], splits.test.labels[:40]
    floats = np.moveaxis(images, 3, 1).astype(np.float32) / 255.0
    scores = [
        estimate_error(initial, (x, labels), x, methods="ConfScore", calibration="none").methods[0].score
        for x in (images, floats)
    ]
    assert scores[0] == pytest.approx(scores[1], rel=1e-6)


@pytest.mark.slow
def test_models_of_scikit_learn_need_no_torch():
    code = """
import numpy as np, projnorm as pn
from sklearn.linear_model import LogisticRegression
X, y = np.random.default_rng(0).standard_normal((90, 4)), np.arange(90) % 3
print(pn.estimate_error(LogisticRegression().fit(X, y), (X, y), X).calibration.origin)
"""
    ended = run_python(WITHOUT.format(names=["torch"]) + code)
    assert ended.stdout == "inputs of the source, moved and drawn anew\n", ended.stderr


def test_methods_learn_from_one_half_of_the_source_and_are_calibrated_on_the_other():
    logits = np.arange(60.0).reshape(30, 2)
    source = Outputs(logits, labels=np.zeros(30, int), name="source")
    learnt, held_out = halves(source, seed=0)
    rows = [set(one.logits[:, 0].tolist()) for one in (learnt, held_out)]
    assert not rows[0] & rows[1]
    assert rows[0] | rows[1] == set(logits[:, 0].tolist())
    few = source.take(np.arange(10))
    assert halves(few, seed=0) == (few, few)


def test_a_large_set_is_the_mean_of_its_parts_and_a_costly_method_sees_one(monkeypatch):
    class Size(Estimator):
        name = "size"

        def _score(self, target):
            seen.append(sorted(target.logits[:, 0].tolist()))
            return float(target.logits[:, 0].mean())

    seen: list[list[float]] = []
    data = Outputs(np.arange(20.0).reshape(10, 2))
    found = part_score(Size(), data, 3, seed=0)
    assert [len(part) for part in seen] == [3, 3, 3]
    assert len({number for part in seen for number in part}) == 9
    assert found == pytest.approx(np.mean([np.mean(part) for part in seen]))
    seen.clear()
    monkeypatch.setattr(Size, "costly", True)
    part_score(Size(), data, 3, seed=0)
    assert len(seen) == 1
