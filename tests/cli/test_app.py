"""The command line as a new user meets it: help that is quick, output that is whole, errors of one line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from concurrent.futures import BrokenExecutor
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from projnorm import __version__
from projnorm.cli.app import SECTIONS, SUMMARIES
from simulations import bound_check
from tests.commands import assert_refused, run_cli, run_process

HEAVY = ("torch", "scipy.stats", "sklearn", "matplotlib", "numpy")
SMALL_TOY = ("toy", "--d1", "40", "--d2", "20", "--n", "20", "--m", "20", "--trials", "3", "--workers", "1")
SMALL_BOUND = ("bound", "--instances", "160", "--large", "0", "--workers", "1")


def test_version():
    assert run_process("--version").out == f"projnorm {__version__}\n"


def test_help_lists_every_command_within_80_columns():
    for arguments in ((), ("--help",), ("-h",), ("deep",), ("deep", "analyse"), ("ntk",), ("ntk", "--help")):
        result = run_cli(*arguments)
        assert (result.code, result.err) == (0, "")
        assert max(map(len, result.out.splitlines())) <= 80
    whole = run_cli("--help").out
    analyses = [command for command in SUMMARIES if command.startswith("deep analyse ")]
    assert all(f"  {command} " in whole for command in {*SUMMARIES, "deep analyse"} - {*analyses})
    assert all(f"  {command} " in run_cli("deep", "analyse").out for command in analyses)
    assert [line for line in whole.splitlines() if line.endswith(":")] == [f"{title}:" for title in SECTIONS]
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(
        {*SUMMARIES, "deep analyse"} - {*analyses}
    )


def test_rare_options_are_listed_when_all_are_asked_for():
    frequent, every = run_cli("toy", "--help").out, run_cli("toy", "--help-all").out
    assert ("--scheduler" in frequent, "--scheduler" in every) == (False, True)
    assert "--help-all" in frequent
    assert "--backend dask needs --scheduler" in run_cli("toy", "--backend", "dask").err


@pytest.mark.parametrize("command", sorted(SUMMARIES))
def test_help_of_a_command_fits_80_columns_and_shows_defaults(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    result = run_cli(*command.split(), "--help")
    assert (result.code, result.err) == (0, "")
    assert max(map(len, result.out.splitlines())) <= 80
    names_a_file = command in ("fit", "label")  # there --out is a file
    assert ("Default: projnorm-out" in " ".join(result.out.split())) == ("--out" in result.out and not names_a_file)
    assert "``" not in result.out


@pytest.mark.parametrize(
    "arguments", [("--help",), ("toy", "--help"), ("deep", "run", "--help"), ("ntk", "gram", "-h")]
)
def test_help_imports_nothing_heavy(arguments):
    heavy = [name for name in HEAVY if name != "numpy" or arguments == ("--help",)]
    code = (
        "import sys\nfrom projnorm.cli.app import run\n"
        f"assert run({list(arguments)!r}) == 0\n"
        f"loaded = [name for name in {heavy!r} if name in sys.modules]\nassert not loaded, loaded\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_completion_knows_commands_and_options():
    script = run_cli("completion", "bash").out
    for word in ("toy", "--interval-trials", "estimate", "--fail-above", "--finetune-lr"):
        assert word in script


def test_toy_prints_a_table_and_writes_record_figures_and_settings(tmp_path):
    result = run_cli(*SMALL_TOY, "--sigmas", "0,1,3", "--out", "out", cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    assert [line.split()[0] for line in result.out.splitlines()[4:7]] == ["0", "1", "3"]
    (record,) = (tmp_path / "out" / "runs").glob("toy-*")
    names = {path.name for path in record.iterdir()}
    assert {"record.json", "config.toml", "toy.pdf", "toy.svg", "toy.png"} <= names
    again = run_cli("toy", "--config", str(record / "config.toml"), "--out", str(tmp_path / "out"), "--json")
    assert json.loads(again.out)["id"] == record.name
    wider = run_cli("toy", "--config", str(record / "config.toml"), "--m", "21", "--out", str(tmp_path / "b"), "--json")
    assert json.loads(wider.out)["config"] == {**json.loads(again.out)["config"], "m": 21}


@pytest.mark.parametrize("design", ["power-law", "label-noise"])
def test_toy_json_is_all_there_is_on_stdout(tmp_path, design):
    options = (
        "--sigmas",
        "0.5",
        "--design",
        design.upper(),
        "--seed",
        "7",
        "--interval-trials",
        "2",
        "--outputs",
        "one-hot",
    )
    result = run_cli(*SMALL_TOY, *options, "--json", "--out", str(tmp_path))
    document = json.loads(result.out)
    assert (document["config"]["design"], document["config"]["outputs"]) == (design, "one-hot")
    assert (document["config"]["seed"], document["config"]["interval_trials"]) == (7, 2)
    assert document["rows"][0]["sigma"] == 0.5
    assert set(document["rows"][0]["squared_loss"]) == {"mean", "standard_error", "closed_form"}
    assert all(Path(name).is_file() for name in document["figures"])
    assert (Path(document["record"]) / "record.json").is_file()


def test_json_is_strict_even_where_a_number_is_missing(tmp_path):
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    for command in ((*SMALL_TOY[:-4], "--trials", "1", "--sigmas", "0"), ("bound", "--instances", "1", "--large", "0")):
        result = run_cli(*command, "--json", "--out", str(tmp_path))
        assert (result.code, result.err) == (0, "")
        json.loads(result.out, parse_constant=refuse)


def test_a_broken_interval_exits_1_and_saves_the_design(tmp_path, monkeypatch):
    """The sharp interval made too narrow on purpose."""
    honest = bound_check.sharp_interval

    def too_narrow(*arguments, **options):
        interval = honest(*arguments, **options)
        return replace(interval, upper=interval.lower + 0.01 * (interval.upper - interval.lower))

    with monkeypatch.context() as patch:
        patch.setattr(bound_check, "sharp_interval", too_narrow)
        result = run_cli(*SMALL_BOUND, "--seed", "3", "--json", "--out", str(tmp_path))
        assert result.code == 1, result.err
        broken = json.loads(result.out)["violations"]
        assert len(broken) > 5
        saved = sorted(tmp_path.rglob("violation-*.npz"))
        assert len(saved) == min(10, len(broken))
        assert run_cli("bound", "--replay", str(saved[0])).code == 1
    assert run_cli("bound", "--replay", str(saved[0])).code == 0, "with the honest interval it holds"


@pytest.mark.parametrize(
    ("failure", "code", "words"),
    [
        (BrokenExecutor("gone"), 2, ["a worker process was killed", "resumes"]),
        (TypeError("oops"), 70, ["internal error (TypeError: oops)", "This is a bug", "--debug"]),
        (ValueError("not ours"), 70, ["internal error (ValueError: not ours)"]),
        (MemoryError(), 2, ["not enough memory"]),
        (KeyboardInterrupt(), 130, ["interrupted; the same command resumes where it stopped"]),
        (OSError(28, "No space left on device", "x.json"), 2, ["No space left on device: x.json"]),
    ],
)
def test_a_failure_says_whose_it_is(tmp_path, monkeypatch, failure, code, words):
    monkeypatch.setattr("simulations.bound_check.recorded", Mock(side_effect=failure))
    result = run_cli(*SMALL_BOUND, "--out", str(tmp_path))
    assert (result.code, result.out, result.err.count("\n")) == (code, "", 1), result.err
    for word in words:
        assert word in result.err
    if code == 70:
        assert "Traceback" in run_cli(*SMALL_BOUND, "--debug", "--out", str(tmp_path)).err


def test_an_interruption_that_a_library_turns_into_an_error_is_still_one(tmp_path, monkeypatch):
    def load(*_: object, **__: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("initialization failed") from None

    monkeypatch.setattr("simulations.bound_check.recorded", load)
    result = run_cli(*SMALL_BOUND, "--out", str(tmp_path))
    assert (result.code, result.err) == (130, "projnorm: interrupted; the same command resumes where it stopped\n")


@pytest.mark.parametrize(("family", "code"), [(0, 1), (4, 0)])
def test_an_instance_is_replayed_with_exit_code_1_if_it_violates(tmp_path, family, code):
    """The counterexample filed under "exact", where the paper's interval would have to hold, or elsewhere."""
    X, X_ood = np.array([[[2.0, 0.0, 0.0], [0.0, np.cos(phi), np.sin(phi)]] for phi in (0.0, 0.7)])
    theta_star = np.array([[1.0], [1.0], [np.tan(0.35)]])
    path = tmp_path / "instance.npz"
    np.savez(path, X=X, X_ood=X_ood, theta_star=theta_star, k=1, family=family, dial=0.0)
    result = run_cli("bound", "--replay", str(path))
    assert (result.code, "paper" in result.out) == (code, True)
    rows = {row["interval"]: row for row in json.loads(run_cli("bound", "--replay", str(path), "--json").out)["rows"]}
    assert (rows["paper"]["must_hold"], rows["paper"]["holds"], rows["sharp"]["holds"]) == (bool(code), False, True)


