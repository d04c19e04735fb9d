"""Eigenvalue decay of every target's tangent kernel, one panel a family."""

from __future__ import annotations

import numpy as np

from figures.families import severity_keys, severity_shades, spoken
from figures.headings import kernel_heading, train_images
from figures.ntk_panels import spectrum
from figures.style import TRUTH, Figure, drawing, grid_size, panels
from projnorm.records import Record

TITLE = "Eigenvalue decay of every target"
CAPTION = (
    "Eigenvalues of the covariance of the tangent features, one line a severity, darker for stronger shifts; the "
    "dashed line is the training set, the same in every panel. In brackets the exponents of the power laws fitted, "
    "from the weakest shift to the strongest."
)


def draw(record: Record) -> Figure:
    """One panel per family, log-log."""
    arrays = record.arrays
    families = list(dict.fromkeys(arrays["families"].tolist()))
    rows, columns = grid_size(len(families), 3, 5)
    size = (2.2 * columns + 1.0, 2.0 * rows + 0.4)
    shade = severity_shades(arrays["severities"])
    with drawing(*size, heading=kernel_heading(record), x="index", y="eigenvalue of the covariance") as figure:
        train = arrays["train_eigenvalues"] / train_images(record)
        for axes, family in zip(
            panels(figure, len(families), columns, sharex=True, sharey=True), families, strict=True
        ):
            members = np.flatnonzero(arrays["families"] == family)
            for target in members.tolist():
                axes.loglog(*spectrum(record, target), color=shade[int(arrays["severities"][target])], lw=1)
            axes.loglog(np.arange(1, len(train) + 1), train, "--", color=TRUTH, lw=1)
            exponents = arrays["decay"][members, 0]
            ends = f"{exponents[0]:.2f}" + (f" to {exponents[-1]:.2f}" if len(members) > 1 else "")
            axes.set_title(f"{spoken(family)} [{ends}]", fontsize=8)
        keys = severity_keys(arrays["severities"], "training set")
        figure.legend(handles=keys, loc="outside right upper", fontsize=7)
    return figure
