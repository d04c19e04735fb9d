"""Every benchmark can be imported, so that what it takes from the packages is there."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import benchmarks

FOLDER = Path(benchmarks.__file__).parent
# They run in environments of their own, with nothing of this project.
PEERS = ("nannyml_alerts", "nannyml_peer", "neural_tangents_peer")


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in (*PEERS, "__init__"))
)
def test_a_benchmark_takes_only_what_is_there(name):
    module = importlib.import_module(f"benchmarks.{name}")
    assert module.__doc__


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_imports_nothing_of_this_project(name):
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    ours = ("benchmarks", "projnorm", "projnorm_theory", "simulations", "ntk", "deep", "figures")
    assert not [
        line
        for line in text.splitlines()
        if line.startswith(tuple(f"{w} {p}" for w in ("from", "import") for p in ours))
    ]
