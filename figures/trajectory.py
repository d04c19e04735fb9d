"""ProjNorm along its training, one panel a family."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import seaborn as sns

from figures.families import CLEAN, spoken
from figures.style import TRUTH, drawing
from projnorm.records import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "ProjNorm along its training"
CAPTION = (
    "Distance from the reference after so many steps of training on pseudo-labels, one line a severity, darker for "
    "stronger shifts; the dashed line is the clean test set, the same in every panel. In the paper it falls, then "
    "rises slowly, and the order of the shifts stays."
)
_COLUMNS = 6


def draw(record: Record, *, heading: str = "") -> Figure:
    """From the record of a comparison that kept a trajectory.

    Raises:
        ValueError: If it kept none.
    """
    arrays = record.arrays
    steps, paths = arrays["trajectory_steps"], arrays["trajectory"]
    if len(steps) < 2:
        raise ValueError(f"{record.id} kept no trajectory; run it with --trajectory 1,2,5,10 or so.")
    families = [family for family in dict.fromkeys(arrays["families"].tolist()) if family != CLEAN] or [CLEAN]
    columns = min(_COLUMNS, len(families))
    rows = math.ceil(len(families) / columns)
    with drawing(max(4.0, 0.5 + 1.45 * columns), 0.6 + 1.35 * rows) as figure:
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for axes, family in zip(grid.flat, families, strict=False):
            members = np.flatnonzero(arrays["families"] == family)
            members = members[np.argsort(arrays["severities"][members], kind="stable")]
            for target, colour in zip(members, sns.color_palette("viridis_r", len(members)), strict=True):
                axes.plot(steps, paths[target], color=colour, lw=1)
            for target in np.flatnonzero(arrays["families"] == CLEAN):
                axes.plot(steps, paths[target], "--", color=TRUTH, lw=0.8)
            axes.set_xscale("log")
            axes.set_title(spoken(family), fontsize=7)
            axes.tick_params(which="both", labelsize=6)
        for axes in grid.flat[len(families) :]:
            axes.set_axis_off()
        figure.supxlabel("step", fontsize=9)
        figure.supylabel("ProjNorm", fontsize=9)
        figure.suptitle(heading, fontsize=7)
    return figure
