"""What commands print: text or strict JSON on stdout."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from projnorm.cli.options import FigureOptions

if TYPE_CHECKING:
    from figures.show import Shown
    from projnorm.records import Record


def say(text: object = "") -> None:
    """Print a line."""
    sys.stdout.write(f"{text}\n")


def say_json(document: Mapping[str, Any] | list[Any]) -> None:
    """Print strict JSON: what is not finite becomes null."""
    say(json.dumps(_finite(document), allow_nan=False))


def announce(line: str) -> None:
    """Print a line about what comes next, on stderr."""
    sys.stderr.write(f"{line} ...\n")


def present(record: Record, shown: Shown, folder: Path, options: FigureOptions, *, as_json: bool) -> int:
    """Write the figures of a record, and print what it says; returns the exit code."""
    from figures.show import save_figures, save_tables

    paths = save_figures(shown, folder, formats=options.formats, width=options.width or None)
    save_tables(shown, folder)
    if as_json:
        say_json({**record.to_dict(), **shown.values, "record": str(folder), "figures": [str(path) for path in paths]})
        return 0 if shown.ok else 1
    say(f"{shown.text()}\n\nRecord and figures in {folder}")
    return 0 if shown.ok else 1


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    return [_finite(entry) for entry in value] if isinstance(value, list | tuple) else value
