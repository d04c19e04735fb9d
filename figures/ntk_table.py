"""Every target of an experiment on tangent kernels, in numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from figures.table import Table
from projnorm.records import Record
from simulations.bound_check import holds

CAPTION = (
    "rho: norm of the truth in the shifted row space over that in the training one, from the labels. c: overlap with "
    "nothing assumed shared. The last three columns say whether the interval at k = 0 holds the loss: the paper's need "
    "not; ours and the sharp one must."
)
_NUMBERS = ("projnorm", "error", "rho", "overlap", "test_loss")
_INTERVALS = ("proposition", "generalised", "sharp")
_SAID = {True: "holds", False: "fails", None: "none"}


def values(record: Record) -> list[dict[str, Any]]:
    """One row per target."""
    arrays = record.arrays
    rows = []
    for i, name in enumerate(arrays["targets"].tolist()):
        row: dict[str, Any] = {"target": name} | {key: float(arrays[key][i]) for key in _NUMBERS}
        row["exponent"] = float(arrays["decay"][i, 0])
        for key in _INTERVALS:
            ends = arrays[key][i]
            row[key] = ends.tolist()
            row[f"{key}_holds"] = None if np.isnan(ends).any() else bool(holds(arrays["test_loss"][i], ends))
        rows.append(row)
    return rows


def predictions(record: Record) -> Table:
    """ProjNormLinear beside the error."""
    rows = [(row["target"], f"{row['projnorm']:.4f}", f"{100 * row['error']:.1f} %") for row in values(record)]
    return Table(("target", "ProjNormLinear", "error of the kernel regression"), rows)


def build(record: Record) -> Table:
    """Assumptions and intervals."""
    header = ("target", "ProjNormLinear", "error", "rho", "c", "decay", "loss", "paper", "ours", "sharp")
    rows = []
    for row in values(record):
        cells = [f"{row['projnorm']:.4f}", f"{100 * row['error']:.1f} %", f"{row['rho']:.3f}", f"{row['overlap']:.3f}"]
        cells += [f"{row['exponent']:.2f}", f"{row['test_loss']:.4f}"]
        rows.append((row["target"], *cells, *(_SAID[row[f"{key}_holds"]] for key in _INTERVALS)))
    return Table(header, rows)
