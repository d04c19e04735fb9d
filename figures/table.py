"""A small table that prints aligned in a terminal, renders in the page, and goes into a document or a spreadsheet.

Text in it and in the page may hold inline code in backticks and a few mathematical words.
"""

from __future__ import annotations

import csv
import html
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from projnorm.core.lazy import load

_NUMBER = re.compile(r"[-+]?[\d,.]+(e[-+]?\d+)?( ?%)?|-|")
# Word in plain text: its LaTeX and its HTML.
_MATHS = {
    "R^2": ("$R^2$", "R<sup>2</sup>"),
    "rho": (r"$\rho$", "&rho;"),
    "sigma": (r"$\sigma$", "&sigma;"),
    "r_s": ("$r_s$", "r<sub>s</sub>"),
    "±": (r"$\pm$", "±"),
}
_WORD = re.compile(r"(R\^2|\brho\b|\bsigma\b|\br_s\b|±)")
_CODE = re.compile(r"`([^`]+)`")
_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    character: f"\\{character}" for character in "&%$#_{}"
}


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a table: rounded where people read it, in full in a spreadsheet.

    Attributes:
        value: The number, in the unit that the header of its column names.
        form: Format that it is printed in, such as ".3f".
        more: Numbers that belong to it by name, such as the ends of its interval; columns of their own in CSV.
        layout: How the number and those that belong to it are put together.
    """

    value: float
    form: str = ".3f"
    more: Mapping[str, float] = field(default_factory=dict)
    layout: str = "{}"

    @classmethod
    def interval(cls, value: float, low: float, high: float, form: str = ".3f") -> Number:
        """A number with an interval; without one where the ends are nan."""
        return cls(value, form, {"low": low, "high": high}, "{}" if math.isnan(low) else "{} [{}, {}]")

    def __str__(self) -> str:
        """The number as it is read; a dash where there is none."""
        if math.isnan(self.value):
            return "-"
        return self.layout.format(*(format(number, self.form) for number in (self.value, *self.more.values())))


Cell = str | Number
Column = Callable[[Any], Cell]


def number(key: str, form: str = ".3f", scale: float = 1) -> Column:
    """A column of numbers: an entry or (dotted) attribute of each row in another unit; a dash where it is None.

    A number with an interval, such as `projnorm.core.statistics.Interval`, has the ends in brackets.
    """

    def cell(row: Any) -> Number:
        value = row[key] if isinstance(row, Mapping) else attrgetter(key)(row)
        if hasattr(value, "low"):
            return Number.interval(scale * value.value, scale * value.low, scale * value.high, form)
        return Number(math.nan if value is None else scale * value, form)

    return cell


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text and numbers under a header.

    Attributes:
        header: Names of the columns, with units.
        rows: Cells, as many a row as there are columns.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    @classmethod
    def from_rows(cls, rows: Iterable[Any], columns: Mapping[str, Column]) -> Table:
        """A table with a row for each of `rows`, from columns by their headers."""
        return cls(tuple(columns), [[column(row) for column in columns.values()] for row in rows])

    def text(self) -> str:
        """Aligned columns with a rule under the header; numbers end at the right."""
        lines = [list(self.header), *self._cells()]
        right = self._numeric()
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.header))]
        shown = [
            "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True)).rstrip()
            for line in lines
        ]
        return "\n".join([shown[0], "-" * max(map(len, shown)), *shown[1:]])

    def to_frame(self) -> Any:
        """The table as a DataFrame of pandas, with numbers in full."""
        values = [[cell.value if isinstance(cell, Number) else cell for cell in row] for row in self.rows]
        return load("pandas").DataFrame(values, columns=list(self.header))

    def html(self) -> str:
        """An HTML table that scrolls sideways where it must."""
        classes = [' class="number"' if right else "" for right in self._numeric()]
        header = "".join(f"<th{c}>{to_html(cell)}</th>" for c, cell in zip(classes, self.header, strict=True))
        rows = "".join(
            "<tr>" + "".join(f"<td{c}>{to_html(cell)}</td>" for c, cell in zip(classes, row, strict=True)) + "</tr>"
            for row in self._cells()
        )
        head = f"<thead><tr>{header}</tr></thead>"
        return f'<div class="scroll" tabindex="0"><table>{head}<tbody>{rows}</tbody></table></div>'

    def markdown(self) -> str:
        """A table of Markdown."""
        rules = ["---:" if right else "---" for right in self._numeric()]
        lines = [self.header, rules, *self._cells()]
        return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)

    def latex(self) -> str:
        """A tabular with the rules of booktabs."""
        header, *rows = (" & ".join(map(to_latex, line)) for line in (self.header, *self._cells()))
        columns = "".join("r" if right else "l" for right in self._numeric())
        lines = [f"\\begin{{tabular}}{{{columns}}}", "\\toprule", f"{header} \\\\", "\\midrule"]
        return "\n".join([*lines, *(f"{row} \\\\" for row in rows), "\\bottomrule", "\\end{tabular}"])

    def csv(self) -> str:
        """Comma-separated values: numbers in full, and what belongs to them in columns of their own."""
        columns = []
        for name, cells in zip(self.header, zip(*self.rows, strict=True), strict=False):
            more = dict.fromkeys(key for cell in cells if isinstance(cell, Number) for key in cell.more)
            columns.append([name, *(_plain(cell) for cell in cells)])
            columns += [[f"{name} {key}", *(_plain(cell, key) for cell in cells)] for key in more]
        buffer = io.StringIO()
        lines = zip(*columns, strict=True) if self.rows else [self.header]
        csv.writer(buffer, lineterminator="\n").writerows(lines)
        return buffer.getvalue().rstrip("\n")

    def _cells(self) -> list[list[str]]:
        return [[str(cell) for cell in row] for row in self.rows]

    def _numeric(self) -> list[bool]:
        """Whether a column holds numbers, and is not empty."""
        numeric = []
        for column in range(len(self.header)):
            cells = [row[column] for row in self.rows]
            numbers = all(isinstance(cell, Number) or _NUMBER.fullmatch(cell) for cell in cells)
            numeric.append(numbers and any(str(cell) for cell in cells))
        return numeric


def to_html(text: str) -> str:
    """Escaped, with what stands in backticks as code."""
    parts = _CODE.split(text)
    for i, part in enumerate(parts):
        escaped = html.escape(part)
        parts[i] = f"<code>{escaped}</code>" if i % 2 else _WORD.sub(lambda word: _MATHS[word[0]][1], escaped)
    return "".join(parts)


def to_latex(text: str) -> str:
    """Escaped, with mathematical words as formulas."""
    parts = _WORD.split(text)
    return "".join(
        _MATHS[part][0] if i % 2 else "".join(_LATEX.get(character, character) for character in part)
        for i, part in enumerate(parts)
    )


def _plain(cell: Cell, key: str = "") -> str:
    """A cell, or a number that belongs to it, in full."""
    if isinstance(cell, str):
        return "" if key else cell
    number = cell.more.get(key, math.nan) if key else cell.value
    return "" if math.isnan(number) else repr(number)


# Endings of the files in which a table is saved, by the name of its format, which is that of a method.
ENDINGS = {"text": "txt", "markdown": "md", "latex": "tex", "csv": "csv"}
FORMATS: dict[str, Callable[[Table], str]] = {form: getattr(Table, form) for form in ENDINGS}
