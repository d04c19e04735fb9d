"""The documents say what is true: their links, commands and examples work, and the README is short."""

from __future__ import annotations

import ast
import importlib
import io
import re
import runpy
import sys
from contextlib import redirect_stdout
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import matplotlib.pyplot as plt
import numpy as np
import pytest
import yaml
from transformers import BertForSequenceClassification, BertTokenizer

import projnorm as pn
from benchmarks.shifts.__main__ import main as leaderboard
from projnorm.cli.app import SUMMARIES, run
from projnorm.estimators.base import REGISTERED
from projnorm.estimators.registry import estimator
from tests.models.checkpoints import save_bert

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [str(path.relative_to(ROOT)) for folder in (ROOT, ROOT / "docs") for path in sorted(folder.glob("*.md"))]
PRESENT = [name for name in DOCUMENTS if name != "CHANGELOG.md"]
COMMAND = re.compile(r"(?:^ {4}|^|`|bin/|\.\.\. |&& )projnorm ([a-z][^`\n]*)", re.MULTILINE)
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
PACKAGES = ("projnorm", "projnorm_theory", "simulations", "ntk", "deep", "figures")
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


def read(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def test_the_readme_is_at_most_6_kilobytes_and_its_commands_use_the_constraints():
    assert len(read("README.md").encode()) <= 6144
    commands = [line for line in read("README.md").splitlines() if line.startswith("python3 -m venv")]
    assert len(commands) == 2
    assert all("-c constraints.txt" in command for command in commands)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_between_documents_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#\s]+)", read(document)):
        if not target.startswith(("http", "mailto")):
            assert ((ROOT / document).parent / target).exists(), target


@pytest.mark.parametrize("document", [*PRESENT, "Makefile"])
def test_programs_that_documents_name_are_there(document):
    for module in set(re.findall(r"python -m (benchmarks[\w.]*\w)", read(document))):
        assert find_spec(module) is not None, module


@cache
def options_of(command: str) -> frozenset[str]:
    with redirect_stdout(io.StringIO()) as printed:
        assert run([*command.split(), "--help-all"]) == 0
    return frozenset(FLAG.findall(printed.getvalue()))


@cache
def options_of_the_leaderboard() -> frozenset[str]:
    with redirect_stdout(io.StringIO()) as printed:
        assert leaderboard(["--help-all"]) == 0
    return frozenset(FLAG.findall(printed.getvalue()))


@pytest.mark.parametrize("document", PRESENT)
def test_commands_and_options_in_documents_exist(document):
    groups = {name.split()[0] for name in SUMMARIES}
    for line in COMMAND.findall(read(document).replace("\\\n", " ")):
        words = line.split("#")[0].split()
        command = next((" ".join(words[:n]) for n in (3, 2, 1) if " ".join(words[:n]) in SUMMARIES), "")
        assert command or words[0] in groups, line
        if command:
            assert set(FLAG.findall(line.split(" && ")[0])) <= options_of(command), line


@pytest.mark.parametrize("document", PRESENT)
def test_options_in_running_text_are_those_of_some_command(document):
    ours = {flag for command in SUMMARIES for flag in options_of(command)}
    ours |= {"--debug", "--version", "--help", "--help-all"} | options_of_the_leaderboard()
    ours |= options_of("deep run templates")  # a preset for text
    mentioned = {flag for span in re.findall(r"`(--[^`]+)`", read(document)) for flag in FLAG.findall(span)}
    assert mentioned <= ours | {"--quick"}  # of python -m tests.reliability


def names_of_ours(document: str) -> list[str]:
    text = re.sub(r"```.*?```", "", read(document), flags=re.DOTALL)
    return re.findall(rf"`((?:pn|{'|'.join(PACKAGES)})(?:\.\w+)+)", text)


def test_the_documents_name_things_of_ours():
    """Without names, the next test would check nothing."""
    assert sum(len(names_of_ours(document)) for document in PRESENT) >= 30


@pytest.mark.parametrize("document", PRESENT)
def test_names_of_ours_in_running_text_exist(document):
    for name in names_of_ours(document):
        parts = name.split(".")
        value = importlib.import_module("projnorm" if parts[0] == "pn" else parts[0])
        for count, part in enumerate(parts[1:], start=2):
            if not hasattr(value, part) and find_spec(".".join(parts[:count])):
                importlib.import_module(".".join(parts[:count]))
            value = getattr(value, part)


@pytest.mark.parametrize(
    ("document", "least"),
    [
        ("README.md", 1),
        ("docs/toy-and-bounds.md", 8),
        ("docs/first-estimate.md", 3),
        ("docs/estimate.md", 1),
        ("docs/ntk.md", 3),
        ("docs/deep.md", 1),
        ("docs/few-labels.md", 2),
        ("docs/monitor.md", 2),
    ],
)
def test_the_examples_in_the_documents_run(document, least, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    blocks = PYTHON.findall(read(document))
    assert len(blocks) >= least
    names: dict[str, object] = {"__name__": "document"}
    for block in blocks:
        exec(compile(block, document, "exec"), names)  # noqa: S102 - our own document
    assert "Traceback" not in capsys.readouterr().out


@pytest.mark.parametrize("document", ["README.md", "docs/first-estimate.md"])
def test_the_output_beside_the_first_example_is_what_it_prints(document, capsys):
    exec(compile(PYTHON.findall(read(document))[0], document, "exec"), {"__name__": "document"})  # noqa: S102
    (output, *_) = re.findall(r"```text\n(.*?)```", read(document), re.DOTALL)
    assert capsys.readouterr().out.split() == output.split()


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").rglob("*.py")), ids=lambda path: path.stem)
def test_what_a_benchmark_imports_of_ours_exists(path):
    """The documents name them as the commands behind numbers; running them takes minutes."""
    imports = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.ImportFrom)]
    for node in imports:
        if (node.module or "").partition(".")[0] in (*PACKAGES, "benchmarks"):
            module = importlib.import_module(node.module or "")
            assert all(hasattr(module, alias.name) or find_spec(f"{node.module}.{alias.name}") for alias in node.names)


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
def test_an_example_asks_one_question_in_at_most_45_lines_through_the_front_door(path):
    assert len(EXAMPLES) == 9
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    assert (ast.get_docstring(tree) or "").split("\n")[0].endswith("?")
    assert len(source.splitlines()) <= 45
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name for name in modules if name.split(".")[0] in PACKAGES} == {"projnorm"}


