"""Packages whose names are imported when they are first used, as in SPEC 1.

A name that needs a library of an extra which is not installed says which extra.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from projnorm.errors import MissingExtraError

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


def attach(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions `__getattr__` and `__dir__` of a package.

    Args:
        package: Name of the package.
        names: For every public name the module that defines it; for a name that is itself a module, that module.
    """

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = load(names[name])
        value = module if module.__name__.rpartition(".")[2] == name else getattr(module, name, module)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted(names)


def load(module: str) -> Any:
    """Import a module.

    Raises:
        MissingExtraError: If it needs a library of an extra that is not installed.
    """
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
