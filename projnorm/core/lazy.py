"""Packages whose names are imported when they are first used, as in SPEC 1.

A name that needs a library of an extra which is not installed says which extra.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from projnorm.core.errors import MissingExtraError

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
    "pandas": "tables",
    "pyarrow": "tables",
}


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a package whose names are imported when they are first used.

    Its names are those that it imports for type checkers, in the block ``if TYPE_CHECKING`` of its ``__init__.py``, the
    path `file`, so each is written once.
    """
    names: dict[str, tuple[str, str]] = {}
    for block in ast.parse(Path(file).read_text(encoding="utf-8")).body:
        for node in block.body if isinstance(block, ast.If) else ():
            for one in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
                module = node.module if isinstance(node, ast.ImportFrom) else None
                names[one.asname or one.name] = (module, one.name) if module else (one.name, "")

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, attribute = names[name]
        value = getattr(load(module), attribute) if attribute else load(module)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted(names), sorted(names)


def load(module: str) -> Any:
    """Import a module; `MissingExtraError` if it needs a library of an extra that is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise missing_extra(error) from error


def version_of(name: str) -> str | None:
    """The version of a library that is installed; None for one that is not."""
    from importlib import metadata  # slow to import, and seldom needed

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def missing_extra(error: ModuleNotFoundError) -> Exception:
    """The error that names the extra; the given one where the library belongs to none."""
    library = (error.name or "").partition(".")[0]
    if library not in EXTRAS:
        return error
    install = f"pip install '.[{EXTRAS[library]}]' in a clone of the project"
    return MissingExtraError(f"this needs {library}, which is not installed: {install}", name=error.name)
