"""Coverage of intervals from a few labels, and what a chosen label is worth, from the record of `few_labels.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.ticker import NullFormatter, NullLocator

from benchmarks.few_labels_draws import EXACT, GUARANTEED, POWER_TUNED, PPI, STRATIFIED, WALD
from figures.style import CYCLE, TRUTH, Axes, Figure, plot

CAPTION = (
    "Left: share of 90 % intervals that have the true error, mean over the sets, with a bar from the lowest to the "
    "highest set. Right: how many uniform labels one chosen label is worth, median over the targets of a set."
)
_LOOKS = {
    STRATIFIED: (CYCLE[0], "o"),
    GUARANTEED: (CYCLE[2], "s"),
    POWER_TUNED: (CYCLE[1], "^"),
    EXACT: ("0.35", "D"),
    WALD: (CYCLE[4], "v"),
    PPI: (CYCLE[3], "P"),
}
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<")
# Methods stand beside each other, this far apart on the logarithmic axis.
_APART = 1.045


@plot("Intervals from a few labels", CAPTION, width=7.2, height=3.6)
def draw(figure: Figure, record: dict[str, Any]) -> None:
    """Two panels."""
    left, right = figure.subplots(1, 2)
    budgets = sorted({row["labels"] for row in record["rows"]})
    _coverage(left, record, budgets)
    _worth(right, record, budgets)
    for axes in (left, right):
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(budgets, labels=[str(budget) for budget in budgets])
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("labels")


def _coverage(axes: Axes, record: dict[str, Any], budgets: list[int]) -> None:
    shown = [method for method in _LOOKS if method in record["rows"][0]["methods"]]
    axes.axhline(100 * record["level"], color=TRUTH, lw=0.8, ls="--")
    for number, method in enumerate(shown):
        of_sets = [
            [100 * row["methods"][method]["coverage"] for row in record["rows"] if row["labels"] == n] for n in budgets
        ]
        means = [float(np.mean(coverages)) for coverages in of_sets]
        reach = [[m - min(coverages) for m, coverages in zip(means, of_sets, strict=True)]]
        reach.append([max(coverages) - m for m, coverages in zip(means, of_sets, strict=True)])
        x = np.array(budgets) * _APART ** (number - (len(shown) - 1) / 2)
        colour, marker = _LOOKS[method]
        axes.errorbar(x, means, yerr=reach, fmt=marker, color=colour, ms=4, lw=0.9, label=method)
    axes.set_ylabel("coverage of 90 % intervals [%]")
    axes.legend(ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.18), fontsize=7)


def _worth(axes: Axes, record: dict[str, Any], budgets: list[int]) -> None:
    axes.axhline(1.0, color=TRUTH, lw=0.8, ls="--")
    for name, colour, marker in zip(record["sets"], CYCLE, _MARKERS, strict=False):
        for kind, style in ((STRATIFIED, "-"), (POWER_TUNED, ":")):
            values = [row["worth"][kind][0] for row in record["rows"] if row["set"] == name]
            label = name if kind == STRATIFIED else None
            axes.plot(budgets, values, style, color=colour, marker=marker, ms=4, lw=1.2, label=label)
    axes.plot([], [], ":", color="0.4", label="power-tuned")
    axes.set_ylabel("uniform labels that one label is worth")
    axes.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.18), fontsize=7)
