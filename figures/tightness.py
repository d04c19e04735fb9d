"""How tight the intervals are."""

from __future__ import annotations

import numpy as np

from figures.style import CYCLE, GENERALISED, PAPER, SHARP, Figure, plot
from projnorm.core.records import Record
from simulations.bound_check import FAMILIES

CAPTION = (
    "Share of designs on which an end is within a given factor of the true loss: left the upper end, right the lower. "
    "Designs with leaning tails, where the paper's interval may fail: its curves start left of 1. The sharp interval "
    "is never wider than the generalised one, and knowing the shared span (k) tightens that one by far. The joint one "
    "is given eta instead of rho."
)
LINES = {
    "paper": ("paper's", PAPER, "-"),
    "generalised_0": ("generalised, k = 0", GENERALISED, ":"),
    "generalised_k": ("generalised, true k", GENERALISED, "-"),
    "sharp": ("sharp", SHARP, "-"),
    "joint": ("joint", CYCLE[3], "-"),
}


@plot("How tight the intervals are", CAPTION, height=3.0)
def draw(figure: Figure, record: Record) -> None:
    """Distribution of upper / loss and of loss / lower over the designs with leaning tails."""
    leaning = record.arrays["family"] == FAMILIES.index("phi")
    loss = record.arrays["loss"][leaning]
    above, below = figure.subplots(1, 2, sharey=True)
    for name, (label, colour, style) in LINES.items():
        lower, upper = record.arrays[name][leaning].T
        with np.errstate(divide="ignore"):
            factors = (upper / loss, loss / lower)
        for axes, factor in zip((above, below), factors, strict=True):
            ordered = np.sort(factor)
            share = np.arange(1, ordered.size + 1) / ordered.size
            axes.plot(ordered, share, style, color=colour, lw=1.8, label=label)
    for axes, label, limit in ((above, "upper end / loss", 1e3), (below, "loss / lower end", 1e9)):
        axes.axvline(1.0, color="0.4", lw=0.8)
        axes.set(xscale="log", xlim=(0.05, limit), xlabel=label)
    above.set_ylabel("share of designs")
    figure.legend(*above.get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize=8)