def test_the_gallery_has_a_page_for_every_example_with_prose_output_and_figure():
    gallery = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "hooks" / "gallery.py"), run_name="gallery"))
    assert sorted(gallery.NAMES) == [path.stem for path in EXAMPLES]
    for name in gallery.NAMES:
        example = gallery.read_example(name)
        assert sum(bool(prose) for prose in example.pieces[::2]) >= 2, name
        assert example.output, "`make examples` writes it"
        assert (ROOT / "docs" / "images" / f"{name}.png").exists()
        assert example.question in gallery.example_page(example, None)


def test_the_keys_of_an_estimate_are_those_documented():
    section = read("docs/estimate.md").partition("## JSON")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    documented = {key for row in rows for key in re.findall(r"`(\w+)`", row.split("|")[1])}
    labels = np.arange(60) % 3
    logits = np.random.default_rng(0).normal(size=(60, 3)) + 2 * np.eye(3)[labels]
    estimate = pn.estimate_error(None, {"logits": logits, "labels": labels}, {"logits": logits})
    assert set(estimate.to_dict()) == documented


@patch.dict(REGISTERED)  # it adds one
def test_the_estimator_and_the_experiment_of_contributing_work(tmp_path, monkeypatch):
    module = ModuleType("contributing")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names: dict[str, Any] = vars(module)
    for block in PYTHON.findall(read("CONTRIBUTING.md")):
        exec(compile(block, "CONTRIBUTING.md", "exec", dont_inherit=True), names)  # noqa: S102 - our own document
    outputs = pn.Outputs(np.log([[0.5, 0.3, 0.2], [0.8, 0.1, 0.1]]))
    assert estimator("meanmargin")().fit(outputs).score(outputs) == pytest.approx(0.45)
    record = names["run_coin"](names["CoinConfig"](coins=3), pn.RunContext(tmp_path))
    assert record.arrays["share"].shape == (3,)
    report = names["show"](record, tmp_path)
    assert report.values["mean"] == record.arrays["share"].mean()
    assert report.figures["coin"]().axes[0].patches


def test_the_citation_names_the_paper_and_the_version():
    citation = yaml.safe_load(read("CITATION.cff"))
    paper = citation["preferred-citation"]
    assert (citation["version"], paper["year"], len(paper["authors"])) == (pn.__version__, 2022, 5)


@pytest.mark.parametrize(
    ("html", "resources"),
    [
        ('<script src="https://a.example/x.js"></script>', ["https://a.example/x.js"]),
        ('<link rel="stylesheet" href="//a.example/x.css">', ["//a.example/x.css"]),
        ('<img src="HTTP://a.example/x.png" srcset="https://a.example/y.png 2x">', 2),
        ("<style>@import 'https://a.example/x.css';</style>", ["https://a.example/x.css"]),
        ('<p style="background: url(https://a.example/x.png)">', ["https://a.example/x.png"]),
        ('<a href="https://a.example">a link</a><img src="x.png"><link rel="canonical" href="https://a.example">', []),
    ],
)
def test_the_site_is_searched_for_resources_of_other_hosts(html, resources):
    addresses = runpy.run_path(str(ROOT / "docs" / "hooks" / "offline.py"))["resources_elsewhere"](html)
    assert addresses == resources or len(addresses) == resources


def test_the_trainer_callback_of_the_documents_adds_the_estimate_to_the_metrics(tmp_path, capsys):
    block = next(block for block in PYTHON.findall(read("docs/monitor.md")) if "TrainerCallback" in block)
    names: dict[str, Any] = {"pn": pn}
    exec(compile(block, "docs/monitor.md", "exec"), names)  # noqa: S102 - our own document
    folder = save_bert(tmp_path / "bert")
    model = BertForSequenceClassification.from_pretrained(folder)
    tokenizer = BertTokenizer.from_pretrained(folder)
    texts = ["the cat sleeps", "a dog does not run in the house", "the dog runs"] * 20
    target = [dict(tokenizer(text)) for text in texts]
    source = [{**sample, "labels": number % 2} for number, sample in enumerate(target)]
    metrics: dict[str, float] = {}
    callback = names["MonitorError"](source, target)
    callback.on_evaluate(None, None, None, model=model, processing_class=tokenizer, metrics=metrics)
    assert 0.0 <= metrics["eval_estimated_error"] <= 1.0
    assert "Estimated error" in capsys.readouterr().out
