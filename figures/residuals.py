"""Correlation of the residuals of each pair of methods, as a heat map."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deep.residuals import Residuals
from figures.style import drawing
from figures.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "What the methods get wrong together"
CAPTION = (
    "Error regressed on each score with a straight line; correlation of what is left, for each pair of methods, with "
    "95 % intervals from bootstrap draws of whole families. Near 1: two methods err alike and adding one to the other "
    "gains little. In the paper (CIFAR-100, ResNet18) the others were above 0.6 among themselves and below 0.05 with "
    "ProjNorm."
)
_DARK = 0.6


def draw(found: Residuals, *, heading: str = "") -> Figure:
    """One cell per pair, below the diagonal."""
    count = len(found.methods)
    with drawing(1.5 + 0.85 * count, 0.9 + 0.6 * count) as figure:
        axes = figure.subplots()
        shown = np.where(np.tri(count, k=-1, dtype=bool), found.correlation, np.nan)[1:, :-1]
        image = axes.imshow(shown, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
        for row in range(1, count):
            for column in range(row):
                value = found.correlation[row, column]
                axes.text(
                    column,
                    row - 1,
                    _cell(found, row, column, "\n"),
                    ha="center",
                    va="center",
                    fontsize=7,
                    color="white" if abs(value) > _DARK else "black",
                )
        axes.set_xticks(range(count - 1), found.methods[:-1], rotation=30, ha="right")
        axes.set_yticks(range(count - 1), found.methods[1:])
        axes.grid(visible=False)
        figure.colorbar(image, ax=axes, label="correlation of residuals")
        figure.suptitle(heading, fontsize=7)
    return figure


def build(found: Residuals) -> Table:
    """The same numbers, a row a method."""
    rows = [
        (method, *(_cell(found, row, column, " ") if column < row else "" for column in range(row + 1)))
        for row, method in enumerate(found.methods)
    ]
    width = len(found.methods)
    return Table(("method", *found.methods[:-1]), [(*row[:width], *[""] * (width - len(row))) for row in rows[1:]])


def values(found: Residuals) -> dict[str, object]:
    """As plain numbers."""
    return {
        "methods": list(found.methods),
        "correlation": found.correlation.tolist(),
        "low": found.low.tolist(),
        "high": found.high.tolist(),
    }


def _cell(found: Residuals, row: int, column: int, between: str) -> str:
    value, low, high = (part[row, column] for part in (found.correlation, found.low, found.high))
    return f"{value:.2f}" if np.isnan(low) else f"{value:.2f}{between}[{low:.2f}, {high:.2f}]"
