"""The numbers of the toy experiment: each mean with its standard error, and the closed form beside it."""

from __future__ import annotations

from typing import Any

from figures.table import Number, Table
from projnorm.records import Record
from simulations.summaries import toy_rows

CAPTION = "Means over the trials with their standard errors; the closed form in brackets where there is one."
PANELS = {
    "test_error": "test error",
    "projnorm_linear": "ProjNormLinear",
    "confidence": "confidence score",
    "squared_loss": "squared loss",
}


def build(record: Record) -> Table:
    """One row a sigma."""
    return Table(
        ("sigma", *PANELS.values()),
        [(Number(row["sigma"], "g"), *(_cell(row[name]) for name in PANELS)) for row in toy_rows(record)],
    )


def _cell(entry: dict[str, Any]) -> Number:
    layouts = {"standard_error": " ± {}", "closed_form": " [{}]"}
    known = {name: entry[name] for name in layouts if entry[name] is not None}
    more = {name.replace("_", " "): value for name, value in known.items()}
    return Number(entry["mean"], ".4f", more, "{}" + "".join(layouts[name] for name in known))
