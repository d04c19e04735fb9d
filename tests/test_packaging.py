"""What is installed, what importing it pulls in, and what `projnorm env` says of it."""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import deep
import figures
import ntk
import projnorm
from projnorm import __version__
from projnorm.core.environment import CORE, EXTRAS, diagnose
from tests.commands import run_cli

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONSTRAINTS = dict(
    line.split("==") for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").split("\n") if "==" in line
)
REQUIREMENTS = [
    *PROJECT["dependencies"],
    *(r for extra in PROJECT["optional-dependencies"].values() for r in extra if "[" not in r),
]
HEAVY = ("torch", "matplotlib", "scipy.stats", "sklearn", "dask", "transformers")
# Makes it look as if some libraries were not installed.
WITHOUT = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {names}:
            raise ModuleNotFoundError(name, name=name.split(".")[0])
sys.meta_path.insert(0, Without())
"""
EXTRAS_LIBRARIES = ["torch", "safetensors", "sklearn", "PIL", "distributed", "dask", "transformers", "onnxruntime"]


def write_outputs(folder: Path) -> None:
    """Outputs of a model on a labelled and on an unlabelled set."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 90)
    logits = rng.normal(size=(90, 3)) + 2 * np.eye(3)[labels]
    np.savez(folder / "source.npz", logits=logits, labels=labels)
    np.savez(folder / "target.npz", logits=logits[:60] / 2)


def run_python(code: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, env=environment, check=False
    )


@pytest.mark.parametrize("package", ["projnorm", "projnorm_theory", "simulations", "ntk", "deep", "figures"])
def test_importing_a_package_loads_nothing_heavy_and_needs_no_extra(package):
    allowed = ("scipy.stats",) if package == "simulations" else ()
    forbidden = [name for name in HEAVY if name not in allowed]
    check = f"import {package}\nassert not (loaded := [n for n in {forbidden} if n in sys.modules]), loaded"
    result = run_python(WITHOUT.format(names=EXTRAS_LIBRARIES) + check)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("package", [projnorm, ntk, deep, figures], ids=lambda package: package.__name__)
def test_every_name_of_a_lazy_package_is_there(package):
    assert len(dir(package)) > 5
    for name in (*dir(package), *getattr(package, "__all__", ())):
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        package.no_such_name  # noqa: B018


def test_the_core_install_answers_from_outputs_and_names_the_extra_that_networks_need(tmp_path):
    write_outputs(tmp_path)
    run = WITHOUT.format(names=EXTRAS_LIBRARIES) + "from projnorm.cli.app import run\nsys.exit(run({}.split()))"
    answer = run_python(run.format("'predict --source source.npz --target target.npz --json'"), tmp_path)
    assert (answer.returncode, answer.stderr) == (0, "")
    (estimate,) = json.loads(answer.stdout)["estimates"]
    assert 0 <= estimate["low"] < estimate["error"] < estimate["high"] <= 1
    refused = run_python(run.format("'ntk predict'"), tmp_path)
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert "nn" in refused.stderr


def test_an_estimate_from_two_files_loads_a_fraction_of_the_project(tmp_path):
    """What is loaded is what a reader must follow; a method that is not shown is not imported."""
    write_outputs(tmp_path)
    count = (
        "import sys\nfrom projnorm.cli.app import run\nrun('estimate --source source.npz --target target.npz'.split())"
        "\nprint(sum(n.split('.')[0] in {'projnorm', 'projnorm_theory', 'ntk', 'deep'} for n in sys.modules))"
    )
    result = run_python(count, tmp_path)
    assert int(result.stdout.splitlines()[-1]) <= 60, result.stderr


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
    code = f"from projnorm.cli.app import run\nsys.exit(run(['env', '--out', {str(tmp_path)!r}]))\n"
    result = run_python(WITHOUT.format(names=["torch"]) + code)
    assert (result.returncode, result.stderr) == (0, "")
    assert "torch is not installed" in result.stdout


def test_an_output_folder_that_is_a_file_is_named_and_left_alone(tmp_path):
    path = tmp_path / "file"
    path.write_text("keep me")
    assert "not a folder" in diagnose(path)["output"]
    assert "writable" in diagnose(tmp_path / "not" / "yet")["output"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_the_libraries_are_those_of_pyproject():
    def names(requirements):
        return tuple(re.split(r"[<>=]", one)[0] for one in requirements if "[" not in one)

    assert names(PROJECT["dependencies"]) == CORE
    assert {extra: names(PROJECT["optional-dependencies"][extra]) for extra in EXTRAS} == EXTRAS


def test_the_version_is_one_and_tests_are_not_installed():
    assert metadata.version("projnorm") == __version__
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    files = [str(path) for path in metadata.files("projnorm") or []]
    assert not any(path.startswith(("tests/", "benchmarks/", "docs/")) for path in files)


@pytest.mark.parametrize("requirement", REQUIREMENTS)
def test_every_dependency_is_pinned_and_explained(requirement):
    name = re.split(r"[<>=\[]", requirement)[0]
    assert name in CONSTRAINTS
    assert f"`{name}`" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_everything_that_is_installed_with_it_is_pinned_at_its_version():
    todo, seen = [("projnorm", "test")], set()
    while todo:
        name, extra = todo.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for line in metadata.requires(name) or []:
            requirement = Requirement(line)
            wanted = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
            if wanted and requirement.name != "projnorm":
                todo += [(requirement.name, one) for one in ("", *requirement.extras)]
            elif wanted:
                todo += [("projnorm", one) for one in requirement.extras]
    names = {canonicalize_name(name) for name, _ in seen} - {"projnorm"}
    assert {"dask", "torch", "numpy"} < names
    installed = {name: metadata.version(name).split("+")[0] for name in names}
    assert installed == {name: CONSTRAINTS.get(name) for name in names}
