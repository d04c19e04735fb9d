"""The table of methods and the files of methods name each other, so that a new file cannot be forgotten."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from projnorm import estimators
from projnorm.estimators.registry import _MODULES, ESTIMATORS

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("projnorm/estimators", "deep/estimators")


def registered() -> dict[str, tuple[str, str]]:
    """Module and class of every method that is registered in a file, by its name."""
    methods = {}
    for path in (path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.py"))):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and any(ast.unparse(one) == "register" for one in node.decorator_list):
                names = [
                    ast.literal_eval(line.value)
                    for line in node.body
                    if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "name"
                ]
                assert names, f"{module}: {node.name} is decorated with `register` and has no `name`; give it one."
                methods[names[0]] = (module, node.name)
    return methods


METHODS = registered()


@pytest.mark.parametrize("name", METHODS)
def test_every_registered_method_has_a_line_in_the_table(name):
    module, _ = METHODS[name]
    assert _MODULES.get(name) == module, f'add the line "{name}": "{module}", to projnorm/estimators/registry.py.'


@pytest.mark.parametrize("name", _MODULES)
def test_every_line_of_the_table_has_a_class(name):
    module = _MODULES[name]
    assert METHODS.get(name, ("",))[0] == module, (
        f"{module} registers no class with the name {name!r}; add it there with `@register`, or take the line out of "
        "projnorm/estimators/registry.py."
    )


@pytest.mark.parametrize("name", [name for name, (module, _) in METHODS.items() if module.startswith("projnorm.")])
def test_every_class_is_named_by_the_package(name):
    module, cls = METHODS[name]
    assert getattr(estimators, cls, None) is ESTIMATORS[name], (
        f"add `from {module} import {cls}` to projnorm/estimators/__init__.py."
    )


def test_every_class_has_an_example_that_runs():
    without = [name for name in METHODS if ">>>" not in (ESTIMATORS[name].__doc__ or "")]
    assert [name for name in without if METHODS[name][0].startswith("projnorm.")] == [], (
        "add an example to the docstring, as COT has one; `pytest projnorm/estimators` runs it."
    )
