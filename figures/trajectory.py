"""ProjNorm along its training, one panel per family."""

from __future__ import annotations

import numpy as np

from figures.families import CLEAN, severity_keys, severity_shades, spoken
from figures.style import TRUTH, Figure, drawing, grid_size, panels
from projnorm.errors import InputError
from projnorm.records import Record

TITLE = "ProjNorm along its training"
CAPTION = (
    "Distance from the reference network after so many steps of training on pseudo-labels, one line per severity, "
    "darker for stronger shifts; the dashed line is the clean test set, the same in every panel. In the paper the "
    "distance falls, then rises slowly, and the order of the shifts stays."
)


def require(record: Record) -> None:
    """Refuse a run without a trajectory.

    Raises:
        InputError: If it kept none.
    """
    if len(record.arrays["trajectory_steps"]) < 2:
        raise InputError(f"{record.id} kept no trajectory; run it with `trajectory` such as 1, 2, 5, 10.")


def draw(record: Record, *, heading: str = "") -> Figure:
    """From the record of a comparison that kept a trajectory.

    Raises:
        InputError: If it kept none.
    """
    require(record)
    arrays = record.arrays
    steps, paths = arrays["trajectory_steps"], arrays["trajectory"]
    families = [family for family in dict.fromkeys(arrays["families"].tolist()) if family != CLEAN] or [CLEAN]
    rows, columns = grid_size(len(families), 3, 5)
    ticks = sorted({int(steps[i]) for i in (0, len(steps) // 2, -1)})
    shade = severity_shades(arrays["severities"])
    size = (1.8 + 1.7 * columns, 0.6 + 1.5 * rows)
    with drawing(*size, heading=heading, x="step", y="ProjNorm") as figure:
        for axes, family in zip(
            panels(figure, len(families), columns, sharex=True, sharey=True), families, strict=True
        ):
            for target in np.flatnonzero(arrays["families"] == family):
                axes.plot(steps, paths[target], color=shade[int(arrays["severities"][target])], lw=1)
            for target in np.flatnonzero(arrays["families"] == CLEAN):
                axes.plot(steps, paths[target], "--", color=TRUTH, lw=0.8)
            axes.set_xscale("log")
            axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
            axes.minorticks_off()
            axes.set_title(spoken(family), fontsize=7)
            axes.tick_params(which="both", labelsize=6)
        keys = severity_keys(arrays["severities"], "clean test set")
        figure.legend(handles=keys, loc="outside right upper", fontsize=7)
    return figure
