"""The rows of the leaderboard on one case."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.shifts.agreement import Agreement, PredictionsOfNetworks
from benchmarks.shifts.confidence_only import Signals, SignalSet
from benchmarks.shifts.evaluate import (
    OUTPUTS_ONLY,
    SOURCE_ERROR,
    WITH_MODEL,
    agreement_answers,
    error_methods,
    output_answers,
    row_names,
    signal_answers,
)
from benchmarks.shifts.models import fitted
from benchmarks.shifts.problems import GivenOutputs
from benchmarks.shifts.tables import made_table
from projnorm.estimators.atc import ATC
from projnorm.estimators.cot import COT
from projnorm.estimators.softmax import fit_temperature
from projnorm.outputs.outputs import Outputs
from tests.shifts.stand_ins import places, stub_estimates


@pytest.fixture
def given() -> GivenOutputs:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    logits = 2.0 * np.eye(3)[labels] + rng.standard_normal((300, 3))
    whole = Outputs(logits, None, labels)
    sets = [replace(whole.take(np.arange(100 * i, 100 * (i + 1))), name=f"set {i}") for i in range(3)]
    return GivenOutputs(sets[0], tuple(sets[1:]), ("time", "place"))


def test_rows_are_the_methods_on_scaled_outputs_and_the_truth_is_that_of_the_labels(given, monkeypatch):
    stub_estimates(monkeypatch, [])
    answers = output_answers(given, error_methods(), 0.9, 0)
    np.testing.assert_allclose(answers.truth, [target.error for target in given.targets])
    np.testing.assert_allclose(answers.rows[SOURCE_ERROR][:, 0], given.source.error)
    assert answers.rows[OUTPUTS_ONLY].tolist() == [[0.2, 0.1, 0.3, 1.0], [0.2, 0.1, 0.3, 0.0]]
    temperature = fit_temperature(given.source.logits, given.source.labels)
    source, target = (
        replace(samples, logits=samples.logits / temperature) for samples in (given.source, given.targets[0])
    )
    assert answers.rows["ATC"][0, 0] == ATC().fit(source).score(target)
    assert answers.rows["COT"][0, 0] == COT().fit(source).score(target)
    assert not {"GDE", "ALine-S", WITH_MODEL} & set(answers.rows)
    arrays = answers.to_arrays(row_names(("ATC", "GDE")))
    assert np.isnan(arrays["estimates"][:, -1]).all()
    assert np.isnan(arrays["low"][:, -2]).all()


def test_a_method_that_fails_is_recorded_and_the_others_go_on(given, monkeypatch):
    stub_estimates(monkeypatch, [])

    def broken(*_):
        raise np.linalg.LinAlgError("SVD did not converge")

    monkeypatch.setattr(ATC, "_score", broken)
    answers = output_answers(given, ("ATC", "DoC"), 0.9, 0)
    assert answers.failures == {"ATC": "LinAlgError: SVD did not converge"}
    assert np.isfinite(answers.rows["DoC"][:, 0]).all()


def test_methods_never_see_the_labels_of_a_target(given, monkeypatch):
    stub_estimates(monkeypatch, [])
    told = output_answers(given, error_methods(), 0.9, 0)
    wrong = tuple(replace(target, labels=(target.labels + 1) % 3) for target in given.targets)
    untold = output_answers(replace(given, targets=wrong), error_methods(), 0.9, 0)
    assert told.truth.tolist() != untold.truth.tolist()
    for row, values in told.rows.items():
        np.testing.assert_array_equal(values, untold.rows[row], row)


def test_confidences_alone_give_what_the_methods_are_defined_as():
    rng = np.random.default_rng(0)
    sets = [SignalSet(rng.random(200), rng.random(200), rng.random(200) < 0.3, f"s{i}", "place") for i in range(2)]
    signals = Signals(sets[0], (sets[1],))
    answers = signal_answers(signals, ("AC", "DoC", "ATC"))
    unsure = [1.0 - samples.confidence.mean() for samples in sets]
    assert answers.rows["AC"][0, 0] == pytest.approx(unsure[1])
    assert answers.rows["DoC"][0, 0] == pytest.approx(sets[0].error + unsure[1] - unsure[0])
    at = np.sort(-sets[0].entropy)[sets[0].wrong.sum()]
    assert answers.rows["ATC"][0, 0] == pytest.approx(np.mean(-sets[1].entropy < at), abs=0.02)


def test_classes_numbered_anew_keep_errors_and_agreements():
    rng = np.random.default_rng(0)
    predicted, labels = rng.integers(0, 5, (4, 60)), rng.integers(0, 5, 60)
    outputs = PredictionsOfNetworks(predicted, labels, "set").outputs()
    for number, network in enumerate(outputs):
        assert network.error == pytest.approx(np.mean(predicted[number] != labels))
        for other, hot in zip(np.delete(predicted, number, axis=0), network.others, strict=True):
            np.testing.assert_array_equal(hot.argmax(axis=1) == network.predicted, other == predicted[number])


def test_every_network_on_every_set_is_a_target_of_agreement():
    rng = np.random.default_rng(0)
    sets = [PredictionsOfNetworks(rng.integers(0, 3, (4, 80)), rng.integers(0, 3, 80), name) for name in "abc"]
    answers = agreement_answers(Agreement(tuple("wxyz"), sets[0], tuple(sets[1:])), error_methods(), 0)
    assert answers.targets[:5] == ("b, w", "b, x", "b, y", "b, z", "c, w")
    assert answers.truth[4] == pytest.approx(np.mean(sets[2].predicted[0] != sets[2].labels))
    assert set(answers.rows) == {SOURCE_ERROR, "ALine-S", "ALine-D", "GDE"}


def test_models_give_logits_of_every_class_and_networks_features_too():
    problem = made_table(places(Path()), "", np.random.default_rng(0))
    for model in ("logistic", "boosting"):
        outputs = fitted(model, problem, places(Path()), 0).outputs_on(problem)
        assert outputs.source.error < 0.5
        assert outputs.source.features is None
        assert outputs.targets[0].logits.shape == (len(problem.targets[0]), 3)
    holes = replace(problem.source, inputs=np.where(np.arange(6) == 2, np.nan, problem.source.inputs))
    small = replace(problem, source=holes)
    outputs = fitted("network", small, places(Path()), 0).outputs(holes)
    assert np.isfinite(outputs.logits).all()
    assert outputs.known_features.shape == (len(holes), 32)
