"""How close sampled tangent features come to the exact kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from figures.style import GENERALISED, PAPER, TRUTH, WIDTH, drawing
from figures.table import Table
from projnorm.records import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Sampled against exact kernels"
CAPTION = (
    "Relative error of the eigenvalues of the training kernel (left: median and largest over the index, mean over "
    "draws) and of ProjNormLinear (right: root mean square over targets and draws) when only some "
    "coordinates of the gradient are kept, as in the paper, or when it is projected at random. The dotted line falls "
    "like one over the square root of the number."
)
_LOOKS = {"coordinates": ("coordinates", PAPER, "o"), "projection": ("projection", GENERALISED, "s")}


def draw(record: Record) -> Figure:
    """Eigenvalues on the left, ProjNormLinear on the right, against the number of features."""
    found = values(record)
    with drawing(WIDTH, 2.9) as figure:
        left, right = figure.subplots(1, 2)
        for kind in dict.fromkeys(row["kind"] for row in found):
            label, colour, marker = _LOOKS[kind]
            rows = [row for row in found if row["kind"] == kind]
            counts = [row["count"] for row in rows]
            look = {"marker": marker, "ms": 4, "color": colour}
            left.loglog(counts, [row["eigenvalue_median"] for row in rows], label=f"{label}, median", **look)
            left.loglog(counts, [row["eigenvalue_largest"] for row in rows], ls="--", label=f"{label}, largest", **look)
            right.loglog(counts, [row["projnorm_rms"] for row in rows], label=label, **look)
        for axes, what in ((left, "eigenvalues"), (right, "ProjNormLinear")):
            _root(axes)
            axes.set_xlabel("coordinates kept, or width")
            axes.set_ylabel(f"relative error, {what}")
            axes.legend(fontsize=6)
    return figure


def values(record: Record) -> list[dict[str, Any]]:
    """One row per kind and number of features."""
    arrays = record.arrays
    rows: list[dict[str, Any]] = []
    for kind in dict.fromkeys(arrays["kinds"].tolist()):
        for count in np.unique(arrays["counts"][arrays["kinds"] == kind]).tolist():
            draws = np.flatnonzero((arrays["kinds"] == kind) & (arrays["counts"] == count))
            eigenvalues = np.abs(arrays["eigenvalue_error"][draws])
            rows.append(
                {
                    "kind": kind,
                    "count": count,
                    "draws": len(draws),
                    "eigenvalue_median": float(np.median(eigenvalues, axis=1).mean()),
                    "eigenvalue_largest": float(eigenvalues.max(axis=1).mean()),
                    "projnorm_rms": float(np.sqrt(np.mean(arrays["projnorm_error"][draws] ** 2))),
                    "error_shift_rms": float(np.sqrt(np.mean(arrays["error_shift"][draws] ** 2))),
                }
            )
    return rows


def table(record: Record) -> Table:
    """The same as text."""
    header = ("features", "number", "eigenvalues: median", "largest", "ProjNormLinear: rms", "error: rms shift")
    cells = [
        (
            row["kind"],
            f"{row['count']:,}",
            f"{row['eigenvalue_median']:.2%}",
            f"{row['eigenvalue_largest']:.2%}",
            f"{row['projnorm_rms']:.2%}",
            f"{row['error_shift_rms']:.2%}",
        )
        for row in values(record)
    ]
    return Table(header, cells)


def _root(axes: Axes) -> None:
    """A slope of one half through the first point drawn."""
    x, y = axes.lines[0].get_data()
    x, y = np.asarray(x, float), np.asarray(y, float)
    axes.loglog(x, y[0] * np.sqrt(x[0] / x), ":", color=TRUTH, lw=0.8)