def test_runs_are_listed_shown_and_removed(tmp_path):
    out = ("--out", str(tmp_path))
    assert "No runs" in run_cli("runs", *out).out
    for seed in ("0", "1"):
        run_cli(*SMALL_TOY, "--seed", seed, *out)
    first, second = json.loads(run_cli("runs", "--json", *out).out)["runs"]
    assert {first["settings"]["seed"], second["settings"]["seed"]} == {0, 1}
    listed = run_cli("runs", *out).out
    assert first["id"] in listed
    assert "seed=1" in listed
    shown = run_cli("runs", "show", first["id"], *out).out
    for word in ("Settings", "trials: 3", "numpy", "projnorm_linear (3, 11)"):
        assert word in shown
    assert json.loads(run_cli("runs", "show", first["id"], "--json", *out).out)["id"] == first["id"]
    assert_refused(run_cli("runs", "show", "nothing", *out), "begins with 'nothing'; there are")
    assert_refused(run_cli("runs", "show", "toy", *out), "name one of the 2 runs in", f"{first['id']}, {second['id']}")
    (tmp_path / "runs" / first["id"] / "record.json").write_text("{}")
    assert "damaged" in run_cli("runs", *out).out
    assert first["id"] in run_cli("runs", "rm", first["id"], *out).out
    assert [run["id"] for run in json.loads(run_cli("runs", "--json", *out).out)["runs"]] == [second["id"]]
    assert_refused(run_cli("runs", "rm", *out), "name the runs to remove, or pass --unfinished or --shared")
    for name in ("mine", "trained"):
        (tmp_path / "runs" / name).mkdir()
    assert json.loads(run_cli("runs", "rm", "--shared", "--json", *out).out) == {"removed_bytes": {"trained": 0}}
    assert (tmp_path / "runs" / "mine").is_dir(), "somebody else's folder"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nonsense",), ("nonsense",)),
        (("toi",), ("did you mean toy?",)),
        (("deep", "rum"), ("deep rum", "did you mean deep run?")),
        (("toy", "--sigmas", "1,abc"), ("--sigmas", "1,abc")),
        (("toy", "--sigmas", ""), ("--sigmas",)),
        (("toy", "--n", "0"), ("--n must be at least 1; got 0",)),
        (("toy", "--n", "abc"), ("--n", "whole number")),
        (("toy", "--design", "cubic"), ("--design", "cubic", "power-law")),
        (("toy", "--outputs", "two"), ("--outputs must be one of sign, one-hot; got 'two'",)),
        (("toy", "--fast"), ("--fast",)),
        (("toy", "--trails", "3"), ("did you mean --trials?",)),
        (("toy", "stray"), ("stray",)),
        (("toy", "--backend", "dask"), ("--backend dask needs --scheduler",)),
        (("toy", "--scheduler", "tcp://x:1"), ("--scheduler is for --backend dask",)),
        (("toy", "--config", "missing.toml"), ("missing.toml",)),
        (("toy", "--width", "banana"), ("--width must be column, page or a number of inches", "banana")),
        (("toy", "--config", "zero.toml"), ("--n must be at least 1; got 0",)),
        (("toy", "--config=other.toml"), ("there is no setting `nn`",)),
        (("bound", "--replay", "missing.npz"), ("missing.npz", "No such file")),
        (("bound", "--replay", "zero.toml"), ("zero.toml is not a saved design",)),
        (("bound", "--replay", "."), ("is a folder, not a file",)),
        (("runs", "show"), ("there is no run in",)),
        (("deep", "analyse", "weep"), ("deep analyse weep", "did you mean deep analyse sweep?")),
        (("deep", "run"), ("PRESET must be one of",)),
        (("deep", "analyse", "swep"), ("did you mean deep analyse sweep?",)),
        (("toy", "--dry-run"), ("there is no option --dry-run (",)),
        (("deep", "run", "--preset", "digits"), ("there is no option --preset; PRESET is given without a flag",)),
    ],
)
def test_a_bad_command_line_is_one_line_and_exit_code_2(arguments, words, tmp_path):
    (tmp_path / "zero.toml").write_text("n = 0\n")
    (tmp_path / "other.toml").write_text("nn = 1\n")
    assert_refused(run_cli(*arguments, cwd=tmp_path), *words)
    assert {path.name for path in tmp_path.iterdir()} == {"zero.toml", "other.toml"}


@pytest.mark.parametrize("command", [SMALL_TOY, ("report",)], ids=lambda c: c[0])
def test_an_output_folder_that_is_a_file_is_refused_and_left_alone(tmp_path, command):
    precious = tmp_path / "out"
    precious.write_text("keep me")
    result = run_cli(*command, "--out", str(precious))
    assert result.code == 2
    assert "Traceback" not in result.err
    assert str(precious) in result.err.splitlines()[-1]
    assert precious.read_text() == "keep me"


@pytest.mark.slow
def test_a_closed_pipe_is_not_a_broken_bound(tmp_path):
    command = [sys.executable, "-m", "projnorm", *SMALL_BOUND, "--out", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 141
