"""The command line as a new user meets it: help that is quick, output that is whole, errors of one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from projnorm import __version__
from tests.commands import run_here as projnorm
from tests.commands import without_pictures

HEAVY = ("torch", "scipy.stats", "sklearn", "matplotlib")
COMMANDS = ("report", "toy", "bound", "figures", "predict", "ntk", "deep", "runs", "env")
SMALL_TOY = ("toy", "--d1", "40", "--d2", "20", "--n", "20", "--m", "20", "--trials", "3", "--workers", "1")
SMALL_BOUND = ("bound", "--instances", "160", "--large", "0", "--workers", "1")


def projnorm_process(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "projnorm", *arguments], capture_output=True, text=True, cwd=cwd, check=False
    )


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch):
    """Of commands in this process; those in one of their own draw."""
    without_pictures(monkeypatch)


def assert_one_line_error(result: subprocess.CompletedProcess[str], *words: str) -> None:
    assert result.returncode == 2, result.stderr
    assert result.stderr.count("\n") == 1, result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    for word in words:
        assert word in result.stderr


def test_version():
    result = projnorm_process("--version")
    assert (result.returncode, result.stdout) == (0, f"projnorm {__version__}\n")


def test_help_lists_every_command_with_a_line_each():
    result = projnorm("--help")
    assert result.returncode == 0
    for command in COMMANDS:
        assert any(line.split()[:1] == [command] and len(line.split()) > 3 for line in result.stdout.splitlines())


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        *((command, "--help") for command in COMMANDS),
        ("runs", "show", "--help"),
        ("runs", "verify", "--help"),
        ("ntk", "predict", "--help"),
        ("deep", "run", "--help"),
    ],
)
def test_help_imports_nothing_heavy(arguments):
    code = (
        "import sys\n"
        f"sys.argv = ['projnorm', *{list(arguments)!r}]\n"
        "from projnorm.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code, stop.code\n"
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "assert not heavy, heavy\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_toy_prints_a_table_and_writes_record_and_figure(tmp_path):
    result = projnorm_process(*SMALL_TOY, "--sigmas", "0,1,3", "--out", "out", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert [line.split()[0] for line in result.stdout.splitlines()[4:7]] == ["0", "1", "3"]
    (record,) = (tmp_path / "out" / "runs").iterdir()
    figures = {f"toy.{kind}" for kind in ("pdf", "svg", "png")}
    assert {path.name.split("-")[0] for path in record.iterdir()} == {".lock", "record.json", "arrays", *figures}


@pytest.mark.parametrize("design", ["power-law", "spiked", "overlap", "label-noise"])
def test_toy_json_is_all_there_is_on_stdout(tmp_path, design):
    options = ("--sigmas", "0.5", "--design", design, "--seed", "7", "--interval-trials", "2")
    result = projnorm(*SMALL_TOY, *options, "--json", "--out", str(tmp_path))
    document = json.loads(result.stdout)
    assert document["config"]["design"] == design
    assert document["config"]["seed"] == 7
    assert document["config"]["interval_trials"] == 2
    assert document["rows"][0]["sigma"] == 0.5
    assert set(document["rows"][0]["squared_loss"]) == {"mean", "standard_error", "closed_form"}
    assert all(Path(name).is_file() for name in document["figures"])
    assert (Path(document["record"]) / "record.json").is_file()


def test_bound_exits_0_and_reports_where_intervals_hold(tmp_path):
    result = projnorm(*SMALL_BOUND, "--out", str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert "No interval was broken where it must hold." in result.stdout
    document = json.loads(projnorm(*SMALL_BOUND, "--json", "--out", str(tmp_path)).stdout)
    assert document["violations"] == {}
    assert {row["interval"] for row in document["rows"]} >= {"paper", "generalised_0", "sharp"}


def test_json_is_strict_even_where_a_number_is_missing(tmp_path):
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    for command in ((*SMALL_TOY[:-4], "--trials", "1", "--sigmas", "0"), ("bound", "--instances", "1", "--large", "0")):
        result = projnorm(*command, "--json", "--out", str(tmp_path))
        assert result.returncode == 0, result.stderr
        assert result.stderr == ""
        json.loads(result.stdout, parse_constant=refuse)


def test_a_broken_interval_exits_1_and_saves_the_design(tmp_path):
    """The sharp interval made too narrow on purpose, in the process that runs the command."""
    code = (
        "import sys\n"
        "from dataclasses import replace\n"
        "from simulations import bound_check\n"
        "honest = bound_check.sharp_interval\n"
        "bound_check.sharp_interval = lambda *a, **k: replace(honest(*a, **k), upper=honest(*a, **k).lower)\n"
        f"sys.argv = ['projnorm', *{[*SMALL_BOUND, '--seed', '3', '--json', '--out', str(tmp_path)]!r}]\n"
        "from projnorm.cli.app import main\nmain()\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 1, result.stderr
    document = json.loads(result.stdout)
    assert document["config"]["seed"] == 3
    assert document["violations"]
    assert len(document["saved"]) == min(10, len(document["violations"]))
    assert projnorm("bound", "--replay", document["saved"][0]).returncode == 0, "with the honest interval it holds"


def test_a_killed_worker_is_one_line(tmp_path):
    code = (
        "import os, sys\n"
        "from concurrent.futures import BrokenExecutor\n"
        "from simulations import bound_check\n"
        "def killed(*a, **k): raise BrokenExecutor('gone')\n"
        "bound_check.recorded = killed\n"
        f"sys.argv = ['projnorm', *{[*SMALL_BOUND, '--out', str(tmp_path)]!r}]\n"
        "from projnorm.cli.app import main\nmain()\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert_one_line_error(result, "a worker process was killed", "goes on from here")


def _write_instance(path: Path, family: int, theta_star: list[list[float]]) -> None:
    phi = 0.7
    X = np.array([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    X_ood = np.array([[2.0, 0.0, 0.0], [0.0, np.cos(phi), np.sin(phi)]])
    np.savez(path, X=X, X_ood=X_ood, theta_star=np.array(theta_star), k=1, family=family, dial=0.0)


def test_a_violating_instance_is_replayed_with_exit_code_1(tmp_path):
    """The counterexample filed under "exact", where the paper's interval would have to hold."""
    path = tmp_path / "instance.npz"
    _write_instance(path, family=0, theta_star=[[1.0], [1.0], [np.tan(0.35)]])
    result = projnorm("bound", "--replay", str(path))
    assert result.returncode == 1
    assert "paper" in result.stdout
    document = json.loads(projnorm("bound", "--replay", str(path), "--json").stdout)
    rows = {row["interval"]: row for row in document["rows"]}
    assert rows["paper"]["must_hold"]
    assert not rows["paper"]["holds"]
    assert rows["sharp"]["holds"]
    _write_instance(path, family=4, theta_star=[[1.0], [1.0], [np.tan(0.35)]])
    assert projnorm("bound", "--replay", str(path)).returncode == 0


