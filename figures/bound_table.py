"""The verification of the intervals in numbers, family by family."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from figures.table import Cell, Number, Table
from projnorm.records import Record
from simulations.bound_check import Family
from simulations.summaries import bound_rows, misses_by_dial

CAPTION = (
    "Missed: share of designs whose true loss is outside the interval; where the theory says that the interval must "
    "hold, given the rho of the design, it is 0. The slack is the smallest distance of the loss to an end, as a share "
    "of the loss; the width is the median of upper end over lower end."
)
DIAL_CAPTION = (
    "Share of designs missed, in five equally filled bins of the dial, which says how far the assumption is broken. "
    "The last column takes rho as 1 whatever it is."
)
FAMILY_NAMES: dict[Family, str] = {
    "exact": "all assumptions hold",
    "phi": "tails lean",
    "rho": "norms differ",
    "tilt": "span tilts",
    "flat": "flat tails lean",
}
INTERVAL_NAMES = {
    "paper": "paper's",
    "generalised_k": "generalised, true k",
    "generalised_0": "generalised, k = 0",
    "sharp": "sharp",
    "generalised_0_rho_1": "generalised, k = 0, rho = 1",
    "sharp_rho_1": "sharp, rho = 1",
}
_DIAL_COLUMNS = ("paper", "generalised_k", "generalised_0", "sharp", "sharp_rho_1")


def build(record: Record) -> Table:
    """Misses, slack and width."""
    rows = [
        (
            FAMILY_NAMES[row["family"]],
            INTERVAL_NAMES[row["interval"]],
            Number(row["instances"], ",d"),
            Number(100 * row["missed"], ".2f"),
            _yes(row["must_hold"]),
            Number(math.nan if row["worst_slack"] is None else row["worst_slack"], ".1e"),
            Number(math.nan if row["median_width"] is None else row["median_width"], ".3g"),
        )
        for row in bound_rows(record)
    ]
    header = ("designs", "interval", "instances", "missed (%)", "must hold", "worst slack", "median width")
    return Table(header, rows)


def by_dial(record: Record) -> Table:
    """Share of designs missed by each interval, as each assumption is broken further."""
    rows = []
    for family in ("phi", "rho", "tilt"):
        columns = {name: misses_by_dial(record, family, name, bins=5) for name in _DIAL_COLUMNS}
        for i, dial in enumerate(columns["paper"][0]):
            shares = [Number(100 * float(columns[name][1][i]), ".1f") for name in _DIAL_COLUMNS]
            rows.append((FAMILY_NAMES[family], Number(float(dial)), *shares))
    return Table(("broken", "dial", *(f"{INTERVAL_NAMES[name]} (%)" for name in _DIAL_COLUMNS)), rows)


def instance(rows: Sequence[dict[str, Any]]) -> Table:
    """Every interval of a single design beside its loss."""
    cells: list[list[Cell]] = [
        [
            INTERVAL_NAMES[row["interval"]],
            *(Number(row[key], ".9g") for key in ("lower", "loss", "upper")),
            _yes(row["holds"]),
            _yes(row["must_hold"]),
        ]
        for row in rows
    ]
    return Table(("interval", "lower", "loss", "upper", "holds", "must hold"), cells)


def _yes(answer: bool) -> str:
    return "yes" if answer else "no"
