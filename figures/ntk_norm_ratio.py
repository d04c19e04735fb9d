"""The paper's check of equal projected norms on tangent kernels, one value per target."""

from __future__ import annotations

import numpy as np

from figures.families import CLEAN, looks, spoken
from figures.headings import kernel_heading
from figures.style import TRUTH, WIDTH, Figure, drawing
from projnorm.records import Record

TITLE = "Equal projected norms, measured"
CAPTION = (
    "The norm of the truth in the shifted row space against that in the training row space, less one; the paper "
    "assumes 0. The dashed lines are a factor of two either way. The truth is measured from the labels of both sets."
)


def draw(record: Record) -> Figure:
    """Relative difference of the two norms against severity."""
    arrays = record.arrays
    with drawing(WIDTH + 1.3, 3.4, heading=kernel_heading(record)) as figure:
        axes = figure.subplots()
        for family, style in looks(arrays["families"].tolist()).items():
            members = np.flatnonzero(arrays["families"] == family)
            if not len(members):
                continue
            line = "none" if family in (CLEAN, "given") else "-"
            axes.plot(
                arrays["severities"][members],
                arrays["rho"][members] - 1.0,
                ls=line,
                ms=9 if family == CLEAN else 5,
                label=spoken(family),
                **style,
            )
        for level, label in ((-0.5, "a factor of two either way"), (1.0, None)):
            axes.axhline(level, color=TRUTH, ls="--", lw=0.8, label=label)
        axes.axhline(0.0, color=TRUTH, lw=0.8, label="equal norms, as the paper assumes")
        axes.set_xticks(sorted(set(arrays["severities"].tolist())))
        axes.set_xlabel("severity (0: no corruption)")
        axes.set_ylabel(r"$(\|\tilde P\theta^*\| - \|P\theta^*\|)\,/\,\|P\theta^*\|$")
        figure.legend(loc="outside right upper", fontsize=6.5)
    return figure
