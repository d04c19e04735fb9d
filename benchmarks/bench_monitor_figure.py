"""Two real orders with the evidence over time, false alarms and delays, from the record of `bench_monitor.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.ticker import FuncFormatter

from benchmarks.bench_monitor_sets import RISEN_WEEKS, USUAL
from benchmarks.bench_monitor_summary import NANNYML
from benchmarks.bench_monitor_years import ALARMS, ALL_LABELS, ESTIMATES, FEW_LABELS
from figures.style import CYCLE, OTHERS, TRUTH, Axes, Figure, plot

CAPTION = (
    "Above: two sets in their real order, batches of 500 rows: the true error, estimates without labels, and the "
    "threshold, two points above the source; below them the evidence that the error was ever above it, cut off at "
    "1,000, with alarms where it reaches the lines. Bottom left: share of stable years with an alarm where the "
    "threshold is the true error, with standard errors. Bottom right: weeks from a rise to the alarm, with the "
    "threshold a point above the error before it: the median, with a line up to the 90th percentile."
)
_LOOKS = {
    ESTIMATES: (CYCLE[0], "o"),
    FEW_LABELS: (CYCLE[1], "s"),
    ALL_LABELS: (TRUTH, "^"),
    NANNYML: (CYCLE[3], "X"),
}
# Evidence beyond these is drawn as they, as powers of ten.
_LEAST, _MOST = -2.0, 3.0
_APART = 0.13


@plot("Alarms of a monitor", CAPTION, width=7.2, height=7.4)
def draw(figure: Figure, record: dict[str, Any]) -> None:
    """Three rows of two panels."""
    grid = figure.subplots(3, 2, height_ratios=(1.15, 0.85, 1.2))
    drawn = [name for name, row in record["real_order"].items() if "by_batch" in row]
    for column, name in enumerate(drawn):
        row = record["real_order"][name]
        grid[1, column].sharex(grid[0, column])
        _errors(grid[0, column], name, row)
        _evidence(grid[1, column], row, record["alpha"])
    grid[0, 0].legend(fontsize=7, loc="upper left")
    _false_alarms(grid[2, 0], record)
    _delays(grid[2, 1], record)
    handles, labels = grid[2, 1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=7)


def _errors(axes: Axes, name: str, row: dict[str, Any]) -> None:
    series, threshold = row["by_batch"], row["alarms"][0]["threshold"]
    batch = np.arange(1, row["batches"] + 1)
    axes.plot(batch, 100 * np.array(series["true_error"]), ".", color="0.45", ms=3, label="true error")
    axes.plot(batch, 100 * np.array(series["estimate"]), color=CYCLE[0], lw=1.2, label="estimate, no labels")
    axes.plot(batch, 100 * np.array(series["nannyml"]), color=CYCLE[3], lw=0.9, ls="--", label=NANNYML)
    axes.axhline(100 * threshold, color=TRUTH, lw=0.9, ls=":", label="threshold")
    axes.set_title(name)
    axes.set_ylabel("error (%)")
    axes.set_ylim(bottom=0)


def _evidence(axes: Axes, row: dict[str, Any], alpha: float) -> None:
    batch = np.arange(1, row["batches"] + 1)
    for alarm in ALARMS:
        values = np.clip(row["by_batch"][f"evidence, {alarm}"], _LEAST, _MOST)
        axes.plot(batch, values, color=_LOOKS[alarm][0], lw=1.1)
        if number := row["alarms"][0][alarm]:
            axes.plot(number, values[number - 1], _LOOKS[alarm][1], color=_LOOKS[alarm][0], ms=5)
    for level, style in ((alpha, "--"), (alpha / 2.0, ":")):
        axes.axhline(-np.log10(level), color="0.4", lw=0.8, ls=style)
    axes.set_xlabel("batch")
    axes.set_ylabel("evidence ($\\log_{10}$)")


def _false_alarms(axes: Axes, record: dict[str, Any]) -> None:
    rows = [row for row in record["false_alarms"] if row["source"] == USUAL]
    axes.axhline(100 * record["alpha"], color=TRUTH, lw=0.8, ls="--")
    for number, (method, (colour, marker)) in enumerate(_LOOKS.items()):
        bars = [row[NANNYML] if method == NANNYML else row["alarms"][0][method] for row in rows]
        shares, errors = (100 * np.array([bar[key] for bar in bars]) for key in ("share", "standard_error"))
        x = np.arange(len(rows)) + _APART * (number - (len(_LOOKS) - 1) / 2)
        axes.errorbar(x, shares, yerr=errors, fmt=marker, color=colour, ms=4.5, lw=0.9)
    axes.set_ylabel("years with a false alarm (%)")
    _sets(axes, [row["set"] for row in rows])


def _delays(axes: Axes, record: dict[str, Any]) -> None:
    never = RISEN_WEEKS + 2
    axes.axhline(never, color=OTHERS, lw=0.8)
    for number, (method, (colour, marker)) in enumerate(_LOOKS.items()):
        bars = [row[NANNYML] if method == NANNYML else row["alarms"][0][method] for row in record["delays"]]
        median, most = (np.array([bar[key] or never for bar in bars]) for key in ("median", "90th"))
        x = np.arange(len(bars)) + _APART * (number - (len(_LOOKS) - 1) / 2)
        reach = [np.zeros(len(bars)), most - median]
        axes.errorbar(x, median, yerr=reach, fmt=marker, color=colour, ms=4.5, lw=0.9, label=method)
    axes.set_ylabel("weeks to the alarm")
    axes.set_yticks([1, 5, 10, 15, 20, 25, never])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: "never" if value == never else f"{value:g}"))
    axes.set_ylim(0, never + 1)
    _sets(axes, [row["set"] for row in record["delays"]])


def _sets(axes: Axes, names: list[str]) -> None:
    axes.set_xticks(range(len(names)), names)
    axes.grid(visible=False, axis="x")
