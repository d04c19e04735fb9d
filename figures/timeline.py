"""The error of a model over batches, with the evidence that it rose above a threshold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from figures.page import page, section
from figures.report import Report
from figures.style import CYCLE, Axes, Figure, plot
from figures.table import Column, Number, Table, number
from projnorm.core.environment import current_environment
from projnorm.core.formatting import percent
from projnorm.monitor.batch_report import BatchReport
from projnorm.monitor.monitor import Monitor
from projnorm.monitor.plot import plot_errors

_CAPTION = (
    "Above: the estimated error of each batch with its interval, and what labels of a batch say where there are any; "
    "the dashed line is the threshold of the alarm. Below: the evidence that the error was ever above it, from the "
    "estimates and from labels alone, cut off at a million; an alarm is raised where it reaches the dotted line."
)
_DATES = 12
_SHOWN_ROWS = 60
# Larger evidence is drawn as this, as a power of ten.
_MOST_EVIDENCE = 6.0


@plot("Error over time", _CAPTION, 6.8, 4.4)
def draw(figure: Figure, monitor: Monitor) -> None:
    """Errors above, evidence below."""
    reports = monitor.reports
    errors, evidence = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    plot_errors(
        errors,
        reports,
        threshold=monitor.threshold,
        source_error=monitor.estimator.source_error,
        colours=(CYCLE[0], CYCLE[1], CYCLE[3]),
    )
    _evidence(evidence, reports, monitor)
    step = max(1, -(-len(reports) // _DATES))
    places = range(0, len(reports), step)
    evidence.set_xticks(list(places), [reports[i].time or reports[i].name for i in places], rotation=30, ha="right")
    evidence.tick_params(axis="x", labelsize=7)
    figure.legend(loc="outside upper center", ncols=4, fontsize=7)


def build(reports: Sequence[BatchReport]) -> Table:
    """One row per batch."""

    def labelled(report: BatchReport) -> Number:
        ends = (100 * report.labelled_low, 100 * report.labelled_high)
        return Number.interval(100 * report.labelled_error, *ends, ".1f")

    columns: dict[str, Column] = {
        "batch": lambda report: report.name,
        "samples": number("m", ",.0f"),
        "error (%)": lambda report: Number.interval(100 * report.error, 100 * report.low, 100 * report.high, ".1f"),
        "labels": number("labels", ",.0f"),
        "by labels (%)": labelled,
        "alarm": lambda report: ", ".join(
            name for name, on in (("estimates", report.is_alarm), ("labels", report.is_labelled_alarm)) if on
        ),
        "warnings": lambda report: str(len(report.warnings) or ""),
    }
    return Table.from_rows(reports, columns)


def report_page(monitor: Monitor, *, command: str) -> str:
    """The timeline as one HTML page: the picture, and the last batches as a table."""
    reports = monitor.reports
    last = reports[-1]
    state = "an alarm is raised" if monitor.has_alarm else "no alarm"
    verdict = (
        f"{state.capitalize()} (threshold {percent(monitor.threshold)}, alpha {monitor.alpha:g}). Last of "
        f"{len(reports):,} batches: {last}."
    )
    blocks: list[str | Table] = [
        f"Batches with warnings: {sum(bool(report.warnings) for report in reports):,}.",
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


def _evidence(axes: Axes, reports: Sequence[BatchReport], monitor: Monitor) -> None:
    scale = 1.0 / math.log(10.0)

    def cut(values: Sequence[float]) -> list[float]:
        return [min(_MOST_EVIDENCE, scale * value) for value in values]

    known = [i for i, report in enumerate(reports) if report.labels]
    axes.plot(cut([report.log_evidence for report in reports]), color=CYCLE[0], lw=1)
    evidence = cut([reports[i].labelled_log_evidence for i in known])
    axes.plot(known, evidence, color=CYCLE[1], lw=1, marker="s", ms=2)
    axes.axhline(-scale * math.log(monitor.alpha / 2.0), color=CYCLE[0], lw=0.8, ls=":")
    if known:
        axes.axhline(-scale * math.log(monitor.alpha), color=CYCLE[1], lw=0.8, ls=":")
    axes.set_ylabel("evidence ($\\log_{10}$)")
    axes.set_xlabel("batch")
