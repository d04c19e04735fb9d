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
    arrays = {"logits": model.predict_log_proba(points), "features": points}
    return arrays if labels is None else {**arrays, "labels": labels}


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
    estimate = estimate_error(None, source, outputs(linear, target))
    assert estimate.calibration is None
    assert estimate.low < estimate.error < estimate.high
    assert "without calibration sets. The range covers sampling noise, the hypotheses" in estimate.sentence
    assert {method.method for method in estimate.methods} == set(offered_methods())
    assert not any(math.isfinite(method.score) for method in estimate.methods), "what is not shown is not run"
    assert estimate.probability_above(estimate.error) == pytest.approx(0.5)
    assert estimate.probability_above(0.99) == pytest.approx(0.0, abs=1e-6)
    assert estimate.probability_above(estimate.high) == pytest.approx(0.05, abs=1e-6)
    fewer = estimate_error(None, source, outputs(linear, target[:100]))
    assert fewer.high - fewer.low > estimate.high - estimate.low
    wider = estimate_error(None, source, outputs(linear, target), level=0.99)
    assert wider.error == estimate.error
    assert wider.high - wider.low > estimate.high - estimate.low


def test_an_estimate_can_be_drawn_and_read_as_a_table(linear):
    source, target = outputs(linear, *world(200, 0.0, 1)), outputs(linear, world(200, 0.3, 2)[0])
    default, cheap = (estimate_error(None, source, target, methods=methods) for methods in ("default", "cheap"))
    table = default.to_frame()
    assert table["row"].tolist() == ["estimate"] + ["hypothesis"] * len(default.hypotheses)
    assert table.loc[0, ["error", "low", "high"]].tolist() == [default.error, default.low, default.high]
    assert table["p_value"].tolist()[1:] == pytest.approx(
        [hypothesis.p_value for hypothesis in default.hypotheses], nan_ok=True
    )
    frame = cheap.to_frame()
    frame = frame[frame["row"] == "method"].set_index("name")
    assert frame.loc["COT", "score"] == {method.method: method.score for method in cheap.methods}["COT"]
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
    estimate, again = (estimate_error(None, source, outputs(linear, target, truth), calibration=sets) for _ in range(2))
    assert estimate.truth == pytest.approx(np.mean(linear.predict(target) != truth))
    assert estimate.low <= estimate.truth <= estimate.high
    assert abs(estimate.error - estimate.truth) < 0.08
    assert len(set(estimate.calibration.families.tolist())) == 11
    assert "21 labelled sets of 11 families (given)" in estimate.sentence
    assert not any("unlike the calibration sets" in warning for warning in estimate.warnings)
    assert "90 % interval" in estimate.sentence
    assert json.dumps(estimate.to_dict()) == json.dumps(again.to_dict())
    assert estimate_error(None, source, outputs(linear, target), calibration=sets, seed=1).error != estimate.error
    inputs = {hypothesis.name: hypothesis for hypothesis in estimate.hypotheses}["inputs"]
    assert 0.0 < inputs.p_value <= 1.0, "calibration sets test what outputs alone cannot"
    named = estimate_error(None, source, outputs(linear, target), calibration=sets, methods=("Entropy",))
    assert named.based_on == ("Entropy",)
    assert abs(named.error - estimate.truth) < 0.1
    far = estimate_error(None, source, outputs(linear, target + 9.0), calibration=sets)
    assert any("unlike the calibration sets" in warning for warning in far.warnings)


def test_too_few_labelled_sets_are_said_to_be_too_few(linear):
    source, target = outputs(linear, *world(200, 0.0, 1)), outputs(linear, world(200, 0.3, 2)[0])
    sets = {f"s{i}": outputs(linear, *world(200, 0.1 * i, 5 + i)) for i in range(4)}
    estimate = estimate_error(None, source, target, calibration=sets)
    assert estimate.calibration is None
    assert "5 labelled sets, the source included, are too few to calibrate on; 6 would do." in estimate.warnings
    with pytest.raises(InputError, match="Entropy: scores that are no errors need calibration"):
        estimate_error(None, source, target, calibration=sets, methods="Entropy")


