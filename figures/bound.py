"""The paper's bound, instance by instance, where its assumptions hold exactly; and the whole verification in words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from figures.report import Report
from figures.style import PAPER, TRUTH, Figure, plot
from figures.table import Cell, Column, Number, Table, number
from figures.theory_figures import draw_dials, draw_tightness
from projnorm.core.records import Record
from simulations.bound_check import Family, load_instance, violations
from simulations.bound_summaries import bound_rows, instance_rows, misses_by_dial, ratio_sample

CAPTION = (
    "Each vertical line is one drawn design that satisfies every assumption, from the smallest tail eigenvalue over m "
    "to the largest; the dot is its true ratio of loss to ProjNormLinear squared. No dot leaves its line; most lie "
    "near the upper end, where the large tail eigenvalues are."
)
DESIGNS_DRAWN = 150
TABLE_CAPTION = (
    "Missed: share of designs whose true loss is outside the interval; where the theory says that the interval must "
    "hold, given the rho or eta of the design, it is 0. The slack is the smallest distance of the loss to an end, as "
    "a share of the loss, and counts as rounding down to -1e-6; the width is the median of upper end over lower end. "
    "How wide each is where the ground truth is drawn with no regard to them is what `projnorm intervals` shows."
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
    "joint": "joint",
    "generalised_0_rho_1": "generalised, k = 0, rho = 1",
    "sharp_rho_1": "sharp, rho = 1",
    "spherical": "90 % for isotropic truths",
}
_DIAL_COLUMNS = ("paper", "generalised_k", "generalised_0", "sharp", "joint", "sharp_rho_1")


def show(record: Record, folder: Path | None) -> Report:
    """Which interval misses the loss how often; not ok if one misses where it must hold.

    Args:
        record: Record of a verification.
        folder: Folder of the record, in which the first designs that break an interval are saved.
    """
    broken = violations(record)
    saved = [] if folder is None else sorted(folder.glob("violation-*.npz"))
    deficient, total = int(record.arrays["deficient"].sum()), len(record.arrays["loss"])
    verdict = "No interval was broken where it must hold"
    if broken:
        verdict = f"{len(broken):,} designs break an interval that must hold"
    misses, dials = table(record), by_dial(record)
    blocks: list[str | Table] = [
        misses,
        TABLE_CAPTION,
        dials,
        DIAL_CAPTION,
        f"{total:,} designs, {deficient:,} of them with d < n + m or rank deficient.",
        f"{verdict}; the first ones are saved, such as {saved[0]}." if saved else f"{verdict}.",
    ]
    return Report(
        blocks,
        {
            "bound": draw.later(record),
            "dials": draw_dials.later(record),
            "tightness": draw_tightness.later(record),
        },
        {
            "deficient": deficient,
            "rows": bound_rows(record),
            "violations": {str(index): names for index, names in broken.items()},
            "saved": [str(path) for path in saved],
        },
        ok=not broken,
        title="The intervals, verified",
        verdict=f"{verdict}, over {total:,} designs.",
        tables={"bound_table": misses, "bound_dials": dials},
        record=record,
    )


def show_instance(path: Path) -> Report:
    """One saved design, checked again."""
    instance = load_instance(path)
    rows = instance_rows(instance)
    family = f"{instance.family} ({FAMILY_NAMES[instance.family]})"
    return Report(
        [f"Design of the family {family}, dial {instance.dial:.6g}", instance_table(rows)],
        values={"family": instance.family, "dial": instance.dial, "rows": rows},
        ok=all(row["holds"] or not row["must_hold"] for row in rows),
    )


@plot("The paper's bound where its assumptions hold", CAPTION)
def draw(figure: Figure, record: Record) -> None:
    """A sample of instances, sorted by their upper limit."""
    sample = ratio_sample(record, DESIGNS_DRAWN)
    axes = figure.add_subplot()
    x = np.arange(sample.ratio.size)
    axes.vlines(x, sample.lower, sample.upper, color=PAPER, lw=1.2, label=r"$[\lambda_r/m,\ \lambda_{k+1}/m]$")
    axes.plot(x, sample.ratio, ".", ms=4, color=TRUTH, label="true ratio")
    axes.set(yscale="log", xlabel=f"{x.size} of {sample.total:,} drawn designs, sorted by their upper limit")
    axes.set_ylabel(r"TestLoss / ProjNormLinear$^2$")
    axes.legend(loc="lower right")


def table(record: Record) -> Table:
    """Misses, slack and width."""
    columns: dict[str, Column] = {
        "designs": lambda row: FAMILY_NAMES[row["family"]],
        "interval": lambda row: INTERVAL_NAMES[row["interval"]],
        "instances": number("instances", ",d"),
        "missed (%)": number("missed", ".2f", 100),
        "must hold": lambda row: _yes(row["must_hold"]),
        "worst slack": number("worst_slack", ".1e"),
        "median width": number("median_width", ".3g"),
    }
    return Table.from_rows(bound_rows(record), columns)


def by_dial(record: Record) -> Table:
    """Share of designs missed by each interval, as each assumption is broken further."""
    rows: list[tuple[Cell, ...]] = []
    for family in ("phi", "rho", "tilt"):
        columns = {name: misses_by_dial(record, family, name, bins=5) for name in _DIAL_COLUMNS}
        for i, dial in enumerate(columns["paper"][0]):
            shares = [Number(100 * float(columns[name][1][i]), ".1f") for name in _DIAL_COLUMNS]
            rows.append((FAMILY_NAMES[family], Number(float(dial)), *shares))
    return Table(("broken", "dial", *(f"{INTERVAL_NAMES[name]} (%)" for name in _DIAL_COLUMNS)), rows)


def instance_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Every interval of a single design beside its loss."""
    columns: dict[str, Column] = {
        "interval": lambda row: INTERVAL_NAMES[row["interval"]],
        **{key: number(key, ".9g") for key in ("lower", "loss", "upper")},
        "holds": lambda row: _yes(row["holds"]),
        "must hold": lambda row: _yes(row["must_hold"]),
    }
    return Table.from_rows(rows, columns)


def _yes(answer: bool) -> str:
    return "yes" if answer else "no"
