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


def draw(residuals: Residuals, *, heading: str = "") -> Figure:
    """One cell per pair, below the diagonal."""
    count = len(residuals.methods)
    many = count > _SPACIOUS
    width, height = (0.4, 0.3) if many else (0.85, 0.6)
    with drawing(1.8 + width * count, 1.2 + height * count, heading=heading) as figure:
        axes = figure.subplots()
        shown = np.where(np.tri(count, k=-1, dtype=bool), residuals.correlation, np.nan)[1:, :-1]
        image = axes.imshow(shown, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
        for row in range(1, count):
            for column in range(row):
                cell = _cell(residuals, row, column)
                text = f"{cell.value:.2f}" if many else str(cell).replace(" [", "\n[")
                colour = "white" if abs(cell.value) > _DARK else "black"
                axes.text(column, row - 1, text, ha="center", va="center", fontsize=7, color=colour)
        axes.set_xticks(range(count - 1), residuals.methods[:-1], rotation=45 if many else 30, ha="right")
        axes.set_yticks(range(count - 1), residuals.methods[1:])
        axes.grid(visible=False)
        figure.colorbar(image, ax=axes, label="correlation of residuals")
    return figure


def build(residuals: Residuals) -> Table:
    """The same numbers, one row per method."""
    count = len(residuals.methods)
    rows: list[list[Cell]] = [
        [
            residuals.methods[row],
            *(_cell(residuals, row, column) if column < row else "" for column in range(count - 1)),
        ]
        for row in range(1, count)
    ]
    return Table(("method", *residuals.methods[:-1]), rows)


def values(residuals: Residuals) -> dict[str, object]:
    """The same as plain numbers."""
    return {
        "methods": list(residuals.methods),
        "correlation": residuals.correlation.tolist(),
        "low": residuals.low.tolist(),
        "high": residuals.high.tolist(),
    }


def _cell(residuals: Residuals, row: int, column: int) -> Number:
    value, low, high = (float(part[row, column]) for part in (residuals.correlation, residuals.low, residuals.high))
    return Number.interval(value, low, high, ".2f")
