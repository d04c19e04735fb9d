"""The command, its record, and the estimates of other tools."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.shifts.evaluate import (
    OUTPUTS_ONLY,
    SOURCE_ERROR,
    WITH_MODEL,
)
from benchmarks.shifts.experiment import BenchmarkConfig, run_benchmark
from benchmarks.shifts.suites import Case
from projnorm.core.errors import InputError
from projnorm.core.records import RunContext
from tests.commands import assert_refused, run_cli, run_process
from tests.shifts.stand_ins import benchmark, places, stub_estimates


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
