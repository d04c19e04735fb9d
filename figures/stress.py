"""Errors predicted where the shift is no corruption, by lines fitted to corruptions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from deep.comparison.stress import predictions
from figures.headings import about_run
from figures.report import Report, of_figure
from figures.style import CYCLE, TRUTH, Figure, panels, plot
from figures.table import Cell, Number, Table
from projnorm.core.records import Record
from projnorm.core.statistics import Line

CAPTION = (
    "Predicted against true error, one panel per method. Circles: the targets of the run, to which each method's line "
    "from score to error was fitted. Squares: sets of another kind, on which the line is used as it is; the first and "
    "the last of the table are numbered. On the diagonal the prediction is right; a line may leave 0 to 100 %, and "
    "predictions below -25 % or above 125 % are drawn at the edge. ProjNorm depends on the number of images, so it is "
    "biased on a set that has fewer than the targets of the run."
)
# Predictions beyond these are drawn at the edge.
_LOWEST, _HIGHEST = -25.0, 125.0
# Hypotheses about the shift that outputs can refute.
_HYPOTHESES = {"no_shift_p": "p of no shift", "class_shares_p": "p of class shares"}
_TITLES = {"deep-adversarial": "Errors under attack", "deep-label-shift": "Errors under label shift"}


def show(record: Record, _folder: Path) -> Report:
    """Errors under attack, or under label shift."""
    arrays, methods = record.arrays, predictions(record)
    drawing = replace(draw.later(record, about_run(record)), title=_TITLES[record.kind])
    return of_figure(
        record,
        record.kind.removeprefix("deep-").replace("-", "_"),
        drawing,
        build(record),
        values={
            **{key: arrays[key].tolist() for key in ("sets", "sizes", "errors")},
            "farthest": arrays["farthest"].tolist() if np.isfinite(arrays["farthest"]).all() else None,
            "predicted": {method.method: method.predicted.tolist() for method in methods},
            "scores": dict(zip(arrays["methods"].tolist(), arrays["scores"].T.tolist(), strict=True)),
            "mse": {method.method: method.mse for method in methods},
            **{key: arrays[key].tolist() for key in _HYPOTHESES},
        },
    )


def build(record: Record) -> Table:
    """One row per set: true error and predictions in percent, p-values; then the mean squared error of each method."""
    arrays, methods = record.arrays, predictions(record)
    percents = 100 * np.stack([arrays["errors"], *(method.predicted for method in methods)], axis=1)
    p_values = np.stack([arrays[key] for key in _HYPOTHESES], axis=1)
    columns = (arrays["sets"].tolist(), arrays["sizes"].tolist(), percents.tolist(), p_values.tolist())
    rows: list[tuple[Cell, ...]] = [
        (name, Number(size, ",d"), *(Number(percent, ".1f") for percent in line), *(Number(p, ".2g") for p in ps))
        for name, size, line, ps in zip(*columns, strict=True)
    ]
    mse: tuple[Cell, ...] = ("mean squared error", "", "", *(Number(method.mse, ".4f") for method in methods), "", "")
    names = (*(method.method for method in methods), *_HYPOTHESES.values())
    return Table(("set", "images", "true error (%)", *names), [*rows, mse])


@plot("Errors under a shift that is no corruption", CAPTION)
def draw(figure: Figure, record: Record, heading: str = "") -> None:
    """One panel per method."""
    arrays, methods = record.arrays, predictions(record)
    figure.suptitle(heading)
    figure.supxlabel("true error (%)")
    figure.supylabel("predicted error (%)")
    columns = list(zip(methods, arrays["run_scores"].T, strict=True))
    grid = panels(figure, columns, size=(2.3, 2.2), margin=(1.8, 0.5), sharex=True, sharey=True)
    for axes, (method, scores) in grid:
        axes.axline((0, 0), slope=1, color=TRUTH, lw=0.8, ls="--", label="prediction is right")
        axes.set_title(f"{method.method}: MSE {method.mse:.3f}", fontsize=8)
        if np.isnan(method.predicted).any():  # a constant score has no line
            continue
        fitted = np.clip(100 * Line.fitted(scores, arrays["run_errors"]).predict(scores), _LOWEST, _HIGHEST)
        true, predicted = 100 * arrays["errors"], np.clip(100 * method.predicted, _LOWEST, _HIGHEST)
        style: dict[str, Any] = {"s": 8, "color": CYCLE[0], "alpha": 0.5, "linewidths": 0}
        axes.scatter(100 * arrays["run_errors"], fitted, label="targets of the run", **style)
        axes.scatter(true, predicted, s=16, marker="s", color=CYCLE[1], label="sets of this kind")
        for number in {1, len(predicted)}:
            point = (true[number - 1], predicted[number - 1])
            axes.annotate(str(number), point, xytext=(3, 3), textcoords="offset points", fontsize=6)
    axes.set(xlim=(-3, 103), ylim=(_LOWEST - 5, _HIGHEST + 5))
    keys = max((axes.get_legend_handles_labels() for axes, _ in grid), key=lambda pair: len(pair[0]))
    figure.legend(*keys, loc="outside right upper", fontsize=7)
