"""The paper's bound, instance by instance, where its assumptions hold exactly; and the whole verification in words."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from figures import bound_table, dials, tightness
from figures.show import Drawing, Shown
from figures.style import PAPER, TRUTH, WIDTH, drawing
from projnorm.records import Record
from simulations.bound_check import FAMILIES, load_instance, violations
from simulations.summaries import bound_rows, instance_rows, save_violations

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "The paper's bound where its assumptions hold"
CAPTION = (
    "Each vertical line is one drawn design that satisfies every assumption, from the smallest tail eigenvalue over m "
    "to the largest; the dot is its true ratio of loss to ProjNormLinear squared. No dot leaves its line; most lie "
    "near the upper end, where the large tail eigenvalues are."
)
SHOWN = 150


def show(record: Record, folder: Path | None) -> Shown:
    """Which interval misses the loss how often; not ok if one misses where it must hold.

    Args:
        record: Record of a verification.
        folder: Folder that the first designs which break an interval are saved in; None saves none.
    """
    broken = violations(record)
    saved = [] if folder is None else save_violations(record, folder)
    deficient, total = int(record.arrays["deficient"].sum()), len(record.arrays["loss"])
    verdict = "No interval was broken where it must hold"
    if broken:
        verdict = f"{len(broken):,} designs break an interval that must hold"
    blocks = [
        bound_table.build(record),
        bound_table.CAPTION,
        bound_table.by_dial(record),
        bound_table.DIAL_CAPTION,
        f"{total:,} designs, {deficient:,} of them with d < n + m or rank deficient.",
        f"{verdict}; the first ones are saved, such as {saved[0]}." if saved else f"{verdict}.",
    ]
    return Shown(
        blocks,
        {
            name: Drawing(module.TITLE, module.CAPTION, partial(module.draw, record))
            for name, module in {"dials": dials, "tightness": tightness}.items()
        }
        | {"bound": Drawing(TITLE, CAPTION, partial(draw, record))},
        {
            "deficient": deficient,
            "rows": bound_rows(record),
            "violations": {str(index): names for index, names in broken.items()},
            "saved": [str(path) for path in saved],
        },
        ok=not broken,
        title="The three intervals, verified",
        verdict=f"{verdict}, over {total:,} designs.",
        record=record,
    )


def show_instance(path: Path) -> Shown:
    """One saved design, checked again.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it holds something else.
    """
    instance = load_instance(path)
    rows = instance_rows(instance)
    family = f"{instance.family} ({bound_table.FAMILY_NAMES[instance.family]})"
    return Shown(
        [f"Design of the family {family}, dial {instance.dial:.6g}", bound_table.instance(rows)],
        values={"family": instance.family, "dial": instance.dial, "rows": rows},
        ok=all(row["holds"] or not row["must_hold"] for row in rows),
    )


def draw(record: Record) -> Figure:
    """A sample of instances, sorted by their upper limit."""
    exact = np.flatnonzero(record.arrays["family"] == FAMILIES.index("exact"))
    some = exact[np.linspace(0, exact.size - 1, min(SHOWN, exact.size)).astype(int)]
    square = record.arrays["projnorm_linear"][some] ** 2
    lower, upper = record.arrays["paper"][some].T / square
    ratio = record.arrays["loss"][some] / square
    order = np.lexsort((ratio, upper))
    with drawing(WIDTH, 3.4) as figure:
        axes = figure.add_subplot()
        x = np.arange(order.size)
        axes.vlines(x, lower[order], upper[order], color=PAPER, lw=1.2, label=r"$[\lambda_r/m,\ \lambda_{k+1}/m]$")
        axes.plot(x, ratio[order], ".", ms=4, color=TRUTH, label="true ratio")
        axes.set_yscale("log")
        axes.set_xlabel(f"{order.size} of {exact.size:,} drawn designs, sorted by their upper limit")
        axes.set_ylabel(r"TestLoss / ProjNormLinear$^2$")
        axes.legend(loc="lower right")
    return figure
