"""Packages whose names are imported when they are first used, as in SPEC 1."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def attach(
    package: str, file: str, load: Callable[[str], Any] = import_module
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a package whose names are imported when they are first used.

    Its names are those that it imports for type checkers, in the block ``if TYPE_CHECKING`` of its ``__init__.py``, the
    path `file`, so each is written once. `load` imports a module.
    """
    names: dict[str, tuple[str, str]] = {}
    for block in ast.parse(Path(file).read_text(encoding="utf-8")).body:
        for node in block.body if isinstance(block, ast.If) else ():
            for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
                module = node.module if isinstance(node, ast.ImportFrom) else None
                names[alias.asname or alias.name] = (module, alias.name) if module else (alias.name, "")

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, attribute = names[name]
        value = getattr(load(module), attribute) if attribute else load(module)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted(names), sorted(names)
