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

from deep.training.loop import train
from projnorm.core.errors import InputError
from projnorm.core.formatting import joined
from projnorm.data.corruptions.families import corrupt
from projnorm.data.datasets import digits
from projnorm.data.images import ImageNetInput
from projnorm.estimate.estimate import estimate_error, estimate_errors
from projnorm.estimate.fitted_source import halves, part_score
from projnorm.estimate.options import offered_methods
from projnorm.estimate.shifted_images import image_shifts
from projnorm.estimators.base import Estimator
from projnorm.models.recipe import Recipe
from projnorm.models.weights import load_network
from projnorm.outputs.outputs import Outputs
from tests.small import world
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
    """The estimate for a target of `n` samples from a source of as many."""
    return estimate_error(model, world(n, 0.0, 1), world(n, shift, 2)[0], **options)


def calibration_sets(model, families: int, n: int = 400):
    """Labelled sets, two of each family: points that are nearer to each other, and moved in one direction."""
    rng = np.random.default_rng(0)
    sets = {}
    for family in range(families):
        direction = 0.3 * rng.standard_normal(CLASSES)
        for severity, shift in enumerate((0.2, 0.5), start=1):
            points, labels = world(n, shift, 10 + 2 * family + severity)
            sets[f"f{family}-{severity}"] = outputs(model, points + direction, labels)
    return sets


def test_outputs_alone_give_a_range_that_says_what_it_covers(linear):
    source, (target, _) = outputs(linear, *world(600, 0.0, 1)), world(400, 0.0, 2)
    found = estimate_error(None, source, outputs(linear, target))
    assert found.calibration is None
    assert found.low < found.error < found.high
    assert "without calibration sets. The range covers sampling noise, the hypotheses" in found.sentence
    assert {one.method for one in found.methods} == set(offered_methods())
    assert not any(math.isfinite(one.score) for one in found.methods), "what is not shown is not run"
    assert found.probability_above(found.error) == pytest.approx(0.5)
    assert found.probability_above(0.99) == pytest.approx(0.0, abs=1e-6)
    assert found.probability_above(found.high) == pytest.approx(0.05, abs=1e-6)
    fewer = estimate_error(None, source, outputs(linear, target[:100]))
    assert fewer.high - fewer.low > found.high - found.low
    wider = estimate_error(None, source, outputs(linear, target), level=0.99)
    assert wider.error == found.error
    assert wider.high - wider.low > found.high - found.low


def test_an_estimate_can_be_drawn_and_read_as_a_table(linear):
    source, target = outputs(linear, *world(200, 0.0, 1)), outputs(linear, world(200, 0.3, 2)[0])
    default, cheap = (estimate_error(None, source, target, methods=methods) for methods in ("default", "cheap"))
    table = default.to_frame()
    assert table["row"].tolist() == ["estimate"] + ["hypothesis"] * len(default.hypotheses)
    assert table.loc[0, ["error", "low", "high"]].tolist() == [default.error, default.low, default.high]
    assert table["p_value"].tolist()[1:] == pytest.approx([one.p_value for one in default.hypotheses], nan_ok=True)
    frame = cheap.to_frame()
    frame = frame[frame["row"] == "method"].set_index("name")
    assert frame.loc["COT", "score"] == {one.method: one.score for one in cheap.methods}["COT"]
    axes = cheap.plot()
    drawn = {text.get_text() for text in axes.get_yticklabels()}
    assert drawn > {*frame.index[frame["error"].notna()], "if nothing changed", "if inputs changed"}
    assert default.plot(axes) is axes


def test_the_words_of_the_field_for_a_shift_mean_ours(linear):
    source, target = outputs(linear, *world(200, 0.0, 1)), outputs(linear, world(200, 0.3, 2)[0])
    for ours, theirs in (("classes", "label"), ("inputs", "covariate")):
        first, second = (estimate_error(None, source, target, shift=word) for word in (ours, theirs))
        assert json.dumps(first.to_dict()) == json.dumps(second.to_dict())


def test_enough_labelled_shifted_sets_give_an_interval(linear):
    source, (target, truth) = outputs(linear, *world(600, 0.0, 1)), world(400, 0.4, 99)
    sets = calibration_sets(linear, 10)
    found, again = (estimate_error(None, source, outputs(linear, target, truth), calibration=sets) for _ in range(2))
    assert found.truth == pytest.approx(np.mean(linear.predict(target) != truth))
    assert found.low <= found.truth <= found.high
    assert abs(found.error - found.truth) < 0.08
    assert len(set(found.calibration.families.tolist())) == 11
    assert "21 labelled sets of 11 families (given)" in found.sentence
    assert not any("unlike the calibration sets" in warning for warning in found.warnings)
    assert "90 % interval" in found.sentence
    assert json.dumps(found.to_dict()) == json.dumps(again.to_dict())
    assert estimate_error(None, source, outputs(linear, target), calibration=sets, seed=1).error != found.error
    inputs = {one.name: one for one in found.hypotheses}["inputs"]
    assert 0.0 < inputs.p_value <= 1.0, "calibration sets test what outputs alone cannot"
    named = estimate_error(None, source, outputs(linear, target), calibration=sets, methods=("Entropy",))
    assert named.based_on == ("Entropy",)
    assert abs(named.error - found.truth) < 0.1
    far = estimate_error(None, source, outputs(linear, target + 9.0), calibration=sets)
    assert any("unlike the calibration sets" in warning for warning in far.warnings)


