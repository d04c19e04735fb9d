"""The paper's scatter plots: true error against the score of every method, one colour and marker a family."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from deep.config import RunConfig, TextConfig
from deep.domain import image_config
from deep.ledger import Scores
from figures.families import CLEAN, looks, spoken
from figures.style import TRUTH, drawing
from projnorm.fit_quality import fit_quality

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Score against error, method by method"
CAPTION = (
    "One point a target: the true error of the network on it against what a method says without its labels. Colour "
    "and marker tell the family of shifts, larger marks are stronger shifts, the star is the clean test set. The line "
    "is the least-squares fit over all targets."
)
_COLUMNS = 3
_CLEAN_SIZE = 60


def draw(scores: Scores, *, heading: str = "") -> Figure:
    """One panel per method, the families in a legend on the right."""
    columns = min(_COLUMNS, len(scores.methods))
    rows = math.ceil(len(scores.methods) / columns)
    with drawing(2.5 * columns + 1.5, 2.35 * rows + 0.35) as figure:
        grid = figure.subplots(rows, columns, sharey=True, squeeze=False)
        styles = looks(scores.families.tolist())
        for axes, method, score in zip(grid.flat, scores.methods, scores.values.T, strict=False):
            for family, style in styles.items():
                members = np.flatnonzero(scores.families == family)
                if len(members):
                    axes.scatter(
                        score[members],
                        100 * scores.errors[members],
                        s=_CLEAN_SIZE if family == CLEAN else 10 + 6 * scores.severities[members],
                        alpha=0.8,
                        linewidths=0,
                        label=spoken(family),
                        **style,
                    )
            found = fit_quality(score, scores.errors)
            if not math.isnan(found.r_squared):
                ends = np.array([score.min(), score.max()])
                axes.plot(ends, np.polyval(np.polyfit(score, 100 * scores.errors, 1), ends), color=TRUTH, lw=0.8)
            axes.set_title(rf"{method}: $R^2$ {found.r_squared:.3f}, $\rho$ {found.spearman:.3f}", fontsize=8)
            axes.set_ylim(0, 100)
        for axes in grid.flat[len(scores.methods) :]:
            axes.set_axis_off()
        handles, labels = grid.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right upper", fontsize=6.5)
        figure.supxlabel("score", fontsize=9)
        figure.supylabel("true error (%)", fontsize=9)
        figure.suptitle(heading, fontsize=7)
    return figure


def heading(config: RunConfig, scores: Scores) -> str:
    """What every figure of a run says above it."""
    origins = sorted(set(scores.origins.tolist()) - {"clean"})
    return (
        f"{network_name(config)}\n{Path(config.data).name}, m = {config.m:,}, "
        f"T = {config.steps:,}, {len(scores.targets)} targets, shifts {' and '.join(origins) or 'none'}"
    )


def network_name(config: RunConfig) -> str:
    """Which network of a run is evaluated, and how much it sees of a sample."""
    if isinstance(config, TextConfig):
        return f"{Path(config.model.partition('@')[0]).name}, {config.length} tokens"
    images = image_config(config)
    weights = "random weights" if images.weights == "random" else f"weights {Path(images.weights).name}"
    return f"{images.architecture}, {weights}, {images.size} px"
