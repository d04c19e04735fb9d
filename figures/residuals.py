"""Correlation of the residuals of each pair of methods, as a heat map."""

from __future__ import annotations

import numpy as np

from deep.comparison.ensemble import ResidualCorrelations
from figures.style import Figure, plot
from figures.table import Cell, Number, Table

CAPTION = (
    "The error is regressed on each score with a straight line; shown is the correlation of what is left, for each "
    "pair of methods. The table has 95 % intervals from bootstrap draws of whole families. Near 1, two methods err "
    "alike and adding one to the other gains little. In the paper (CIFAR-100, ResNet18) the other methods were above "
    "0.6 among themselves and below 0.05 with ProjNorm."
)
# More methods than this are drawn without their intervals, which are in the table.
_SPACIOUS = 10


@plot("What the methods get wrong together", CAPTION)
def draw(figure: Figure, residuals: ResidualCorrelations, heading: str = "") -> None:
    """One cell per pair, below the diagonal."""
    import seaborn as sns

    count = len(residuals.methods)
    many = count > _SPACIOUS
    width, height = (0.4, 0.3) if many else (0.85, 0.6)
    cells = [[_cell(residuals, row, column) for column in range(count - 1)] for row in range(1, count)]
    texts = [[f"{cell.value:.2f}" if many else str(cell).replace(" [", "\n[") for cell in row] for row in cells]
    figure.set_size_inches(1.8 + width * count, 1.2 + height * count)
    figure.suptitle(heading)
    axes = sns.heatmap(
        residuals.correlation[1:, :-1],
        mask=~np.tri(count - 1, dtype=bool),
        annot=np.array(texts),
        fmt="",
        annot_kws={"fontsize": 7},
        vmin=-1.0,
        vmax=1.0,
        cmap="RdBu_r",
        xticklabels=residuals.methods[:-1],
        yticklabels=residuals.methods[1:],
        cbar_kws={"label": "correlation of residuals"},
        ax=figure.subplots(),
    )
    axes.tick_params(axis="x", rotation=90 if many else 30)
    axes.tick_params(axis="y", rotation=0)
    axes.grid(visible=False)


def build(residuals: ResidualCorrelations) -> Table:
    """The same numbers, one row per method."""
    methods = residuals.methods
    rows: list[list[Cell]] = [
        [method, *(_cell(residuals, row, column) if column < row else "" for column in range(len(methods) - 1))]
        for row, method in enumerate(methods)
    ]
    return Table(("method", *methods[:-1]), rows[1:])


def values(residuals: ResidualCorrelations) -> dict[str, object]:
    """The same as plain numbers."""
    matrices = {key: getattr(residuals, key).tolist() for key in ("correlation", "low", "high")}
    return {"methods": list(residuals.methods), **matrices}


def _cell(residuals: ResidualCorrelations, row: int, column: int) -> Number:
    value, low, high = (float(part[row, column]) for part in (residuals.correlation, residuals.low, residuals.high))
    return Number.interval(value, low, high, ".2f")
