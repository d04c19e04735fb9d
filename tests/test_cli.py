"""The command line as a new user meets it: help that is quick, output that is whole, errors of one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from projnorm import __version__

HEAVY = ("torch", "scipy.stats", "sklearn", "matplotlib")
COMMANDS = ("demo",)


def projnorm(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "projnorm", *arguments], capture_output=True, text=True, cwd=cwd, check=False
    )


def assert_one_line_error(result: subprocess.CompletedProcess[str], *words: str) -> None:
    assert result.returncode == 2, result.stderr
    assert result.stderr.count("\n") == 1, result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    for word in words:
        assert word in result.stderr


def test_version():
    result = projnorm("--version")
    assert (result.returncode, result.stdout) == (0, f"projnorm {__version__}\n")


def test_help_lists_every_command_with_a_line_each():
    result = projnorm("--help")
    assert result.returncode == 0
    for command in COMMANDS:
        assert any(line.split()[:1] == [command] and len(line.split()) > 3 for line in result.stdout.splitlines())


@pytest.mark.parametrize("arguments", [("--help",), *((command, "--help") for command in COMMANDS)])
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


def test_demo_writes_figures_and_a_page_that_needs_no_network(tmp_path):
    result = projnorm("demo", "--quick", "--out", "out", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "paper holds for" in result.stdout
    written = {path.name for path in (tmp_path / "out").iterdir()}
    figures = {f"{name}.{kind}" for name in ("tail_angle", "counterexample") for kind in ("pdf", "svg", "png")}
    assert written == figures | {"report.html"}
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert page.count("<img ") == page.count('src="data:image/svg+xml;base64,') == 2
    assert "http" not in page


def test_demo_json_is_all_there_is_on_stdout(tmp_path):
    result = projnorm("demo", "--quick", "--json", "--seed", "3", "--out", str(tmp_path / "out"))
    document = json.loads(result.stdout)
    assert document["config"]["seed"] == 3
    assert document["rows"][0]["angle_degrees"] == 90.0
    assert document["rows"][0]["paper_coverage"] == 1.0
    assert document["rows"][-1]["paper_coverage"] < 1.0
    assert all(Path(name).is_file() for name in document["files"])
    for row in document["rows"]:
        for name in ("generalised", "sharp"):
            low, high = row[name]
            assert low * (1 - 1e-9) <= row["ratio_min"] <= row["ratio_max"] <= high * (1 + 1e-9)


def test_the_same_seed_writes_the_same_bytes(tmp_path):
    for run in ("a", "b"):
        assert projnorm("demo", "--quick", "--out", str(tmp_path / run)).returncode == 0
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nonsense",), ("nonsense",)),
        (("demo", "--seed", "-1"), ("--seed",)),
        (("demo", "--seed", "abc"), ("--seed",)),
        (("demo", "--fast"), ("--fast",)),
        (("demo", "stray"), ("stray",)),
    ],
)
def test_a_bad_command_line_is_one_line_and_exit_code_2(arguments, words, tmp_path):
    assert_one_line_error(projnorm(*arguments, cwd=tmp_path), *words)
    assert list(tmp_path.iterdir()) == []


def test_an_output_folder_that_is_a_file_is_refused_and_left_alone(tmp_path):
    precious = tmp_path / "out"
    precious.write_text("keep me")
    assert_one_line_error(projnorm("demo", "--quick", "--out", str(precious)), "out")
    assert precious.read_text() == "keep me"


def test_no_command_prints_the_help():
    result = projnorm()
    assert "demo" in result.stdout + result.stderr
    assert "Traceback" not in result.stderr
