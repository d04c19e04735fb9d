"""How close sampled tangent features come to the exact kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from figures.report import Report
from figures.style import GENERALISED, PAPER, TRUTH, WIDTH, Axes, Figure, plot
from figures.table import Column, Table, number
from ntk.experiments.subsample import subsample_rows
from projnorm.core.records import Record

CAPTION = (
    "Relative error of the eigenvalues of the training kernel (left: median and largest over the index, mean over "
    "draws) and of ProjNormLinear (right: root mean square over targets and draws) when only some coordinates of the "
    "gradient are kept, as in the paper, or when it is projected at random. The dotted line falls like one over the "
    "square root of the number of features."
)
_STYLES = {"coordinates": ("coordinates", PAPER, "o"), "projection": ("projection", GENERALISED, "s")}
_COLUMNS: dict[str, Column] = {
    "features": lambda row: row["kind"],
    "number": number("count", ",d"),
    "eigenvalues, median error (%)": number("eigenvalue_median", ".2f", 100),
    "largest (%)": number("eigenvalue_largest", ".2f", 100),
    "ProjNormLinear, rms error (%)": number("projnorm_rms", ".2f", 100),
    "error, rms shift (points)": number("error_shift_rms", ".2f", 100),
}


def show(record: Record, _folder: Path) -> Report:
    """Sampled kernels beside the exact one."""
    rows = subsample_rows(record)
    table = Table.from_rows(rows, _COLUMNS)
    return Report(
        [table, CAPTION, f"Weights: {record.facts['weights']}."],
        {"ntk_subsample": draw.later(record)},
        {"rows": rows},
        title=draw.title,
        tables={"ntk_subsample": table},
        record=record,
    )


@plot("Sampled against exact kernels", CAPTION, WIDTH + 0.5, 3.3)
def draw(figure: Figure, record: Record) -> None:
    """Eigenvalues on the left, ProjNormLinear on the right, against the number of features."""
    errors = subsample_rows(record)
    left, right = figure.subplots(1, 2)
    for kind in dict.fromkeys(row["kind"] for row in errors):
        label, colour, marker = _STYLES[kind]
        rows = [row for row in errors if row["kind"] == kind]
        counts = [row["count"] for row in rows]
        style = {"marker": marker, "ms": 4, "color": colour}
        left.loglog(counts, [row["eigenvalue_median"] for row in rows], label=f"{label}, median", **style)
        left.loglog(counts, [row["eigenvalue_largest"] for row in rows], ls="--", label=f"{label}, largest", **style)
        right.loglog(counts, [row["projnorm_rms"] for row in rows], label=label, **style)
    for axes, what in ((left, "eigenvalues"), (right, "ProjNormLinear")):
        _root(axes)
        axes.set(xlabel="features (coordinates or width)", ylabel=f"relative error, {what}")
    right.legend(fontsize=7, loc="lower left")
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper left", ncols=2, fontsize=7)


def _root(axes: Axes) -> None:
    """A slope of one half through the first point drawn."""
    x, y = axes.lines[0].get_data()
    x, y = np.asarray(x, float), np.asarray(y, float)
    axes.loglog(x, y[0] * np.sqrt(x[0] / x), ":", color=TRUTH, lw=0.8, label=r"$1/\sqrt{\mathrm{number}}$")
