"""The plan of a run as tables and sentences: what it will compute, before anything is computed."""

from __future__ import annotations

from typing import Any

from figures.report import Report
from figures.table import Table
from projnorm.core.experiments import RunPlan


def show(plan: RunPlan) -> Report:
    """The parts of the work, the quantities of the whole run, and notes on them."""
    columns = list(dict.fromkeys(column for part in plan.parts for column in part))
    blocks: list[str | Table] = []
    if plan.parts:
        blocks.append(Table(columns, [[_cell(part.get(column, "")) for column in columns] for part in plan.parts]))
    blocks += [Table(("quantity", "value"), plan.rows), *(f"Note: {note}." for note in plan.notes)]
    values = {**plan.values, "parts": [dict(part) for part in plan.parts], "notes": list(plan.notes)}
    return Report(blocks, values=values, title="Plan of the run")


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
