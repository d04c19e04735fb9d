"""The leaderboard of the benchmark of real shifts, and the default's estimates against the truth by kind of shift."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path

import numpy as np

from benchmarks.shifts.evaluate import OUTPUTS_ONLY, WITH_MODEL
from benchmarks.shifts.leaderboard import Standing, standings
from benchmarks.shifts.problems import KINDS
from benchmarks.shifts.suites import CONFIDENCES, OUTPUTS, PREDICTED
from figures.report import Report
from figures.style import CYCLE, TRUTH, Axes, Figure, panels, plot
from figures.table import Cell, Column, Number, Table, number
from projnorm.core.records import Record

CAPTION = (
    "Mean absolute error (MAE, in points): the mean over cases of the mean over a case's targets, so that a case with "
    "many targets counts no more than one with few. 'default there' is the MAE of the default with outputs only on the "
    "targets that a row was run on, and the order is by the ratio of the two. 'worst case' is the largest MAE of a "
    "case, 'worst miss' the largest error on one target. Coverage is the mean over cases of the share of targets whose "
    "interval holds the true error, and width the median. 'warned' is the share of intervals that miss, and of those "
    "that hold, which carry a warning."
)
FIGURE_CAPTION = (
    "Estimated against true error of every target, by kind of shift, with the intervals of the default; on the line "
    "the two are equal."
)
_LOOKS = {OUTPUTS_ONLY: (CYCLE[1], "o"), WITH_MODEL: (CYCLE[0], "s")}
_OTHER_TABLES = {
    CONFIDENCES: "Where only confidences are known (satellite pictures, no logits):",
    PREDICTED: "Where only predicted classes of many networks are known (CIFAR-10.1 and ImageNetV2):",
}


def show(record: Record, _folder: Path) -> Report:
    """The leaderboard, the same by kind of shift and by suite, the two small tables, and the figure."""
    leaderboard = build(standings(record))
    blocks: list[str | Table] = []
    tables, figures = {}, {}
    if leaderboard.rows:
        tables["leaderboard"] = leaderboard
        tables["leaderboard_by_kind"] = by_group(record, "kinds")
        tables["leaderboard_by_suite"] = by_group(record, "suites")
        tables["leaderboard_by_case"] = by_group(record, "cases")
        blocks += [leaderboard, CAPTION, "MAE in points by kind of shift:", tables["leaderboard_by_kind"]]
        blocks += ["MAE in points by suite (by case in the file leaderboard_by_case):", tables["leaderboard_by_suite"]]
        figures["benchmark"] = draw.later(record)
    for table, heading in _OTHER_TABLES.items():
        if rows := standings(record, table=table):
            tables[f"leaderboard_{table.replace(' ', '_')}"] = build(rows)
            blocks += [heading, build(rows)]
    if failures := _failures(record):
        blocks.append(failures)
    values = {
        table: [asdict(standing) for standing in standings(record, table=table)] for table in (OUTPUTS, *_OTHER_TABLES)
    }
    return Report(blocks, figures, values, title="The benchmark of real shifts", tables=tables, record=record)


def build(rows: list[Standing]) -> Table:
    """One row for each row of the leaderboard."""
    columns: dict[str, Column] = {
        "row": lambda standing: standing.row,
        "cases": number("cases", ",d"),
        "targets": number("targets", ",d"),
        "MAE": number("mae", ".2f", 100),
        "default there": number("default_mae", ".2f", 100),
        "worst case": number("worst_mae", ".1f", 100),
        "which": lambda standing: standing.worst_case,
        "worst miss": number("worst_miss", ".1f", 100),
        "coverage": number("coverage", ".2f"),
        "width": number("width", ".1f", 100),
        "misses warned": number("warned_misses", ".2f"),
        "hits warned": number("warned_hits", ".2f"),
        "seconds": number("seconds", ".2g"),
    }
    return Table.from_rows(rows, columns)


def by_group(record: Record, key: str) -> Table:
    """A line for each kind of shift, suite or case: the MAE of every row, and the coverage of the default."""
    of_table = record.arrays["tables"] == OUTPUTS
    present = dict.fromkeys(record.arrays[key][of_table].tolist())
    groups = [kind for kind in KINDS if kind in present] if key == "kinds" else list(present)
    rows = [standing.row for standing in standings(record)]
    defaults = [row for row in _LOOKS if row in rows]
    lines: list[list[Cell]] = []
    for group in groups:
        by_row = {standing.row: standing for standing in standings(record, **{key.removesuffix("s"): group})}
        errors = [Number(100 * by_row[row].mae if row in by_row else math.nan, ".2f") for row in rows]
        coverages = [Number(by_row[row].coverage if row in by_row else math.nan, ".2f") for row in defaults]
        lines.append([group, *errors, *coverages])
    return Table((key.removesuffix("s"), *rows, *(f"coverage of {row}" for row in defaults)), lines)


@plot("Estimated against true errors", FIGURE_CAPTION)
def draw(figure: Figure, record: Record) -> None:
    """A panel for each kind of shift, the default in both modes."""
    arrays = record.arrays
    chosen = arrays["tables"] == OUTPUTS
    kinds = [kind for kind in KINDS if (chosen & (arrays["kinds"] == kind)).any()]
    grid = panels(figure, kinds, size=(2.3, 2.2), margin=(0.4, 0.7))
    for axes, kind in grid:
        _panel(axes, record, chosen & (arrays["kinds"] == kind))
        axes.set_title(f"{kind} ({int((chosen & (arrays['kinds'] == kind)).sum())} targets)")
    figure.supxlabel("true error (%)")
    figure.supylabel("estimated error (%)")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))


def _panel(axes: Axes, record: Record, chosen: np.ndarray) -> None:
    arrays, rows = record.arrays, record.arrays["rows"].tolist()
    truth = 100 * arrays["truth"][chosen]
    highest = truth.max()
    for row, (colour, mark) in _LOOKS.items():
        column = rows.index(row)
        estimates, low, high = (100 * arrays[key][chosen, column] for key in ("estimates", "low", "high"))
        if not np.isfinite(estimates).any():
            continue
        axes.vlines(truth, low, high, color=colour, lw=0.6, alpha=0.35)
        axes.plot(truth, estimates, mark, color=colour, ms=2.5, mew=0, alpha=0.8, label=row)
        highest = max(highest, np.nanmax(estimates))
    limit = 1.08 * highest
    axes.plot([0, limit], [0, limit], color=TRUTH, lw=0.8, zorder=0)
    axes.set(xlim=(0, limit), ylim=(0, limit))


def _failures(record: Record) -> str:
    """Rows that failed, with the first reason of each."""
    reasons: dict[str, list[str]] = {}
    for case, failures in record.facts["failures"].items():
        for row, reason in failures.items():
            reasons.setdefault(row, []).append(f"{case}: {reason}")
    lines = [f"{row} failed on {len(cases)} cases, such as {cases[0]}" for row, cases in reasons.items()]
    return "\n".join(lines)
