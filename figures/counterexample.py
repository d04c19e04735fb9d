"""The counterexample figure: the paper's bound fails at every angle but a right one."""

from __future__ import annotations

import numpy as np

from figures.report import single_figure
from figures.style import PAPER, SHARP, TRUTH, Figure, plot
from projnorm.core.records import Record

CAPTION = (
    "Three features, one shared direction, tails at an angle. The paper's bound says the scaled ratio is 1 at every "
    "angle (orange), because both tail eigenvalues are 1; two ground truths that satisfy its assumptions as printed "
    "(markers) leave it as soon as the tails are not orthogonal, and the sharp interval (green) ends exactly on them."
)


@plot("The paper's bound needs orthogonal tails", CAPTION)
def draw(figure: Figure, record: Record) -> None:
    """Ratio against the angle, measured on both ground truths, with the closed forms and the intervals."""
    arrays = record.arrays
    phi, degrees = arrays["phi"], np.degrees(arrays["phi"])
    axes = figure.add_subplot()
    axes.fill_between(degrees, *arrays["sharp"].T, color=SHARP, alpha=0.2, lw=0, label="sharp interval")
    axes.plot(degrees, np.tan(phi / 2) ** 2, color=SHARP, label=r"$\tan^2(\varphi/2)$")
    axes.plot(degrees, 1 / np.tan(phi / 2) ** 2, color=SHARP, ls="--", label=r"$\cot^2(\varphi/2)$")
    axes.plot(degrees, arrays["paper"][:, 1], color=PAPER, lw=2.5, label="paper's bound, both ends")
    some = slice(None, None, max(1, degrees.size // 16))
    axes.plot(degrees[some], arrays["tan_root"][some], "o", ms=4, color=TRUTH, label=r"$\theta^*$ with $\tan$")
    axes.plot(
        degrees[some],
        arrays["cot_root"][some],
        "s",
        ms=4,
        mfc="white",
        color=TRUTH,
        label=r"$\theta^*$ with $\cot$",
    )
    axes.set_yscale("log")
    axes.set(xlabel=r"angle $\varphi$ between the tails (degrees)", ylabel=r"$m\cdot$TestLoss / ProjNormLinear$^2$")
    axes.legend(ncols=2)


show = single_figure(draw)
