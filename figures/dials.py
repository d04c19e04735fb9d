"""Where each interval holds as one assumption is broken by a dial."""

from __future__ import annotations

from typing import Any

import numpy as np

from figures.style import GENERALISED, PAPER, SHARP, TRUTH, Figure, plot
from projnorm.core.records import Record
from simulations.bound_check import Family
from simulations.summaries import misses_by_dial

CAPTION = (
    "Share of drawn designs on which an interval misses the true loss, as the tails lean from a right angle (left), "
    "the norms become unequal (middle) or the shared span tilts (right). The paper's interval (orange) and the "
    "generalised one at the true k (dashed, which needs the shared span) start to miss; the sharp interval and the "
    "generalised one at k = 0, given rho, and the joint one, given eta, never do. Dotted: the sharp interval with rho "
    "wrongly taken as 1."
)
# Lines that coincide are told apart by hollow markers of different sizes.
_LINES: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("paper", "paper's", "o-", {"color": PAPER, "ms": 3}),
    ("generalised_k", "generalised, true k", "s--", {"color": GENERALISED, "ms": 6, "mfc": "none"}),
    ("sharp", "sharp, joint, generalised at k = 0", "D-", {"color": SHARP, "ms": 3}),
    ("sharp_rho_1", r"sharp, $\rho$ taken as 1", "^:", {"color": TRUTH, "ms": 8, "mfc": "none", "mew": 0.7}),
)
_PANELS: dict[Family, tuple[str, float]] = {
    "phi": ("lean of the tails (°)", 180 / np.pi),
    "rho": (r"$\rho - 1$", 1.0),
    "tilt": ("tilt of the span (°)", 180 / np.pi),
}


@plot("Breaking one assumption at a time", CAPTION, height=2.9)
def draw(figure: Figure, record: Record) -> None:
    """One panel per dial."""
    row = figure.subplots(1, 3, sharey=True)
    for axes, (family, (label, unit)) in zip(row, _PANELS.items(), strict=True):
        for name, legend, style, look in _LINES:
            centres, share = misses_by_dial(record, family, name)
            axes.plot(centres * unit, 100 * share, style, label=legend, **look)
        axes.set_xlabel(label, fontsize=8)
        axes.set_ylim(-3, 103)
    row[0].set_ylabel("designs missed (%)")
    figure.legend(*row[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
