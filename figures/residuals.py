"""Correlation of the residuals of each pair of methods, as a heat map."""

from __future__ import annotations

import numpy as np

from deep.residuals import Residuals
from figures.style import Figure, drawing
from figures.table import Cell, Number, Table

TITLE = "What the methods get wrong together"
CAPTION = (
    "The error is regressed on each score with a straight line; shown is the correlation of what is left, for each "
    "pair of methods. The table has 95 % intervals from bootstrap draws of whole families. Near 1, two methods err "
    "alike and adding one to the other gains little. In the paper (CIFAR-100, ResNet18) the other methods were above "
    "0.6 among themselves and below 0.05 with ProjNorm."
)
_DARK = 0.6
# More methods than this are drawn without their intervals, which are in the table.
_SPACIOUS = 10


def draw(found: Residuals, *, heading: str = "") -> Figure:
    """One cell per pair, below the diagonal."""
    count = len(found.methods)
    many = count > _SPACIOUS
    width, height = (0.4, 0.3) if many else (0.85, 0.6)
    with drawing(1.8 + width * count, 1.2 + height * count, heading=heading) as figure:
        axes = figure.subplots()
        shown = np.where(np.tri(count, k=-1, dtype=bool), found.correlation, np.nan)[1:, :-1]
        image = axes.imshow(shown, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
        for row in range(1, count):
            for column in range(row):
                text = str(_cell(found, row, column)).replace(" [", "\n[").partition("\n" if many else "\0")[0]
                colour = "white" if abs(found.correlation[row, column]) > _DARK else "black"
                axes.text(column, row - 1, text, ha="center", va="center", fontsize=7, color=colour)
        axes.set_xticks(range(count - 1), found.methods[:-1], rotation=45 if many else 30, ha="right")
        axes.set_yticks(range(count - 1), found.methods[1:])
        axes.grid(visible=False)
        figure.colorbar(image, ax=axes, label="correlation of residuals")
    return figure


def build(found: Residuals) -> Table:
    """The same numbers, a row a method."""
    count = len(found.methods)
    rows: list[list[Cell]] = [
        [found.methods[row], *(_cell(found, row, column) if column < row else "" for column in range(count - 1))]
        for row in range(1, count)
    ]
    return Table(("method", *found.methods[:-1]), rows)


def values(found: Residuals) -> dict[str, object]:
    """The same as plain numbers."""
    return {
        "methods": list(found.methods),
        "correlation": found.correlation.tolist(),
        "low": found.low.tolist(),
        "high": found.high.tolist(),
    }


def _cell(found: Residuals, row: int, column: int) -> Number:
    value, low, high = (float(part[row, column]) for part in (found.correlation, found.low, found.high))
    return Number.interval(value, low, high, ".2f")
