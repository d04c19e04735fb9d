"""The three intervals for the loss of the kernel regression, on every target."""

from __future__ import annotations

import numpy as np

from figures.families import spoken
from figures.headings import kernel_heading
from figures.style import GENERALISED, PAPER, SHARP, TRUTH, WIDTH, Figure, plot
from projnorm.records import Record

CAPTION = (
    "The squared loss of the interpolating kernel regression on every target (black) and three intervals for it: the "
    "paper's at k = 0 assumes equal norms and orthogonal row spaces and need not hold; ours at k = 0 and the sharp one "
    "use the norm ratio measured from the labels and must."
)
INTERVALS = {
    "proposition": ("paper, k = 0", PAPER),
    "generalised": ("ours, k = 0", GENERALISED),
    "sharp": ("sharp", SHARP),
}


@plot("Intervals for the loss on tangent kernels", CAPTION)
def draw(figure: Figure, record: Record) -> None:
    """One row per target, log scale."""
    arrays = record.arrays
    names = arrays["targets"].tolist()
    figure.set_size_inches(WIDTH, 0.9 + 0.2 * len(names))
    figure.suptitle(kernel_heading(record))
    axes = figure.subplots()
    height = np.arange(len(names))
    for i, (key, (label, colour)) in enumerate(INTERVALS.items()):
        low, high = arrays[key].T
        axes.hlines(height + 0.22 * (1 - i), low, high, color=colour, lw=2, label=label)
    axes.plot(arrays["test_loss"], height, "o", ms=3, color=TRUTH, label="loss")
    axes.set_xscale("log")
    axes.set_yticks(height, [spoken(name) for name in names], fontsize=7)
    axes.set(ylim=(len(names) - 0.4, -0.6), xlabel="squared loss")
    figure.legend(fontsize=7, ncols=4, loc="outside lower center")
