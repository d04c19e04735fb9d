"""What a record says: text and tables to read, figures to draw, numbers for other programs. One form for every record.

The command line prints it, `--json` writes its numbers, and the report makes a section of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from figures.style import FORMATS as ALL_FORMATS, Drawing as Drawing, Plot, save
from figures.table import ENDINGS, FORMATS, Table
from projnorm import __version__
from projnorm.core.atomic import write_atomically
from projnorm.core.records import Record
from projnorm.core.store import digest

_STAMPS = "figures.json"


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """What a record says.

    Attributes:
        blocks: Text and tables in the order they are read.
        figures: Figures by file name without ending; none is drawn before it is called.
        values: The same as plain numbers, for JSON.
        ok: False where the answer is "no": an interval that must hold is broken.
        title: Heading in the report.
        verdict: The answer in one sentence, for the top of the report.
        tables: Tables that are saved as files, by file name without ending.
        record: Record that this is about, if it is about a single one.
    """

    blocks: Sequence[str | Table]
    figures: Mapping[str, Drawing] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    ok: bool = True
    title: str = ""
    verdict: str = ""
    tables: Mapping[str, Table] = field(default_factory=dict)
    record: Record | None = None

    def text(self) -> str:
        """The blocks as a terminal shows them."""
        return "\n\n".join(block.text() if isinstance(block, Table) else block for block in self.blocks)


def single_figure(draw: Plot[[Record]], name: str) -> Callable[[Record, Path | None], Report]:
    """The function that shows a record which is one figure, saved under this name."""
    return lambda record, _folder: of_figure(record, name, draw.later(record))


def of_figure(
    record: Record | None, name: str, drawing: Drawing, *tables: Table, values: Mapping[str, Any] | None = None
) -> Report:
    """A record that is one figure and what to see in it, after its tables; the title is that of the figure."""
    return Report([*tables, drawing.caption], {name: drawing}, values or {}, title=drawing.title, record=record)


def save_figures(
    report: Report,
    folder: Path,
    *,
    formats: Sequence[str] = ALL_FORMATS,
    width: str | float | None = None,
    fresh: bool = False,
) -> list[Path]:
    """Draw the figures and write them into `folder`; those that are there already, of the same numbers, are kept.

    Args:
        report: What a record says.
        folder: Folder to write into.
        formats: Endings of the files.
        width: Width as in `figures.style.save`.
        fresh: Whether to draw again what is there.
    """
    known = _known(folder)
    about = [] if report.record is None else [report.record.id, report.record.created]
    stamp = digest([about, str(report.values), width, __version__])
    paths = []
    for name, draw in report.figures.items():
        files = [folder / f"{name}.{extension}" for extension in formats]
        if fresh or not all(known.get(path.name) == stamp and path.exists() for path in files):
            files = save(draw(), folder, name, formats=formats, width=width)
            known |= dict.fromkeys((path.name for path in files), stamp)
            write_atomically(folder / _STAMPS, json.dumps(known, indent=1).encode())
        paths += files
    return paths


def save_tables(report: Report, folder: Path) -> list[Path]:
    """Write the named tables into `folder`, a file for each format."""
    paths = []
    for name, table in report.tables.items():
        for form, ending in ENDINGS.items():
            paths.append(folder / f"{name}.{ending}")
            write_atomically(paths[-1], (FORMATS[form](table) + "\n").encode())
    return paths


def _known(folder: Path) -> dict[str, str]:
    """What the figures in a folder were drawn from, by file name; nothing where that is not known."""
    try:
        stamps = json.loads((folder / _STAMPS).read_bytes())
    except (OSError, ValueError):
        return {}
    return stamps if isinstance(stamps, dict) else {}
