"""Where each interval holds as one assumption is broken by a dial."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from figures.style import COLUMN_WIDTH, GENERALISED, PAPER, SHARP, house_style, settled
from projnorm.runs import Record
from simulations.bound_check import FAMILIES, Family, holds

TITLE = "Breaking one assumption at a time"
CAPTION = (
    "Share of drawn designs on which an interval misses the true loss, as the tails lean (left), the norms become "
    "unequal (middle) or the shared span tilts (right). The paper's interval (orange) and the generalised one at the "
    "true k (dashed, which needs the shared span) start to miss; the sharp interval and the generalised one at k = 0, "
    "given rho, never do. Dotted: the sharp interval with rho wrongly taken as 1."
)
LINES = {
    "paper": ("paper's", PAPER, "o-"),
    "generalised_k": ("generalised, true k", GENERALISED, "s--"),
    "sharp": ("sharp, and generalised at k = 0", SHARP, "D-"),
    "sharp_rho_1": ("sharp, rho taken as 1", SHARP, "^:"),
}
PANELS: dict[Family, tuple[str, float]] = {
    "phi": ("90° minus tail angle (degrees)", 180 / np.pi),
    "rho": (r"$\rho - 1$", 1.0),
    "tilt": ("tilt of the span (degrees)", 180 / np.pi),
}


def violated_by_dial(record: Record, family: Family, interval: str, bins: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Centres of equally filled bins of the dial, and the share of designs violated in each."""
    chosen = record.arrays["family"] == FAMILIES.index(family)
    dial = record.arrays["dial"][chosen]
    missed = ~holds(record.arrays["loss"][chosen], record.arrays[interval][chosen])
    groups = [group for group in np.array_split(np.argsort(dial), bins) if group.size]
    return np.array([dial[g].mean() for g in groups]), np.array([missed[g].mean() for g in groups])


def draw(record: Record) -> Figure:
    """One panel a dial."""
    with house_style():
        figure = Figure(figsize=(COLUMN_WIDTH, 2.9), layout="constrained")
        row = figure.subplots(1, 3, sharey=True)
        for axes, (family, (label, unit)) in zip(row, PANELS.items(), strict=True):
            for name, (legend, colour, style) in LINES.items():
                centres, share = violated_by_dial(record, family, name)
                axes.plot(centres * unit, share, style, ms=3, color=colour, label=legend)
            axes.set_xlabel(label, fontsize=8)
            axes.set_ylim(-0.03, 1.03)
        row[0].set_ylabel("share of designs missed")
        figure.legend(*row[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
        return settled(figure)
