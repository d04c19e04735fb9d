"""The true error of a network against the severity of every family of shifts."""

from __future__ import annotations

import numpy as np

from deep.scores import Scores
from figures.families import CLEAN, by_family, spoken
from figures.style import TRUTH, WIDTH, Figure, plot

CAPTION = (
    "True error of the network on every corruption; the dashed line is the clean test set. The parameters of some "
    "families do not order the severities by difficulty, and their lines bend."
)


@plot("Error against severity", CAPTION, WIDTH + 1.3, 3.6)
def draw(figure: Figure, scores: Scores, heading: str = "") -> None:
    """One line per family."""
    figure.suptitle(heading)
    axes = figure.subplots()
    for family, members, look in by_family(scores.families):
        if family == CLEAN:
            for error in scores.errors[members]:
                axes.axhline(100 * error, color=TRUTH, ls="--", lw=0.8, label="clean test set")
        elif scores.severities[members].max() > 0:
            ordered = members[np.argsort(scores.severities[members])]
            x, y = scores.severities[ordered], 100 * scores.errors[ordered]
            axes.plot(x, y, ms=4, lw=1, label=spoken(family), **look)
    axes.set_xticks(sorted(set(scores.severities[scores.severities > 0].tolist())))
    axes.set_ylim(bottom=0)
    axes.set(xlabel="severity", ylabel="true error (%)")
    figure.legend(loc="outside right upper", fontsize=6.5)
