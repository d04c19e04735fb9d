"""One estimate as a card: the picture of its calibration, what every method says, and what it rests on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from deep.predict.answer import ErrorEstimate, Grounds
from figures.report import Section
from figures.style import CYCLE, TRUTH, drawing
from figures.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CALIBRATED = (
    "Left: errors predicted by each method alone; the band is the estimate's interval, circles are the methods it "
    "rests on. Right: the labelled shifted sets it was calibrated on, each predicted by what was learnt from the other "
    "families; the cross is the target at its estimate."
)
_UNCALIBRATED = (
    "Errors predicted by each method alone; the band is the estimate's interval, which covers sampling noise only, "
    "circles are the methods it rests on."
)


def draw(estimate: ErrorEstimate) -> Figure:
    """Methods, and beside them the calibration where there is one."""
    known = [one for one in estimate.methods if math.isfinite(one.error)]
    panels = 1 if estimate.grounds is None else 2
    with drawing(3.4 * panels, max(2.4, 0.75 + 0.17 * len(known))) as figure:
        grid = figure.subplots(1, panels, squeeze=False)[0]
        _methods(grid[0], estimate)
        if estimate.grounds is not None:
            _calibration(grid[1], estimate, estimate.grounds)
    return figure


def build(estimate: ErrorEstimate) -> Table:
    """One row per method."""
    rows = [
        (
            one.method,
            _number(one.score, "{:.4g}"),
            _number(100 * one.error, "{:.1f} %"),
            _number(100 * one.mae, "{:.1f}"),
            one.note or ("in the estimate" if one.method in estimate.rests_on else ""),
        )
        for one in estimate.methods
    ]
    return Table(("method", "score", "error", "MAE on families left out", ""), rows)


def section(estimate: ErrorEstimate) -> Section:
    """The card as a part of a page."""
    caption = _UNCALIBRATED if estimate.grounds is None else _CALIBRATED
    return Section(
        f"Error on {estimate.target}",
        " ".join([estimate.sentence, *estimate.warnings]),
        draw(estimate),
        build(estimate),
        caption,
    )


def values(estimate: ErrorEstimate, threshold: float | None) -> dict[str, object]:
    """The same as plain numbers."""
    grounds = estimate.grounds
    return {
        "target": estimate.target,
        "m": estimate.m,
        "error": estimate.error,
        "interval": [estimate.low, estimate.high],
        "level": estimate.level,
        "covers": "sampling" if grounds is None else "sampling and shifts like those of the calibration",
        "rests_on": list(estimate.rests_on),
        "source_error": estimate.source_error,
        "n_source": estimate.n_source,
        "sentence": estimate.sentence,
        "warnings": list(estimate.warnings),
        "threshold": threshold,
        "probability_above": None if threshold is None else estimate.probability_above(threshold),
        "methods": [
            {"method": one.method, "score": one.score, "error": one.error, "mae": one.mae, "note": one.note}
            for one in estimate.methods
        ],
        "calibration": None
        if grounds is None
        else {
            "origin": grounds.origin,
            "sets": list(grounds.names),
            "families": grounds.families.tolist(),
            "errors": grounds.errors.tolist(),
            "predicted": grounds.predicted.tolist(),
            "mae": grounds.mae,
            "coverage": [grounds.coverage.share.value, grounds.coverage.share.low, grounds.coverage.share.high],
            "median_width": grounds.coverage.width,
        },
    }


def _methods(axes: Axes, estimate: ErrorEstimate) -> None:
    known = [one for one in estimate.methods if math.isfinite(one.error)]
    axes.axvspan(100 * estimate.low, 100 * estimate.high, color=CYCLE[0], alpha=0.18, lw=0)
    axes.axvline(100 * estimate.error, color=CYCLE[0], lw=1.2)
    axes.axvline(100 * estimate.source_error, color=TRUTH, lw=0.8, ls=":")
    for place, one in enumerate(known):
        member = one.method in estimate.rests_on
        axes.plot(100 * one.error, place, "o" if member else "|", color=CYCLE[0] if member else TRUTH, ms=5)
    axes.set_yticks(range(len(known)), [one.method for one in known], fontsize=6.5)
    axes.invert_yaxis()
    axes.set_xlabel("error (%); dotted: on the source")
    axes.set_title(f"{100 * estimate.error:.1f} %, {100 * estimate.level:g} % interval", fontsize=8)


def _calibration(axes: Axes, estimate: ErrorEstimate, grounds: Grounds) -> None:
    axes.axline((0, 0), slope=1, color=TRUTH, lw=0.8, ls="--")
    axes.scatter(100 * grounds.predicted, 100 * grounds.errors, s=10, color=CYCLE[1], alpha=0.7, linewidths=0)
    axes.errorbar(
        [100 * estimate.error],
        [100 * estimate.error],
        yerr=[[100 * (estimate.error - estimate.low)], [100 * (estimate.high - estimate.error)]],
        fmt="x",
        color=CYCLE[0],
        capsize=3,
        ms=7,
    )
    top = 100 * max(float(np.max(grounds.errors)), float(np.max(grounds.predicted)), estimate.high)
    axes.set_xlim(-3, min(103.0, 1.05 * top + 3))
    axes.set_ylim(-3, min(103.0, 1.05 * top + 3))
    axes.set_xlabel("predicted error (%)")
    axes.set_ylabel("true error (%)")
    axes.set_title(f"{len(grounds.errors)} labelled shifted sets", fontsize=8)


def _number(value: float, form: str) -> str:
    return form.format(value) if math.isfinite(value) else ""
