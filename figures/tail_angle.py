"""The three intervals on one design while its tails lean towards each other."""

from __future__ import annotations

from matplotlib.figure import Figure

from figures.style import COLUMN_WIDTH, GENERALISED, PAPER, SHARP, TRUTH, house_style, settled
from simulations.tail_angle import TailAngleSweep

CAPTION = (
    "The ratio of test loss to ProjNormLinear squared on one drawn design as its tails lean from orthogonal (left) "
    "towards each other; each mark is a ground truth with the same training labels. The paper's interval (orange) "
    "holds at 90 degrees and loses them as the tails lean, the generalised one (blue) always holds, and the sharp one "
    "(green) is the smallest that can: a ground truth can be built on each of its ends (diamonds)."
)


def draw(sweep: TailAngleSweep) -> Figure:
    """Bands of the intervals and dots of the truth against the tail angle."""
    with house_style():
        figure = Figure(figsize=(COLUMN_WIDTH, 3.6), layout="constrained")
        axes = figure.add_subplot()
        axes.fill_between(
            sweep.angle, *sweep.generalised.T, color=GENERALISED, alpha=0.18, lw=0, label="generalised bound"
        )
        axes.fill_between(sweep.angle, *sweep.sharp.T, color=SHARP, alpha=0.45, lw=0, label="sharp interval")
        axes.plot(sweep.angle, sweep.paper[:, 0], color=PAPER, lw=2, label="paper's bound")
        axes.plot(sweep.angle, sweep.paper[:, 1], color=PAPER, lw=2)
        axes.plot(sweep.angle, sweep.ratio, ".", ms=2.5, color=TRUTH, alpha=0.6)
        axes.plot([], [], ".", color=TRUTH, label=r"ground truths $\theta_\star$, drawn")
        every = max(1, sweep.angle.size // 10)
        axes.plot(sweep.angle[::every], sweep.extreme[::every], "D", ms=3.5, mfc="white", color=TRUTH)
        axes.plot([], [], "D", ms=3.5, mfc="white", color=TRUTH, label=r"ground truths $\theta_\star$, built")
        axes.set_yscale("log")
        axes.set_ylim(top=4 * sweep.generalised.max())
        axes.invert_xaxis()
        axes.set_xlabel("angle between the tails (degrees); 90 is the paper's assumption")
        axes.set_ylabel(r"TestLoss / ProjNormLinear$^2$")
        axes.legend(loc="upper left")
        return settled(figure)
