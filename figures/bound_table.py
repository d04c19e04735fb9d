"""The verification of the intervals in numbers, family by family."""

from __future__ import annotations

from typing import Any

import numpy as np

from figures.dials import violated_by_dial
from figures.table import Table
from projnorm.runs import Record
from simulations.bound_check import FAMILIES, INTERVALS, MUST_HOLD, Family, holds

CAPTION = (
    "Share of designs whose true loss an interval misses. Starred: the theory says it must not, given the instance's "
    "rho. The slack is the smallest distance of the loss to an end, as a share of the loss; the width is the median of "
    "upper end over lower end."
)
DIAL_CAPTION = (
    "Share of designs missed, in five equally filled bins of the dial. The last column takes rho as 1 whatever it is."
)
_DIAL_COLUMNS = ("paper", "generalised_k", "generalised_0", "sharp", "sharp_rho_1")
_NAMES: dict[Family, str] = {
    "exact": "all assumptions hold",
    "phi": "tails lean",
    "rho": "norms differ",
    "tilt": "span tilts",
    "flat": "flat tails lean",
}


def values(record: Record) -> list[dict[str, Any]]:
    """One row per family and interval."""
    rows = []
    for number, family in enumerate(FAMILIES):
        chosen = record.arrays["family"] == number
        if not chosen.any():
            continue
        loss = record.arrays["loss"][chosen]
        for interval in INTERVALS:
            ends = record.arrays[interval][chosen]
            lower, upper = ends.T
            with np.errstate(divide="ignore", invalid="ignore"):
                slack = np.minimum(upper / loss - 1, 1 - lower / loss)
                width = upper / lower
            rows.append(
                {
                    "family": family,
                    "interval": interval,
                    "instances": int(chosen.sum()),
                    "missed": float(np.mean(~holds(loss, ends))),
                    "must_hold": family in MUST_HOLD.get(interval, ()),
                    "worst_slack": float(np.nanmin(slack)) if np.isfinite(slack).any() else None,
                    "median_width": float(np.nanmedian(width)) if np.isfinite(width).any() else None,
                }
            )
    return rows


def build(record: Record) -> Table:
    """Misses, slack and width."""
    rows = [
        (
            _NAMES[row["family"]],
            row["interval"],
            f"{row['instances']:,}",
            f"{row['missed']:.2%}" + (" *" if row["must_hold"] else ""),
            "-" if row["worst_slack"] is None else f"{row['worst_slack']:.1e}",
            "-" if row["median_width"] is None else f"{row['median_width']:.3g}",
        )
        for row in values(record)
    ]
    return Table(("designs", "interval", "instances", "missed", "worst slack", "median width"), rows)


def by_dial(record: Record) -> Table:
    """Share of designs missed by each interval, as each assumption is broken further."""
    rows = []
    for family in ("phi", "rho", "tilt"):
        columns = {name: violated_by_dial(record, family, name, bins=5) for name in _DIAL_COLUMNS}
        for i, dial in enumerate(columns["paper"][0]):
            rows.append((_NAMES[family], f"{dial:.3f}", *(f"{columns[name][1][i]:.1%}" for name in _DIAL_COLUMNS)))
    return Table(("broken", "dial", *_DIAL_COLUMNS), rows)
