"""What every result has: plain data, a short text that leads with the answer, and a table in notebooks."""

from __future__ import annotations

import html
from dataclasses import fields
from typing import Any

import numpy as np


class Result:
    """Base of the frozen dataclasses that functions return."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values: arrays become lists, results inside become mappings."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]

    def headline(self) -> str:
        """The answer in a line; by default the name of the result and its numbers."""
        numbers = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        shown = [f"{name} = {_short(value)}" for name, value in numbers.items() if not isinstance(value, Result)]
        return f"{type(self).__name__}: {', '.join(shown)}"

    def __str__(self) -> str:
        return self.headline()

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(field.name)}</td><td>{html.escape(_short(getattr(self, field.name)))}</td></tr>"
            for field in fields(self)  # type: ignore[arg-type]
        )
        return f"<p>{html.escape(self.headline())}</p><table>{rows}</table>"


def _plain(value: Any) -> Any:
    if isinstance(value, Result):
        return value.to_dict()
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [_plain(entry) for entry in value] if isinstance(value, tuple | list) else value


def _short(value: Any) -> str:
    """A value in a few characters; of an array, its shape."""
    if isinstance(value, np.ndarray):
        return f"array {value.shape}" if value.ndim else f"{float(value):.6g}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Result):
        return value.headline()
    return f"({', '.join(map(_short, value))})" if isinstance(value, tuple) else str(value)
