"""Eigenvalue decay of every target's tangent kernel, one panel a family."""

from __future__ import annotations

import numpy as np

from figures.families import severity_panels, spoken
from figures.headings import kernel_heading, train_images
from figures.ntk_panels import spectrum
from figures.style import TRUTH, Figure, plot
from projnorm.records import Record

CAPTION = (
    "Eigenvalues of the covariance of the tangent features, one line a severity, darker for stronger shifts; the "
    "dashed line is the training set, the same in every panel. In brackets the exponents of the power laws fitted, "
    "from the weakest shift to the strongest."
)


@plot("Eigenvalue decay of every target", CAPTION)
def draw(figure: Figure, record: Record) -> None:
    """One panel per family, log-log."""
    arrays = record.arrays
    families = list(dict.fromkeys(arrays["families"].tolist()))
    train = arrays["train_eigenvalues"] / train_images(record)
    figure.suptitle(kernel_heading(record))
    figure.supxlabel("index")
    figure.supylabel("eigenvalue of the covariance")
    grid = severity_panels(figure, arrays, families, size=(2.2, 2.0), margin=(1.0, 0.4), dashed="training set")
    for axes, family, members in grid:
        for target, colour in members:
            axes.loglog(*spectrum(record, target), color=colour, lw=1)
        axes.loglog(np.arange(1, len(train) + 1), train, "--", color=TRUTH, lw=1)
        exponents = [f"{arrays['decay'][target, 0]:.2f}" for target, _ in members]
        ends = " to ".join([exponents[0], *exponents[1:][-1:]])
        axes.set_title(f"{spoken(family)} [{ends}]", fontsize=8)
