"""What commands print: text or strict JSON on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from projnorm.cli.options import FigureOptions
from projnorm.core.errors import InputError
from projnorm.core.formatting import finite_or_none

if TYPE_CHECKING:
    from figures.report import Report


def say(text: object = "") -> None:
    """Print a line."""
    sys.stdout.write(f"{text}\n")


def say_json(document: Mapping[str, Any] | list[Any]) -> None:
    """Print strict JSON: what is not finite becomes null."""
    say(json.dumps(_finite(document), allow_nan=False))


def announce(line: str) -> None:
    """Print a line about what comes next, on stderr."""
    sys.stderr.write(f"{line} ...\n")


def answer(report: Report, besides: Mapping[str, Any] | None = None, *, as_json: bool) -> int:
    """Print a report, as text or as JSON with further entries; returns the exit code."""
    if as_json:
        say_json({**(besides or {}), **report.values})
    else:
        say(report.text())
    return 0 if report.ok else 1


def write_figures(report: Report, folder: Path, options: FigureOptions) -> list[Path]:
    """Write the figures; returns their paths."""
    from figures.report import save_figures

    return save_figures(report, folder, formats=options.formats, width=options.width or None)


def say_paths(paths: list[Path], *, as_json: bool) -> None:
    """Print where figures are."""
    if as_json:
        say_json({"figures": list(map(str, paths))})
    else:
        say("\n".join(map(str, paths)))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    return [_finite(entry) for entry in value] if isinstance(value, list | tuple) else finite_or_none(value)


def require_not_input(path: Path, option: str, inputs: Iterable[str]) -> None:
    """Refuse to write over a file that is read."""
    if path.exists() and any(path.samefile(name) for name in inputs if Path(name).exists()):
        raise InputError(f"{path}: is read by this command; name another file as `{option}`.")
