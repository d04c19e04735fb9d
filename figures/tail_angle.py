"""The three intervals on one design while its tails lean towards each other."""

from __future__ import annotations

from figures.report import single_figure
from figures.style import GENERALISED, PAPER, SHARP, TRUTH, Figure, plot
from projnorm.core.records import Record

CAPTION = (
    "The ratio of test loss to ProjNormLinear squared on one drawn design as its tails lean from orthogonal (left) "
    "towards each other; each mark is a ground truth with the same training labels. The paper's interval (orange) "
    "holds at 90 degrees and loses them as the tails lean, the generalised one (blue) always holds, and the sharp one "
    "(green) is the smallest that can: a ground truth can be built on each of its ends (diamonds)."
)


@plot("Three intervals for the test loss", CAPTION, height=3.6)
def draw(figure: Figure, record: Record) -> None:
    """Bands of the intervals and marks of the truth against the tail angle."""
    arrays = record.arrays
    angle = arrays["angle"]
    axes = figure.add_subplot()
    axes.fill_between(angle, *arrays["generalised"].T, color=GENERALISED, alpha=0.18, lw=0, label="generalised bound")
    axes.fill_between(angle, *arrays["sharp"].T, color=SHARP, alpha=0.45, lw=0, label="sharp interval")
    axes.plot(angle, arrays["paper"][:, 0], color=PAPER, lw=2, label="paper's bound")
    axes.plot(angle, arrays["paper"][:, 1], color=PAPER, lw=2)
    axes.plot(angle, arrays["ratio"], ".", ms=2.5, color=TRUTH, alpha=0.6)
    axes.plot([], [], ".", color=TRUTH, label=r"ground truths $\theta^*$, drawn")
    some = slice(None, None, max(1, angle.size // 10))
    axes.plot(angle[some], arrays["extreme"][some], "D", ms=3.5, mfc="white", color=TRUTH)
    axes.plot([], [], "D", ms=3.5, mfc="white", color=TRUTH, label=r"ground truths $\theta^*$, built")
    axes.set_yscale("log")
    axes.set_ylim(top=4 * arrays["generalised"].max())
    axes.invert_xaxis()
    axes.set_xlabel("angle between the tails (degrees); 90 is the paper's assumption")
    axes.set_ylabel(r"TestLoss / ProjNormLinear$^2$")
    axes.legend(loc="upper left")


show = single_figure(draw)
