"""A small table that prints aligned in a terminal, renders in the page, and goes into a document or a spreadsheet."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    character: f"\\{character}" for character in "&%$#_{}"
}


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under a header."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def text(self) -> str:
        """Aligned columns with a rule under the header."""
        lines = [self.header, *self.rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.header))]
        shown = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines]
        return "\n".join([shown[0], "-" * max(map(len, shown)), *shown[1:]])

    def html(self) -> str:
        """An HTML table that scrolls sideways where it must."""
        header = "".join(f"<th>{html.escape(cell)}</th>" for cell in self.header)
        rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self.rows)
        return f'<div class="scroll"><table><thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table></div>'

    def markdown(self) -> str:
        """A table of Markdown."""
        lines = [self.header, ["---"] * len(self.header), *self.rows]
        return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)

    def latex(self) -> str:
        """A tabular with the rules of booktabs."""
        header, *rows = (
            " & ".join("".join(_LATEX.get(c, c) for c in cell) for cell in line) for line in (self.header, *self.rows)
        )
        body = "\n".join(f"{row} \\\\" for row in rows)
        lines = [f"\\begin{{tabular}}{{{'l' * len(self.header)}}}", "\\toprule", f"{header} \\\\", "\\midrule", body]
        return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"])

    def csv(self) -> str:
        """Comma-separated values."""
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows([self.header, *self.rows])
        return buffer.getvalue().rstrip("\n")


FORMATS = {
    "text": Table.text,
    "markdown": Table.markdown,
    "latex": Table.latex,
    "csv": Table.csv,
}


def form_named(form: str) -> Callable[[Table], str]:
    """What writes a table in a form, by its name.

    Raises:
        ValueError: If there is none of this name.
    """
    if form not in FORMATS:
        raise ValueError(f"`format` must be one of {', '.join(FORMATS)}; got {form!r}.")
    return FORMATS[form]
