"""The true error of a network against the severity of every family of shifts."""

from __future__ import annotations

import numpy as np

from deep.scores import Scores
from figures.families import CLEAN, looks, spoken
from figures.style import TRUTH, WIDTH, Figure, drawing

TITLE = "Error against severity"
CAPTION = (
    "True error of the network on every corruption; the dashed line is the clean test set. The parameters of some "
    "families do not order the severities by difficulty, and their lines bend."
)


def draw(scores: Scores, *, heading: str = "") -> Figure:
    """One line per family."""
    with drawing(WIDTH + 1.3, 3.6, heading=heading) as figure:
        axes = figure.subplots()
        for family, style in looks(scores.families.tolist()).items():
            members = np.flatnonzero(scores.families == family)
            if family == CLEAN:
                for error in scores.errors[members]:
                    axes.axhline(100 * error, color=TRUTH, ls="--", lw=0.8, label="clean test set")
            elif len(members) and scores.severities[members].max() > 0:
                members = members[np.argsort(scores.severities[members])]
                x, y = scores.severities[members], 100 * scores.errors[members]
                axes.plot(x, y, ms=4, lw=1, label=spoken(family), **style)
        axes.set_xticks(sorted(set(scores.severities[scores.severities > 0].tolist())))
        axes.set_ylim(bottom=0)
        axes.set_xlabel("severity")
        axes.set_ylabel("true error (%)")
        figure.legend(loc="outside right upper", fontsize=6.5)
    return figure
