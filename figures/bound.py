"""The paper's bound, instance by instance, where its assumptions hold exactly."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from figures.style import COLUMN_WIDTH, PAPER, TRUTH, house_style, settled
from projnorm.runs import Record
from simulations.bound_check import FAMILIES

TITLE = "The paper's bound where its assumptions hold"
CAPTION = (
    "Each vertical line is one drawn design that satisfies every assumption, from the smallest tail eigenvalue over m "
    "to the largest; the dot is its true ratio of loss to ProjNormLinear squared. No dot leaves its line; most sit "
    "near the upper end, where the large tail eigenvalues are."
)
SHOWN = 150


def draw(record: Record) -> Figure:
    """A sample of instances, sorted by their upper limit."""
    exact = np.flatnonzero(record.arrays["family"] == FAMILIES.index("exact"))
    some = exact[np.linspace(0, exact.size - 1, min(SHOWN, exact.size)).astype(int)]
    square = record.arrays["projnorm_linear"][some] ** 2
    lower, upper = record.arrays["paper"][some].T / square
    ratio = record.arrays["loss"][some] / square
    order = np.lexsort((ratio, upper))
    with house_style():
        figure = Figure(figsize=(COLUMN_WIDTH, 3.4), layout="constrained")
        axes = figure.add_subplot()
        x = np.arange(order.size)
        axes.vlines(x, lower[order], upper[order], color=PAPER, lw=1.2, label=r"$[\lambda_r/m,\ \lambda_{k+1}/m]$")
        axes.plot(x, ratio[order], ".", ms=4, color=TRUTH, label="true ratio")
        axes.set_yscale("log")
        axes.set_xlabel(f"{order.size} of {exact.size:,} drawn designs, sorted by their upper limit")
        axes.set_ylabel(r"TestLoss / ProjNormLinear$^2$")
        axes.legend(loc="lower right")
        return settled(figure)
