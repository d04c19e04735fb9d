"""What `help()` shows of every name of `import projnorm as pn`: arguments with types, what they mean, an example."""

from __future__ import annotations

import inspect
import types

import pytest

import projnorm as pn
from projnorm.core.config import Config, settings

NAMES = {name: getattr(pn, name) for name in dir(pn) if not name.startswith("_")}
FUNCTIONS = [name for name, value in NAMES.items() if inspect.isroutine(value)]
# Beginnings of a first line that says what is returned, and not what is done.
NOUNS = ("The ", "A ", "An ", "Whether ", "What ", "How far ", "Number ", "Probability ", "Distance ")
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
    return lacks + (_return_lacks(value, doc) if inspect.isroutine(value) else [])


def _methods(cls: type) -> dict[str, object]:
    """The public methods of a class, inherited ones too, but for those of its bases outside of this project."""
    methods = inspect.getmembers(cls, inspect.isroutine)
    ours = ("projnorm", "projnorm_theory", "simulations", "ntk", "deep")
    return {
        name: method
        for name, method in methods
        if not name.startswith("_") and getattr(method, "__module__", "").split(".")[0] in ours
    }


def _method_lacks(method: object) -> list[str]:
    """What the help of a method lacks."""
    doc = inspect.getdoc(method) or ""
    arguments = [a for a in _arguments(method) if a.name not in ("self", "cls")]
    lacks = ["a description"] if not doc.partition("\n")[0].endswith(".") else []
    lacks += [f"the type of {a.name}" for a in arguments if a.annotation is a.empty]
    lacks += [f"what {a.name} is" for a in arguments if f"{a.name}:" not in doc and f"`{a.name}`" not in doc]
    return lacks + _return_lacks(method, doc)


def _return_lacks(function: object, doc: str) -> list[str]:
    """What the help lacks of what is returned: a section, or a first line that names it."""
    returned = inspect.signature(function).return_annotation  # type: ignore[arg-type]
    if returned is inspect.Signature.empty:
        return ["the type of what is returned"]
    is_named = "Returns:" in doc or doc.startswith(NOUNS)
    return [] if returned in ("None", "Iterator[None]") or is_named else ["what is returned"]


def _arguments(value: object) -> list[inspect.Parameter]:
    if isinstance(value, type) and issubclass(value, Exception):
        return []
    return list(inspect.signature(value).parameters.values())  # type: ignore[arg-type]


@pytest.mark.parametrize("name", FUNCTIONS + CLASSES)
def test_help_says_what_goes_in_and_shows_an_example(name):
    assert _lacks(name) == []


@pytest.mark.parametrize("name", CLASSES)
def test_help_of_methods_says_what_goes_in_and_what_comes_out(name):
    lacking = {method: lacks for method, value in _methods(NAMES[name]).items() if (lacks := _method_lacks(value))}
    assert lacking == {}


def test_there_are_methods_to_look_at():
    assert sum(len(_methods(NAMES[name])) for name in CLASSES) > 50


def test_every_name_is_a_function_a_class_a_package_or_the_table_of_estimators():
    others = {name for name, value in NAMES.items() if not isinstance(value, types.ModuleType)}
    assert others - {*FUNCTIONS, *CLASSES} == {"ESTIMATORS"}
