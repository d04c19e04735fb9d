"""What each interval allows, in two dimensions: a training row, a shifted row, and every truth that fits the label."""

from __future__ import annotations

import math

import numpy as np

from figures.style import CYCLE, GENERALISED, SHARP, TRUTH, Figure, plot

CAPTION = (
    "Two features, one training row (horizontal) and one shifted row (at an angle). Every ground truth on the dashed "
    "line fits the training label, and its loss is the squared distance between the projections of the truth and of "
    "the fit on the shifted row. Equal projections (rho = 1) leave the two green truths; one of them runs off to "
    "infinity as the angle closes. A length in the plane of both rows (eta) leaves the two blue ones, whose loss goes "
    "to zero with the angle. A truth of random direction has the density on the right."
)
_ANGLE = math.radians(50)
_ETA = 1.35
_FIT = 1.0


@plot("What each interval allows", CAPTION, width=6.0, height=4.6)
def draw(figure: Figure) -> None:
    """The two row spaces, the line of truths, and those that each ratio allows."""
    axes, density = figure.subplots(1, 2, width_ratios=(4, 1), sharey=True)
    cosine, sine = math.cos(_ANGLE), math.sin(_ANGLE)
    reach = np.array([-2.6, 2.6])
    axes.plot(reach, 0 * reach, color="0.6", lw=1)
    axes.plot(reach * cosine, reach * sine, color="0.6", lw=1)
    axes.annotate("training row", (-2.0, 0.0), (0, 3), textcoords="offset points", color="0.4")
    axes.annotate("shifted row", (0.98, 1.38), color="0.4", rotation=math.degrees(_ANGLE), rotation_mode="anchor")
    axes.axvline(_FIT, color=TRUTH, ls="--", lw=1)

    circle = np.linspace(0, 2 * math.pi, 200)
    axes.plot(_ETA * np.cos(circle), _ETA * np.sin(circle), color=GENERALISED, lw=0.9)
    for sign in (-1, 1):  # the lines on which the projection on the shifted row has the length of the fit
        foot = np.array([sign * _FIT * cosine, sign * _FIT * sine])
        ends = foot + np.outer([-4, 4], [-sine, cosine])
        axes.plot(*ends.T, color=SHARP, lw=0.9)

    def mark(heights: tuple[float, float], color: str, label: str) -> None:
        for height in heights:
            seen = _FIT * cosine + height * sine
            axes.plot([_FIT, seen * cosine], [height, seen * sine], color=color, lw=0.6, ls=":")
            axes.plot(seen * cosine, seen * sine, ".", color=color, ms=4)
        axes.plot([_FIT, _FIT], heights, "o", color=color, ms=7, label=label)

    mark((_FIT * math.tan(_ANGLE / 2), -_FIT / math.tan(_ANGLE / 2)), SHARP, r"$\rho = 1$: equal projections")
    offset = _FIT * math.sqrt(_ETA**2 - 1)
    mark((offset, -offset), GENERALISED, rf"$\eta = {_ETA}$: length in both rows")
    axes.plot(_FIT, 0, "s", color=TRUTH, ms=7, label=r"fit $\hat\theta$")
    axes.plot(_FIT * cosine**2, _FIT * cosine * sine, "s", color=TRUTH, ms=4)
    axes.set(
        xlim=(-2.4, 2.4),
        ylim=(-2.6, 2.2),
        aspect="equal",
        xticks=[],
        yticks=[],
        xlabel="first feature",
        ylabel="second feature",
    )
    axes.grid(visible=False)
    axes.legend(loc="lower left", fontsize=7.5)

    heights = np.linspace(-2.6, 2.2, 300)
    density.fill_betweenx(heights, 0, 1 / (math.pi * (1 + (heights / _FIT) ** 2)), color=CYCLE[1], alpha=0.4, lw=0)
    density.set(xticks=[], xlim=(0, 0.4), xlabel="density", ylabel="", title="random direction")
    density.grid(visible=False)