def test_runs_lists_shows_and_names_damage(tmp_path):
    assert "No records" in projnorm("runs", "--out", str(tmp_path)).stdout
    projnorm(*SMALL_TOY, "--out", str(tmp_path))
    (entry,) = json.loads(projnorm("runs", "--json", "--out", str(tmp_path)).stdout)
    assert entry["kind"] == "toy"
    assert entry["id"] in projnorm("runs", "--out", str(tmp_path)).stdout
    shown = projnorm("runs", "show", entry["id"], "--out", str(tmp_path)).stdout
    for word in ("Configuration", "trials: 3", "numpy", "projnorm_linear (3, 11)"):
        assert word in shown
    assert json.loads(projnorm("runs", "show", "toy", "--json", "--out", str(tmp_path)).stdout)["id"] == entry["id"]
    assert_one_line_error(projnorm("runs", "show", "nothing", "--out", str(tmp_path)), "'nothing' matches none")

    arrays = next((tmp_path / "runs" / entry["id"]).glob("*.npz"))
    arrays.write_bytes(arrays.read_bytes()[:-9])
    assert "is damaged" in projnorm("runs", "--out", str(tmp_path)).stdout
    assert_one_line_error(projnorm("runs", "show", entry["id"], "--out", str(tmp_path)), "is damaged")
    before = arrays.read_bytes()
    mended = projnorm(*SMALL_TOY, "--out", str(tmp_path))
    assert mended.returncode == 0
    assert mended.stderr.count("\n") == 1
    assert "is damaged, its checksum differs; its files are now in" in mended.stderr
    assert (arrays.parent / "damaged" / arrays.name).read_bytes() == before
    assert "is damaged" not in projnorm("runs", "--out", str(tmp_path)).stdout


