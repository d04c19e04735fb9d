"""What `help()` shows of every name of `import projnorm as pn`: arguments with types, what they mean, an example."""

from __future__ import annotations

import inspect
import types

import pytest

import projnorm as pn
from projnorm.core.config import Config, settings

NAMES = {name: getattr(pn, name) for name in dir(pn) if not name.startswith("_")}
FUNCTIONS = [name for name, value in NAMES.items() if inspect.isroutine(value)]
CLASSES = [name for name, value in NAMES.items() if inspect.isclass(value)]


def _lacks(name: str) -> list[str]:
    """What the help of a function or class lacks."""
    value, doc = NAMES[name], inspect.getdoc(NAMES[name]) or ""
    arguments = _arguments(value)
    lacks = ["a description"] if not doc.partition("\n")[0].endswith(".") else []
    lacks += [] if ">>> " in doc else ["an example"]
    lacks += [f"the type of {a.name}" for a in arguments if a.annotation is a.empty]
    lacks += [f"explicit arguments for **{a.name}" for a in arguments if a.kind is a.VAR_KEYWORD]
    bases = inspect.getmro(value) if inspect.isclass(value) else ()
    described = doc.partition("Examples:")[0] + "".join(base.__doc__ or "" for base in bases[1:-1])
    described += getattr(value, "__init__", value).__doc__ or ""
    if inspect.isclass(value) and issubclass(value, Config):
        lacks += [f"help of {one.name}" for one in settings(value) if not one.rule.help]
    else:
        lacks += [f"what {a.name} is" for a in arguments if f"{a.name}:" not in described]
    if inspect.isroutine(value) and inspect.signature(value).return_annotation is inspect.Signature.empty:
        lacks.append("what is returned")
    return lacks


def _arguments(value: object) -> list[inspect.Parameter]:
    if isinstance(value, type) and issubclass(value, Exception):
        return []
    return list(inspect.signature(value).parameters.values())  # type: ignore[arg-type]


@pytest.mark.parametrize("name", FUNCTIONS + CLASSES)
def test_help_says_what_goes_in_and_shows_an_example(name):
    assert _lacks(name) == []


def test_every_name_is_a_function_a_class_a_package_or_the_table_of_estimators():
    others = {name for name, value in NAMES.items() if not isinstance(value, types.ModuleType)}
    assert others - {*FUNCTIONS, *CLASSES} == {"ESTIMATORS"}