def test_too_few_labelled_sets_are_said_to_be_too_few(linear):
    source, target = outputs(linear, *world(200, 0.0, 1)), outputs(linear, world(200, 0.3, 2)[0])
    sets = {f"s{i}": outputs(linear, *world(200, 0.1 * i, 5 + i)) for i in range(4)}
    found = estimate_error(None, source, target, calibration=sets)
    assert found.calibration is None
    assert "5 labelled sets, the source included, are too few to calibrate on; 6 would do." in found.warnings
    with pytest.raises(InputError, match="Entropy: scores that are no errors need calibration"):
        estimate_error(None, source, target, calibration=sets, methods="Entropy")


def test_models_of_numbers_are_not_calibrated_on_shifts_that_are_made_up(linear):
    network = nn.Sequential(nn.Linear(CLASSES, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    train(network, *world(1000, 0.0, 0), Recipe(200, 0.1, 50), seed=0)
    for model, others in ((linear, ()), (network, [network, network])):
        found = asked(model, 600, 0.3, others=others, methods="cheap")
        assert found.calibration is None
        points, truth = world(600, 0.3, 2)
        predicted = network(torch.from_numpy(points)).argmax(dim=1).numpy() if others else linear.predict(points)
        assert found.low <= float(np.mean(predicted != truth)) <= found.high
    notes = {one.method: one.note for one in found.methods}
    assert notes["Rotation"] == notes["ProjNorm"] == "not run: name it in methods"
    assert notes["COT"] == ""
    assert notes["ALine-S"] == "undefined on this set"  # three networks that always agree have no line
    with pytest.raises(ValueError, match=r"`init` must be the same network .*; 0.bias differs"):
        asked(network, 100, init=nn.Sequential(nn.Linear(CLASSES, 3)))


def test_an_estimate_is_plain_data_that_leads_with_the_answer(linear):
    source, target = outputs(linear, *world(100, 0.0, 1)), outputs(linear, world(100, 0.2, 2)[0])
    plain = estimate_error(None, source, target)
    named = estimate_error(None, source, target, methods=("COT", "ATC"))
    calibrated = estimate_error(None, source, target, calibration=calibration_sets(linear, 4, 100))
    for found, kind in ((plain, "range"), (named, "range"), (calibrated, "interval")):
        again = pickle.loads(pickle.dumps(found))  # noqa: S301
        assert str(again.to_dict()) == str(found.to_dict())
        assert again.probability_above(0.1) == found.probability_above(0.1)
        read = json.loads(json.dumps(found.to_dict()))
        assert (read["low"], read["error"], read["high"]) == (found.low, found.error, found.high)
        names = ["no shift", "class shares", "inputs", "class shares and inputs"]
        assert [one["name"] for one in read["hypotheses"]] == ([] if found is named else names)
        assert sum(read["class_shares"]) == pytest.approx(1.0)
        assert len(read["class_shares"]) == CLASSES
        assert str(found).startswith(f"Estimated error {100 * found.error:.1f} %, 90 % {kind}")
        assert f"The {kind} covers sampling noise" in str(found)
        based = f"Based on {joined(found.based_on)}; {100 * found.source_error:.1f} % on the labelled source."
        assert based in str(found)
        assert str(replace(found, warnings=("a", "b"))).endswith("\nWarning: a\nWarning: b")
        assert repr(replace(found, warnings=("a", "b"))).endswith("\nWarning: a\nWarning: b>")
        assert ("<table>" in found._repr_html_()) == (found is not plain), "methods that were not run have no row"
        assert len(repr(found)) < 600
    assert named.based_on == ("COT", "ATC")


def test_probabilities_that_were_given_as_logits_are_noticed():
    rows = np.eye(3)[[0, 1, 2] * 10]
    found = estimate_error(None, {"logits": rows, "labels": [0, 1, 2] * 10}, {"logits": rows})
    assert any("looks like probabilities" in warning for warning in found.warnings)


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
    few = [one for one in image_shifts() if one[0] in FEW]
    for module in ("shifted_images", "calibration_sets"):
        monkeypatch.setattr(f"projnorm.estimate.{module}.image_shifts", lambda: few)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    found = estimate_errors(
        model,
        (splits.train.images[500:600], splits.train.labels[500:600]),
        {"fog": corrupt(splits.test.images[:50], "fog", 2, seed=3)},
        methods="all",
        init=(initial, Recipe(2, 0.05, 50)),
        others=[other, other],
        prepare=PREPARE,
    )["fog"]
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    for one in found.methods:
        assert one.note.startswith("not run") == (one.method == "PAPE"), one  # which is for tables
        if one.method in ("ProjNorm", "Rotation", "Dis2", "COT", "GDE"):
            assert math.isfinite(one.score), one
            assert math.isfinite(one.error), one
    assert found.calibration.names[: 1 + len(few)] == ("source", *(f"{family}-{level}" for family, level, _ in few))
    assert found.calibration.families.tolist()[1 + len(few) :] == ["mixture with clean samples"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": ("nonsense",)}, "`methods` must be default, cheap, all, or of .*; got 'nonsense'"),
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
    words = 'For a better founded answer, pass labelled shifted sets as `calibration`, or calibration="auto".'
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
print(pn.estimate_error(LogisticRegression().fit(X, y), (X, y), X).calibration)
"""
    ended = run_python(WITHOUT.format(names=["torch"]) + code)
    assert ended.stdout == "None\n", ended.stderr


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
