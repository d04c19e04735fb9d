"""The numbers of the toy experiment: each mean with its standard error, and the closed form beside it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from figures.table import Table
from figures.toy import PANELS, closed_forms
from projnorm.runs import Record

CAPTION = "Means over the trials with their standard errors; the closed form in brackets where there is one."


def values(record: Record) -> list[dict[str, Any]]:
    """One row a sigma: for each quantity its mean, standard error and closed form (None where there is none)."""
    theory = closed_forms(record)
    trials = len(record.arrays["test_error"])
    rows = []
    for i, sigma in enumerate(record.arrays["sigma"]):
        row: dict[str, Any] = {"sigma": float(sigma)}
        for name in PANELS:
            sample = record.arrays[name][:, i]
            row[name] = {
                "mean": float(np.mean(sample)),
                "standard_error": float(np.std(sample, ddof=1)) / math.sqrt(trials) if trials > 1 else None,
                "closed_form": float(getattr(theory, name)[i]) if theory is not None else None,
            }
        rows.append(row)
    return rows


def build(record: Record) -> Table:
    """The table."""
    return Table(
        ("sigma", *PANELS.values()),
        [(f"{row['sigma']:g}", *(_cell(row[name]) for name in PANELS)) for row in values(record)],
    )


def _cell(entry: dict[str, Any]) -> str:
    error = "" if entry["standard_error"] is None else f" ± {entry['standard_error']:.4f}"
    theory = "" if entry["closed_form"] is None else f" [{entry['closed_form']:.4f}]"
    return f"{entry['mean']:.4f}{error}{theory}"
