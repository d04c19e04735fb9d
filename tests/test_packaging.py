"""What is installed, and what importing it pulls in."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from projnorm import __version__

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONSTRAINTS = dict(
    line.split("==") for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").split("\n") if "==" in line
)
REQUIREMENTS = [
    *PROJECT["project"]["dependencies"],
    *(r for extra in PROJECT["project"]["optional-dependencies"].values() for r in extra if "[" not in r),
]


@pytest.mark.parametrize("package", ["projnorm_theory", "simulations"])
@pytest.mark.parametrize("torch", ["as installed", "not installed"])
def test_importing_the_core_never_imports_torch(package, torch):
    hide = (
        "class NoTorch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'torch':\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, NoTorch())\n"
    )
    code = f"import sys\n{hide if torch == 'not installed' else ''}import {package}\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_the_version_is_one():
    assert metadata.version("projnorm") == __version__
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_tests_are_not_installed():
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
