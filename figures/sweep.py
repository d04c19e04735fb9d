"""ProjNorm under other settings: how well it follows the error, beside the run it varies."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path

import numpy as np

from deep.comparison.score_quality import qualities
from deep.comparison.sweep import sweep_scores
from figures import deep_table
from figures.headings import about_run
from figures.report import Report, of_figure
from figures.style import CYCLE, TRUTH, Figure, plot
from projnorm.core.records import Record

CAPTION = (
    "R^2 between ProjNorm and the true error, with 95 % intervals from bootstrap draws of whole families, as one "
    "setting at a time is changed; the dashed line is the run that they vary. T is scaled with m, so that every image "
    "is seen equally often."
)
_LABELS = {
    "T": "steps T",
    "m": "images of each target m",
    "lr": "learning rate",
    "reference": "reference",
    "labels": "labels",
    "batch norm": "batch norm",
    "layers": "layers trained",
}


def show(record: Record, _folder: Path) -> Report:
    """ProjNorm under every setting."""
    settings = qualities(sweep_scores(record))
    table = deep_table.of_qualities(settings, first="setting")
    values = {"settings": deep_table.values(settings, first="setting")}
    return of_figure(record, "sweep", draw.later(record, about_run(record)), table, values=values)


@plot("ProjNorm under other settings", CAPTION)
def draw(figure: Figure, record: Record, heading: str = "") -> None:
    """One panel per setting that is varied."""
    settings = qualities(sweep_scores(record))
    varied, values = record.arrays["varied"].tolist(), record.arrays["values"].tolist()
    names = [name for name in dict.fromkeys(varied) if name]
    figure.suptitle(heading)
    figure.set_size_inches(0.6 + 2.0 * max(1, len(names)), 2.9)
    grid = figure.subplots(1, max(1, len(names)), sharey=True, squeeze=False)[0]
    for axes, name, colour in zip(grid, names, CYCLE, strict=False):
        members = [i for i, other in enumerate(varied) if other == name][::-1]
        centre, low, high = np.array([astuple(settings[i].r_squared) for i in members]).T
        ends = np.nan_to_num(np.maximum([centre - low, high - centre], 0.0))
        axes.axhline(settings[0].r_squared.value, color=TRUTH, ls="--", lw=0.8, label="as in the run")
        axes.errorbar(range(len(members)), centre, yerr=ends, fmt="o", color=colour, ms=5, lw=1, capsize=2)
        axes.set_xticks(range(len(members)), [values[i] for i in members], rotation=30, ha="right")
        axes.set(xlim=(-0.6, len(members) - 0.4), xlabel=_LABELS[name])
    grid[0].set(ylabel="$R^2$", ylim=(0, 1.03))
    if names:
        grid[0].legend(loc="lower left", fontsize=7)
