"""`projnorm env`: enough for a bug report, and nothing that names a person or a place."""

from __future__ import annotations

import getpass
import json
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

from projnorm import __version__
from projnorm.environment import CORE, EXTRAS, diagnose
from tests.commands import run_cli
from tests.test_packaging import WITHOUT

ROOT = Path(__file__).resolve().parent.parent


def test_env_is_one_screen_with_what_a_bug_report_needs(tmp_path):
    result = run_cli("env", "--out", str(tmp_path))
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["projnorm", __version__]
    for word in ("python ", "processor ", "memory ", "numpy ", "torch ", "BLAS ", "openblas", "writable", "utf-8"):
        assert word in result.out


def test_env_names_no_person_and_no_place(tmp_path, monkeypatch):
    monkeypatch.setenv("PROJNORM_DATA", "/somewhere/secret")
    text = run_cli("env", "--json", "--out", str(tmp_path)).out
    assert json.loads(text)["data"] == "PROJNORM_DATA is set"
    for name in ("secret", str(Path.home()), str(ROOT), str(tmp_path), socket.gethostname()):
        assert name not in text
    assert not re.search(rf"\b{re.escape(getpass.getuser())}\b", text)
    assert not re.search(r'"/\w', text)


def test_env_without_torch_says_so_and_does_not_fail(tmp_path):
    code = (
        WITHOUT.format(names=["torch"])
        + f"from projnorm.cli.app import run\nsys.exit(run(['env', '--out', {str(tmp_path)!r}]))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (result.returncode, result.stderr) == (0, "")
    assert "torch is not installed" in result.stdout


def test_an_output_folder_that_is_a_file_is_named_and_left_alone(tmp_path):
    path = tmp_path / "file"
    path.write_text("keep me")
    assert "not a folder" in diagnose(path)["output"]
    assert "writable" in diagnose(tmp_path / "not" / "yet")["output"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_the_libraries_are_those_of_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    def names(requirements):
        return tuple(re.split(r"[<>=]", one)[0] for one in requirements if "[" not in one)

    assert names(project["dependencies"]) == CORE
    assert {extra: names(project["optional-dependencies"][extra]) for extra in EXTRAS} == EXTRAS