def test_models_of_numbers_are_not_calibrated_on_shifts_that_are_made_up(linear):
    network = nn.Sequential(nn.Linear(CLASSES, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    train(network, *world(1000, 0.0, 0), Recipe(200, 0.1, 50), seed=0)
    for model, others in ((linear, ()), (network, [network, network])):
        estimate = asked(model, 600, 0.3, others=others, methods="cheap")
        assert estimate.calibration is None
        points, truth = world(600, 0.3, 2)
        predicted = network(torch.from_numpy(points)).argmax(dim=1).numpy() if others else linear.predict(points)
        assert estimate.low <= float(np.mean(predicted != truth)) <= estimate.high
    notes = {method.method: method.note for method in estimate.methods}
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
    for estimate, kind in ((plain, "range"), (named, "range"), (calibrated, "interval")):
        again = pickle.loads(pickle.dumps(estimate))  # noqa: S301
        assert str(again.to_dict()) == str(estimate.to_dict())
        assert again.probability_above(0.1) == estimate.probability_above(0.1)
        read = json.loads(json.dumps(estimate.to_dict()))
        assert (read["low"], read["error"], read["high"]) == (estimate.low, estimate.error, estimate.high)
        names = ["no shift", "class shares", "inputs", "class shares and inputs"]
        assert [one["name"] for one in read["hypotheses"]] == ([] if estimate is named else names)
        assert sum(read["class_shares"]) == pytest.approx(1.0)
        assert len(read["class_shares"]) == CLASSES
        assert str(estimate).startswith(f"Estimated error {100 * estimate.error:.1f} %, 90 % {kind}")
        assert f"The {kind} covers sampling noise" in str(estimate)
        based = f"Based on {joined(estimate.based_on)}; {100 * estimate.source_error:.1f} % on the labelled source."
        assert based in str(estimate)
        assert str(replace(estimate, warnings=("a", "b"))).endswith("\nWarning: a\nWarning: b")
        assert repr(replace(estimate, warnings=("a", "b"))).endswith("\nWarning: a\nWarning: b>")
        assert ("<table>" in estimate._repr_html_()) == (estimate is not plain), "methods that were not run have no row"
        assert len(repr(estimate)) < 600
    assert named.based_on == ("COT", "ATC")


def test_probabilities_that_were_given_as_logits_are_noticed():
    rows = np.eye(3)[[0, 1, 2] * 10]
    estimate = estimate_error(None, {"logits": rows, "labels": [0, 1, 2] * 10}, {"logits": rows})
    assert any("looks like probabilities" in warning for warning in estimate.warnings)


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
    few = [shift for shift in image_shifts() if shift[0] in FEW]
    for module in ("shifted_images", "calibration_sets"):
        monkeypatch.setattr(f"projnorm.estimate.{module}.image_shifts", lambda: few)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    estimate = estimate_errors(
        model,
        (splits.train.images[500:600], splits.train.labels[500:600]),
        {"fog": corrupt(splits.test.images[:50], "fog", 2, seed=3)},
        methods="all",
        init=(initial, Recipe(2, 0.05, 50)),
        others=[other, other],
        prepare=PREPARE,
    )["fog"]
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    for method in estimate.methods:
        assert method.note.startswith("not run") == (method.method == "PAPE"), method  # which is for tables
        if method.method in ("ProjNorm", "Rotation", "Dis2", "COT", "GDE"):
            assert math.isfinite(method.score), method
            assert math.isfinite(method.error), method
    assert estimate.calibration.names[: 1 + len(few)] == ("source", *(f"{family}-{level}" for family, level, _ in few))
    assert estimate.calibration.families.tolist()[1 + len(few) :] == ["mixture with clean samples"]


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
    estimates = estimate_errors(linear, world(100, 0.0, 1), [points, (points, truth)], methods="ATC")
    assert [estimate.target for estimate in estimates] == ["target 1", "target 2"]
    assert estimates[0].truth is None
    assert estimates[1].truth == pytest.approx(np.mean(linear.predict(points) != truth))
    assert estimates[1].error == estimates[0].error
    assert "The true error, from the target's labels, is" in str(estimates[1])
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
    estimate = asked(model, shift=0.3)
    # 1.64 standard deviations of an error counted on 60 samples.
    assert estimate.high - estimate.low >= 3.28 * math.sqrt(estimate.error * (1.0 - estimate.error) / 60) > 0.1


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
    score = part_score(Size(), data, 3, seed=0)
    assert [len(part) for part in seen] == [3, 3, 3]
    assert len({number for part in seen for number in part}) == 9
    assert score == pytest.approx(np.mean([np.mean(part) for part in seen]))
    seen.clear()
    monkeypatch.setattr(Size, "costly", True)
    part_score(Size(), data, 3, seed=0)
    assert len(seen) == 1