def test_running_again_reads_the_record_and_fresh_computes_it(tmp_path):
    def created() -> str:
        return json.loads(projnorm("runs", "--json", "--out", str(tmp_path)).stdout)[0]["created"]

    projnorm(*SMALL_TOY, "--out", str(tmp_path))
    first = created()
    projnorm(*SMALL_TOY, "--out", str(tmp_path))
    assert created() == first
    record = next((tmp_path / "runs").glob("*/record.json"))
    record.write_text(record.read_text().replace(first, "2000-01-01T00:00:00+00:00"))
    projnorm(*SMALL_TOY, "--fresh", "--out", str(tmp_path))
    assert created() >= first


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nonsense",), ("nonsense",)),
        (("toy", "--sigmas", "-1,abc"), ("--sigmas", "-1,abc")),
        (("toy", "--sigmas", "-1,2"), ("sigmas", "between 0 and")),
        (("toy", "--sigmas", ""), ("--sigmas",)),
        (("toy", "--sigmas", "1e200"), ("sigmas", "between 0 and 1e+06")),
        (("toy", "--n", "0"), ("`n` must be at least 1; got 0",)),
        (("toy", "--n", "abc"), ("--n",)),
        (("toy", "--design", "cubic"), ("design", "cubic", "power-law")),
        (("toy", "--workers", "0"), ("--workers",)),
        (("toy", "--seed", "-1"), ("--seed",)),
        (("toy", "--fast"), ("--fast",)),
        (("toy", "stray"), ("stray",)),
        (("bound", "--instances", "0"), ("`instances` must be at least 1",)),
        (("bound", "--replay", "missing.npz"), ("missing.npz", "No such file")),
        (("runs", "show"), ("ID",)),
    ],
)
def test_a_bad_command_line_is_one_line_and_exit_code_2(arguments, words, tmp_path):
    assert_one_line_error(projnorm(*arguments, cwd=tmp_path), *words)
    assert list(tmp_path.iterdir()) == []


def test_a_replay_of_something_else_is_refused(tmp_path):
    path = tmp_path / "x.npz"
    path.write_bytes(b"no archive")
    assert_one_line_error(projnorm("bound", "--replay", str(path)), "x.npz is not a saved instance")


@pytest.mark.parametrize("command", [SMALL_TOY, SMALL_BOUND, ("report",), ("figures",)], ids=lambda c: c[0])
def test_an_output_folder_that_is_a_file_is_refused_and_left_alone(tmp_path, command):
    precious = tmp_path / "out"
    precious.write_text("keep me")
    result = projnorm(*command, "--out", str(precious))
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert str(precious) in result.stderr.splitlines()[-1]
    assert precious.read_text() == "keep me"


def test_a_full_disk_is_one_line_and_keeps_what_was_there(tmp_path):
    projnorm(*SMALL_TOY, "--out", str(tmp_path))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    code = (
        "import os, sys\n"
        "def full(descriptor): raise OSError(28, 'No space left on device')\n"
        "os.fsync = full\n"
        f"sys.argv = ['projnorm', *{[*SMALL_TOY, '--seed', '5', '--out', str(tmp_path)]!r}]\n"
        "from projnorm.cli.app import main\nmain()\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert_one_line_error(result, "No space left on device")
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {path: data for path, data in after.items() if path.name != ".lock" or path in before} == before


def test_a_closed_pipe_is_not_a_broken_bound(tmp_path):
    command = [sys.executable, "-m", "projnorm", *SMALL_BOUND, "--out", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait() == 141


def test_no_command_prints_the_help():
    result = projnorm()
    assert "toy" in result.stdout + result.stderr
    assert "Traceback" not in result.stderr
