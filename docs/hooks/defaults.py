"""Defaults of parameters on the pages of the API: values, where the source names the field that holds the value."""

from __future__ import annotations

import importlib
import inspect
import re
from functools import reduce
from pathlib import Path
from typing import Any

import griffe

_PLAIN = (str, int, float, bool, tuple, type(None))


class Defaults(griffe.Extension):
    """Replaces a default such as ``Options.level`` by its value."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Look the values up in the function itself."""
        named = [each for each in func.parameters if isinstance(each.default, griffe.ExprAttribute)]
        if not named:
            return
        path = func.path.removeprefix(f"{func.module.path}.").split(".")
        function = reduce(getattr, path, importlib.import_module(func.module.path))
        signature = inspect.signature(getattr(function, "__func__", function))
        for parameter in named:
            value = signature.parameters[parameter.name].default
            if isinstance(value, _PLAIN):
                parameter.default = repr(value)


def on_post_build(config: dict[str, Any]) -> None:
    """Fail the build if a signature shows the name of a field in place of its value."""
    for page in sorted((Path(config["site_dir"]) / "api").glob("*.html")):
        text = re.sub(r"<[^>]+>", "", page.read_text("utf-8"))
        if names := re.findall(r"= ([A-Z]\w+\.\w+),\n", text):
            raise SystemExit(f"{page.name} has defaults without their values: {', '.join(sorted(set(names)))}")
