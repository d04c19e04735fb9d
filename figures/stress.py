"""Errors predicted where the shift is no corruption, by lines fitted to corruptions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from deep.experiments.stress import predictions
from figures.style import CYCLE, TRUTH, drawing
from figures.table import Table
from projnorm.records import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ADVERSARIAL = "Errors under attack"
LABEL_SHIFT = "Errors under label shift"
CAPTION = (
    "Predicted against true error, one panel a method. Circles: the targets of the run, to which each method's line "
    "from score to error was fitted. Squares: sets of another kind, on which the line is used as it stands; the first "
    "and the last of the table are numbered. On the diagonal the prediction is right; it may leave 0 to 100 %. "
    "ProjNorm depends on the number of images: of a set with fewer than the targets of the run it is biased."
)
_COLUMNS = 3


def build(record: Record) -> Table:
    """One row per set: true error and predictions in percent; then the mean squared error of each method."""
    arrays, found = record.arrays, predictions(record)
    rows = [
        (str(name), f"{size:,}", f"{100 * error:.1f}", *(f"{100 * method.predicted[i]:.1f}" for method in found))
        for i, (name, size, error) in enumerate(zip(arrays["sets"], arrays["sizes"], arrays["errors"], strict=True))
    ]
    rows.append(("MSE", "", "", *(f"{method.mse:.4f}" for method in found)))
    return Table(("set", "images", "true error (%)", *(method.method for method in found)), rows)


def values(record: Record) -> dict[str, object]:
    """The same as plain numbers."""
    arrays = record.arrays
    return {
        "sets": arrays["sets"].tolist(),
        "sizes": arrays["sizes"].tolist(),
        "errors": arrays["errors"].tolist(),
        "farthest": arrays["farthest"].tolist() if np.isfinite(arrays["farthest"]).all() else None,
        "predicted": {method.method: method.predicted.tolist() for method in predictions(record)},
        "scores": dict(zip(arrays["methods"].tolist(), arrays["scores"].T.tolist(), strict=True)),
        "mse": {method.method: method.mse for method in predictions(record)},
    }


def draw(record: Record, *, heading: str = "") -> Figure:
    """One panel per method."""
    arrays, found = record.arrays, predictions(record)
    columns = min(_COLUMNS, len(found))
    rows = math.ceil(len(found) / columns)
    with drawing(2.4 * columns + 0.4, 2.3 * rows + 0.5) as figure:
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for axes, method, scores in zip(grid.flat, found, arrays["run_scores"].T, strict=False):
            axes.axline((0, 0), slope=1, color=TRUTH, lw=0.8, ls="--")
            axes.set_title(f"{method.method}: MSE {method.mse:.3f}", fontsize=8)
            if np.isnan(method.predicted).any():  # a constant score has no line
                continue
            fitted = np.polyval(np.polyfit(scores, arrays["run_errors"], 1), scores)
            axes.scatter(100 * arrays["run_errors"], 100 * fitted, s=8, color=CYCLE[0], alpha=0.5, linewidths=0)
            axes.scatter(100 * arrays["errors"], 100 * method.predicted, s=16, marker="s", color=CYCLE[1])
            for number in (1, len(method.predicted)):
                point = (100 * arrays["errors"][number - 1], 100 * method.predicted[number - 1])
                axes.annotate(str(number), point, xytext=(3, 3), textcoords="offset points", fontsize=6)
        for axes in grid.flat[len(found) :]:
            axes.set_axis_off()
        grid.flat[0].set_xlim(-3, 103)
        figure.supxlabel("true error (%)", fontsize=9)
        figure.supylabel("predicted error (%)", fontsize=9)
        figure.suptitle(heading, fontsize=7)
    return figure
