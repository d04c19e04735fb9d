"""A cost report as tables and sentences."""

from __future__ import annotations

from typing import Any

from figures.report import Report
from figures.table import Table
from projnorm.core.costs import CostReport


def show(report: CostReport) -> Report:
    """Parts of the work, sentences on the whole, hours on several numbers of devices, and what they rest on."""
    columns = list(dict.fromkeys(column for part in report.parts for column in part))
    parts = Table(columns, [[_cell(part.get(column, "")) for column in columns] for part in report.parts])
    samples = list(dict.fromkeys(name for row in report.devices for name in row.samples))
    header = ("devices", "tasks", *(f"samples {name}" for name in samples), "TFLOP", "GB a device", "hours")
    rows = [
        (
            f"{row.devices}",
            f"{row.tasks:,}",
            *(f"{row.samples.get(name, 0):,}" for name in samples),
            f"{row.flops / 1e12:,.3g}",
            f"{row.device_bytes / 1e9:.2f}",
            f"{row.hours:.3g}",
        )
        for row in report.devices
    ]
    notes = "".join(f"Note: {note}.\n" for note in report.notes)
    blocks: list[str | Table] = [parts, "\n".join(report.summary), Table(header, rows), f"{notes}{report.assumptions}"]
    return Report(blocks, values=report.to_dict(), title="Estimated cost")


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
