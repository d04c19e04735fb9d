"""Every target of an experiment on tangent kernels, in numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from figures.table import Number, Table
from projnorm.records import Record
from simulations.bound_check import holds

CAPTION = (
    "rho: norm of the truth in the shifted row space over that in the training one, from the labels. c: overlap with "
    "nothing assumed shared. The last three columns say whether the interval at k = 0 holds the loss: the paper's need "
    "not; ours and the sharp one must."
)
_COLUMNS = {
    "projnorm": ("ProjNormLinear", 1.0, ".4f"),
    "error": ("error (%)", 100.0, ".1f"),
    "rho": ("rho", 1.0, ".3f"),
    "overlap": ("c", 1.0, ".3f"),
    "exponent": ("decay", 1.0, ".2f"),
    "test_loss": ("loss", 1.0, ".4f"),
}
_INTERVALS = {"proposition": "paper's", "generalised": "ours", "sharp": "sharp"}
_SAID = {True: "holds", False: "fails", None: "none"}


def values(record: Record) -> list[dict[str, Any]]:
    """One row per target."""
    arrays = record.arrays
    rows = []
    for i, name in enumerate(arrays["targets"].tolist()):
        row: dict[str, Any] = {"target": name}
        row |= {key: float(arrays[key][i]) for key in _COLUMNS if key != "exponent"}
        row["exponent"] = float(arrays["decay"][i, 0])
        for key in _INTERVALS:
            ends = arrays[key][i]
            row[key] = ends.tolist()
            row[f"{key}_holds"] = None if np.isnan(ends).any() else bool(holds(arrays["test_loss"][i], ends))
        rows.append(row)
    return rows


def predictions(record: Record) -> Table:
    """ProjNormLinear beside the error."""
    rows = [
        (row["target"], Number(row["projnorm"], ".4f"), Number(100 * row["error"], ".1f")) for row in values(record)
    ]
    return Table(("target", "ProjNormLinear", "error of the kernel regression (%)"), rows)


def build(record: Record) -> Table:
    """Assumptions and intervals."""
    header = ("target", *(title for title, _, _ in _COLUMNS.values()), *_INTERVALS.values())
    rows = [
        (
            row["target"],
            *(Number(scale * row[key], form) for key, (_, scale, form) in _COLUMNS.items()),
            *(_SAID[row[f"{key}_holds"]] for key in _INTERVALS),
        )
        for row in values(record)
    ]
    return Table(header, rows)
