"""Every example runs, prints an answer and draws a figure."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

EXAMPLES = sorted((Path(__file__).resolve().parent.parent / "examples").glob("*.py"))


def test_there_are_six():
    assert len(EXAMPLES) == 6


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_an_answer_and_draws_a_figure(path, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(path), str(tmp_path)])
    runpy.run_path(str(path))
    plt.close("all")
    (figure,) = tmp_path.iterdir()
    assert figure.name == f"{path.stem}.png"
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert any(character.isdigit() for character in capsys.readouterr().out)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_asks_one_question_in_under_forty_lines_through_the_front_door(path):
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    assert (ast.get_docstring(tree) or "").split("\n")[0].endswith("?")
    assert len(source.splitlines()) < 40
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert "projnorm" in modules
    ours = {"projnorm", "projnorm_theory", "simulations", "ntk", "deep", "figures"}
    assert {name for name in modules if name.split(".")[0] in ours} == {"projnorm"}
