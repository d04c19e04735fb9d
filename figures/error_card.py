"""An error estimate as a card: the answer, the picture of its calibration, and what every method says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from figures.page import page, section
from figures.report import Report
from figures.style import CYCLE, TRUTH, Axes, Figure, plot
from figures.table import Column, Number, Table, number
from projnorm.core.environment import current_environment
from projnorm.estimate.plot import draw_estimate
from projnorm.estimate.result import CalibrationSummary, ErrorEstimate

_CALIBRATED = (
    "Left: the error under each hypothesis (squares; empty if refuted) and by each method alone (circles: the methods "
    "that the estimate is made of). Right: the "
    "labelled shifted sets that it was calibrated on, each predicted from the other families only; the cross is the "
    "target at its estimate, the bar its interval."
)
_UNCALIBRATED = (
    "The error under each hypothesis (squares; empty if refuted) and by each method alone (circles: the methods that "
    "the estimate is made of)."
)


@plot("", _CALIBRATED)
def draw(figure: Figure, estimate: ErrorEstimate) -> None:
    """Methods, and beside them the calibration where there is one."""
    known = [method for method in estimate.methods if math.isfinite(method.error)]
    panels = 1 if estimate.calibration is None else 2
    figure.set_size_inches(3.4 * panels, max(2.4, 0.75 + 0.17 * len(known)))
    grid = figure.subplots(1, panels, squeeze=False)[0]
    draw_estimate(estimate, grid[0])
    if estimate.calibration is not None:
        _calibration(grid[1], estimate, estimate.calibration)
    figure.legend(loc="outside lower center", ncols=3, fontsize=7)


def build(estimate: ErrorEstimate) -> Table:
    """One row per method."""
    columns: dict[str, Column] = {
        "method": lambda method: method.method,
        "score": number("score", ".4g"),
        "error (%)": number("error", ".1f", 100),
        "MAE on families left out (points)": number("mae", ".1f", 100),
        "note": lambda method: method.note or ("in the estimate" if method.method in estimate.based_on else ""),
    }
    return Table.from_rows(estimate.methods, columns)


def build_metrics(estimate: ErrorEstimate) -> Table:
    """One row per metric, in percent."""
    columns: dict[str, Column] = {
        "metric": lambda metric: metric.name,
        "value (%)": lambda metric: Number.interval(100 * metric.value, 100 * metric.low, 100 * metric.high, ".1f"),
    }
    return Table.from_rows(estimate.metrics, columns)


def build_hypotheses(estimate: ErrorEstimate) -> Table:
    """One row per hypothesis about the shift."""
    columns: dict[str, Column] = {
        "what changed": lambda hypothesis: hypothesis.name,
        "error (%)": number("error", ".1f", 100),
        "p-value": number("p_value", ".2g"),
        "refuted": lambda hypothesis: "yes" if hypothesis.refuted else "no",
    }
    return Table.from_rows(estimate.hypotheses, columns)


def show(estimate: ErrorEstimate) -> Report:
    """The card: the answer first, then the picture and what every method says."""
    caption = _CALIBRATED
    if estimate.calibration is None:
        caption = f"{_UNCALIBRATED} The {estimate.kind} covers {estimate.covers}."
    return Report(
        [
            estimate.sentence,
            *(f"Warning: {warning}" for warning in estimate.warnings),
            *([build_hypotheses(estimate)] if estimate.hypotheses else []),
            *([build_metrics(estimate)] if estimate.metrics else []),
            build(estimate),
        ],
        {"error_card": replace(draw.later(estimate), caption=caption)},
        estimate.to_dict(),
        title=f"Error on {estimate.target}: {interval(estimate)}",
    )


def card(estimates: Sequence[ErrorEstimate], *, command: str, model: str, data: Mapping[str, str]) -> str:
    """The estimates, one for each target, as one HTML page that can be filed or sent.

    It says which command or call made them, of which model, and from which data by their use, such as "source".
    """
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return page(
        "Estimated error on " + "; ".join(f"{estimate.target}: {interval(estimate)}" for estimate in estimates),
        "The error to expect of a model on data without labels, how certain that is, and what it is based on.",
        [section(show(estimate)) for estimate in estimates],
        {"date": date, "command": command, "model": model, **data, **current_environment()},
    )


def interval(estimate: ErrorEstimate) -> str:
    """The answer in a few words."""
    error, low, high = (f"{100 * value:.1f} %" for value in (estimate.error, estimate.low, estimate.high))
    return f"{error}, {100 * estimate.level:g} % {estimate.kind} {low} to {high}"


def _calibration(axes: Axes, estimate: ErrorEstimate, calibration: CalibrationSummary) -> None:
    axes.axline((0, 0), slope=1, color=TRUTH, lw=0.8, ls="--", label="prediction is right")
    style: dict[str, Any] = {"s": 10, "color": CYCLE[1], "alpha": 0.7, "linewidths": 0}
    axes.scatter(100 * calibration.predicted, 100 * calibration.errors, label="labelled shifted sets", **style)
    error, low, high = 100 * estimate.error, 100 * estimate.low, 100 * estimate.high
    ends = [[error - low], [high - error]]
    axes.errorbar([error], [error], yerr=ends, fmt="x", color=CYCLE[0], capsize=3, ms=7, label="target")
    top = 100 * max(float(np.max(calibration.errors)), float(np.max(calibration.predicted)), estimate.high)
    limits = (-3, min(103.0, 1.05 * top + 3))
    axes.set(xlim=limits, ylim=limits, xlabel="predicted error (%)", ylabel="true error (%)")
    axes.set_title(f"{len(calibration.errors)} labelled shifted sets", fontsize=8)
