"""The error of a model over batches, with the evidence that it rose above a threshold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from figures.page import page, section
from figures.report import Report
from figures.style import CYCLE, TRUTH, Axes, Figure, plot
from figures.table import Column, Number, Table, number
from projnorm.core.environment import current_environment
from projnorm.monitor.batch_report import BatchReport
from projnorm.monitor.monitor import Monitor

_CAPTION = (
    "Above: the estimated error of each batch with its interval, and what labels of a batch say where there are any; "
    "the dashed line is the threshold of the alarm. Below: the evidence that the error was ever above it, from the "
    "estimates and from labels alone, cut off at a million; an alarm is raised where it reaches the dotted line."
)
_DATES = 12
_MANY = 200
_SHOWN_ROWS = 60
# Larger evidence is drawn as this, as a power of ten.
_MOST_EVIDENCE = 6.0


@plot("Error over time", _CAPTION, 6.8, 4.4)
def draw(figure: Figure, monitor: Monitor) -> None:
    """Errors above, evidence below."""
    reports = monitor.reports
    errors, evidence = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    _errors(errors, reports, monitor)
    _evidence(evidence, reports, monitor)
    step = max(1, -(-len(reports) // _DATES))
    places = range(0, len(reports), step)
    evidence.set_xticks(list(places), [reports[i].time or reports[i].name for i in places], rotation=30, ha="right")
    evidence.tick_params(axis="x", labelsize=7)
    figure.legend(loc="outside upper center", ncols=4, fontsize=7)


def build(reports: Sequence[BatchReport]) -> Table:
    """One row per batch."""

    def labelled(one: BatchReport) -> Number:
        return Number.interval(100 * one.labelled_error, 100 * one.labelled_low, 100 * one.labelled_high, ".1f")

    columns: dict[str, Column] = {
        "batch": lambda one: one.name,
        "samples": number("m", ",.0f"),
        "error (%)": lambda one: Number.interval(100 * one.error, 100 * one.low, 100 * one.high, ".1f"),
        "labels": number("labels", ",.0f"),
        "by labels (%)": labelled,
        "alarm": lambda one: ", ".join(
            name for name, on in (("estimates", one.is_alarm), ("labels", one.is_labelled_alarm)) if on
        ),
        "warnings": lambda one: str(len(one.warnings) or ""),
    }
    return Table.from_rows(reports, columns)


def report_page(monitor: Monitor, *, command: str) -> str:
    """The timeline as one HTML page: the picture, and the last batches as a table."""
    reports = monitor.reports
    last = reports[-1]
    state = "an alarm is raised" if monitor.has_alarm else "no alarm"
    verdict = (
        f"{state.capitalize()} (threshold {monitor.threshold:.1%}, alpha {monitor.alpha:g}). Last of "
        f"{len(reports):,} batches: {last}."
    )
    blocks: list[str | Table] = [
        f"Batches with warnings: {sum(bool(one.warnings) for one in reports):,}.",
        build(reports[-_SHOWN_ROWS:]),
    ]
    report = Report(blocks, {"timeline": draw.later(monitor)}, title="Error over time", verdict=verdict)
    return page(
        f"Model monitor: {state}",
        "The estimated error of each batch. The probability of ever raising a false alarm is at most alpha: for the "
        "alarm from estimates if these are right up to sampling noise, for the alarm from labels whatever they are.",
        [section(report)],
        {"date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), "command": command, **current_environment()},
    )


def _errors(axes: Axes, reports: Sequence[BatchReport], monitor: Monitor) -> None:
    x = np.arange(len(reports))
    error, low, high = (100 * np.array([getattr(one, name) for one in reports]) for name in ("error", "low", "high"))
    marker = "o" if len(reports) <= _MANY else ""
    axes.fill_between(x, low, high, color=CYCLE[0], alpha=0.18, lw=0, label="interval")
    axes.plot(x, error, color=CYCLE[0], lw=1, marker=marker, ms=2.5, label="estimate without labels")
    known = [i for i, one in enumerate(reports) if one.labels]
    if known:
        y = np.array(
            [[100 * getattr(reports[i], f"labelled_{name}") for i in known] for name in ("low", "error", "high")]
        )
        ends = [y[1] - y[0], y[2] - y[1]]
        axes.errorbar(known, y[1], yerr=ends, fmt="s", color=CYCLE[1], ms=3, lw=0.8, capsize=1.5, label="from labels")
    axes.axhline(100 * monitor.threshold, color=TRUTH, lw=1, ls="--", label="threshold")
    axes.axhline(100 * monitor.estimator.source_error, color=TRUTH, lw=0.8, ls=":", label="error on the source")
    for one, colour, what in ((0, CYCLE[0], "is_alarm"), (1, CYCLE[1], "is_labelled_alarm")):
        for i in (i for i, report in enumerate(reports) if getattr(report, what)):
            axes.axvline(i, color=CYCLE[3], lw=1.2, ls=("-", "-.")[one])
            name = ("alarm", "alarm from labels")[one]
            axes.annotate(name, (i, axes.get_ylim()[1]), fontsize=7, color=colour, ha="right", va="top", rotation=90)
    axes.set_ylabel("error (%)")
    axes.set_ylim(bottom=0)


def _evidence(axes: Axes, reports: Sequence[BatchReport], monitor: Monitor) -> None:
    scale = 1.0 / math.log(10.0)

    def cut(values: Sequence[float]) -> list[float]:
        return [min(_MOST_EVIDENCE, scale * value) for value in values]

    known = [i for i, one in enumerate(reports) if one.labels]
    axes.plot(cut([one.log_evidence for one in reports]), color=CYCLE[0], lw=1)
    evidence = cut([reports[i].labelled_log_evidence for i in known])
    axes.plot(known, evidence, color=CYCLE[1], lw=1, marker="s", ms=2)
    axes.axhline(-scale * math.log(monitor.alpha / 2.0), color=CYCLE[0], lw=0.8, ls=":")
    if known:
        axes.axhline(-scale * math.log(monitor.alpha), color=CYCLE[1], lw=0.8, ls=":")
    axes.set_ylabel("evidence ($\\log_{10}$)")
    axes.set_xlabel("batch")
