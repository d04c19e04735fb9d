"""ProjNorm along its training, one panel per family."""

from __future__ import annotations

from figures.families import CLEAN, severity_panels, spoken
from figures.style import TRUTH, Figure, plot
from projnorm.records import Record

CAPTION = (
    "Distance from the reference network against the number of training steps on pseudo-labels, one line per severity, "
    "darker for stronger shifts; the dashed line is the clean test set, the same in every panel. In the paper the "
    "distance falls, then rises slowly, and the order of the shifts stays."
)


@plot("ProjNorm along its training", CAPTION)
def draw(figure: Figure, record: Record, heading: str = "") -> None:
    """From the record of a comparison that kept a trajectory."""
    arrays = record.arrays
    steps, paths = arrays["trajectory_steps"], arrays["trajectory"]
    families = [family for family in dict.fromkeys(arrays["families"].tolist()) if family != CLEAN] or [CLEAN]
    ticks = sorted({int(steps[i]) for i in (0, len(steps) // 2, -1)})
    figure.suptitle(heading)
    figure.supxlabel("step")
    figure.supylabel("ProjNorm")
    grid = severity_panels(figure, arrays, families, size=(1.7, 1.5), margin=(1.8, 0.6), dashed="clean test set")
    for axes, family, members in grid:
        for target, colour in members:
            axes.plot(steps, paths[target], color=colour, lw=1)
        for path in paths[arrays["families"] == CLEAN]:
            axes.plot(steps, path, "--", color=TRUTH, lw=0.8)
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.minorticks_off()
        axes.set_title(spoken(family), fontsize=7)
        axes.tick_params(which="both", labelsize=6)
