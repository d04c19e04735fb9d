"""Eigenvalue decay of every target's tangent kernel, one panel a family."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import seaborn as sns

from figures.families import spoken
from figures.ntk_panels import heading
from figures.style import TRUTH, drawing
from projnorm.records import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Eigenvalue decay of every target"
CAPTION = (
    "Eigenvalues of the covariance of the tangent features, one line a severity, darker for stronger "
    "shifts; the dashed line is the training set, the same in every panel. In brackets the "
    "exponents of the power laws fitted, from the weakest to the strongest."
)
# Few families in three columns, many in five.
_COLUMNS, _MANY, _MORE_COLUMNS = 3, 9, 5


def draw(record: Record) -> Figure:
    """One panel per family, log-log."""
    arrays, config = record.arrays, record.config
    families = list(dict.fromkeys(arrays["families"].tolist()))
    columns = min(_COLUMNS if len(families) <= _MANY else _MORE_COLUMNS, len(families))
    rows = math.ceil(len(families) / columns)
    with drawing(2.2 * columns, 2.0 * rows + 0.4) as figure:
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        train = arrays["train_eigenvalues"] / config["n"]
        for axes, family in zip(grid.flat, families, strict=False):
            members = np.flatnonzero(arrays["families"] == family)
            for target, colour in zip(members, sns.color_palette("viridis_r", len(members)), strict=True):
                values = arrays["eigenvalues"][target]
                values = values[values > 0] / arrays["sizes"][target]
                axes.loglog(np.arange(1, len(values) + 1), values, color=colour, lw=1)
            axes.loglog(np.arange(1, len(train) + 1), train, "--", color=TRUTH, lw=1)
            exponents = arrays["decay"][members, 0]
            ends = f"{exponents[0]:.2f}" + (f" to {exponents[-1]:.2f}" if len(members) > 1 else "")
            axes.set_title(f"{spoken(family)} [{ends}]", fontsize=8)
        for axes in grid.flat[len(families) :]:
            axes.set_axis_off()
        figure.supxlabel("index", fontsize=9)
        figure.supylabel("eigenvalue of the covariance", fontsize=9)
        figure.suptitle(heading(record), fontsize=7)
    return figure
