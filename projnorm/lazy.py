"""Packages whose names are imported when they are first used, as in SPEC 1.

A name that needs a library of an extra which is not installed says which extra.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from projnorm.errors import MissingExtraError

_IMPORTS = re.compile(
    r"^    (?:from (?P<module>[\w.]+) import (?P<names>\([^)]*\)|.*)|import (?P<whole>[\w.]+) as (?P<alias>\w+))$", re.M
)
_ALIASES = re.compile(r"(\w+) as (\w+)")
# Libraries of the extras, by the name they are imported under.
EXTRAS = {
    "torch": "nn",
    "sklearn": "nn",
    "safetensors": "nn",
    "PIL": "nn",
    "onnxruntime": "onnx",
    "dask": "cluster",
    "distributed": "cluster",
    "transformers": "text",
    "huggingface_hub": "text",
}


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a package whose names are imported when they are first used.

    Its names are those that it imports for type checkers, in the block ``if TYPE_CHECKING``, so each is written once:
    ``from package.module import name as name``, or ``import module as name``. `file` is its ``__init__.py``.
    """
    names: dict[str, tuple[str, str]] = {}
    for match in _IMPORTS.finditer(Path(file).read_text(encoding="utf-8").partition("\nif TYPE_CHECKING:")[2]):
        if match["alias"]:
            names[match["alias"]] = match["whole"], ""
        else:
            names |= {alias: (match["module"], name) for name, alias in _ALIASES.findall(match["names"])}

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, attribute = names[name]
        value = getattr(load(module), attribute) if attribute else load(module)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted(names), sorted(names)


def load(module: str) -> Any:
    """Import a module."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise missing_extra(error) from error


def missing_extra(error: ModuleNotFoundError) -> Exception:
    """The error that names the extra; the given one where the library belongs to none."""
    library = (error.name or "").partition(".")[0]
    if library not in EXTRAS:
        return error
    install = f"pip install 'projnorm[{EXTRAS[library]}]'"
    return MissingExtraError(f"this needs {library}, which is not installed: {install}", name=error.name)
