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

from projnorm.runs.diagnosis import diagnose

from projnorm import __version__
from projnorm.environment import CORE, EXTRAS
from tests.test_cli import projnorm

ROOT = Path(__file__).resolve().parent.parent


def test_env_is_one_screen_with_what_a_bug_report_needs(tmp_path):
    result = projnorm("env", "--out", str(tmp_path))
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 100
    assert lines[0] == f"projnorm {__version__}"
    for word in (
        "python ",
        "processor ",
        "memory ",
        "numpy ",
        "torch ",
        "BLAS ",
        "openblas",
        "folder writable",
        "utf-8",
    ):
        assert word in result.stdout


def test_env_names_no_person_and_no_place(tmp_path, monkeypatch):
    monkeypatch.setenv("PROJNORM_DATA", "/somewhere/secret")
    text = projnorm("env", "--json", "--out", str(tmp_path)).stdout
    document = json.loads(text)
    assert document["data_variable"] is True
    for name in ("secret", str(Path.home()), str(ROOT), str(tmp_path), socket.gethostname()):
        assert name not in text
    assert not re.search(rf"\b{re.escape(getpass.getuser())}\b", text)
    assert not re.search(r'"/\w', text)


def test_env_without_torch_says_so_and_does_not_fail(tmp_path):
    code = (
        "import sys\n"
        "class NoTorch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'torch':\n"
        "            raise ModuleNotFoundError('no torch', name='torch')\n"
        "sys.meta_path.insert(0, NoTorch())\n"
        f"sys.argv = ['projnorm', 'env', '--out', {str(tmp_path)!r}]\n"
        "from projnorm.cli.app import main\nmain()\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert "installed, but torch is missing" in result.stdout


def test_an_output_folder_that_is_a_file_is_named_and_left_alone(tmp_path):
    path = tmp_path / "file"
    path.write_text("keep me")
    assert diagnose(path).files.output == "not a folder"
    assert diagnose(tmp_path / "not" / "yet").files.output == "writable"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_the_libraries_are_those_of_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    def names(requirements):
        return tuple(re.split(r"[<>=]", one)[0] for one in requirements if "[" not in one)

    assert names(project["dependencies"]) == CORE
    assert {extra: names(project["optional-dependencies"][extra]) for extra in EXTRAS} == EXTRAS
