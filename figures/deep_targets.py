"""Figures of a comparison, target by target: error against score and against severity, and ProjNorm in training."""

from __future__ import annotations

import math

import numpy as np

from deep.comparison.scores import Scores
from figures.families import CLEAN, by_family, label_of, scatter, severity_panels, size_keys
from figures.style import TRUTH, WIDTH, Figure, panels, plot
from projnorm.core.records import Record
from projnorm.core.statistics import Line, fit_quality

_SCATTER = (
    "One point per target: the true error of the network against the score that a method gives without labels. "
    "Colour and marker tell the family of shifts, larger marks are stronger shifts, the star is the clean test set. "
    "The line is the least-squares fit over all targets."
)
_SEVERITY = (
    "True error of the network on every corruption; the dashed line is the clean test set. The parameters of some "
    "families do not order the severities by difficulty, and their lines bend."
)
_TRAJECTORY = (
    "Distance from the reference network against the number of training steps on pseudo-labels, one line per severity, "
    "darker for stronger shifts; the dashed line is the clean test set, the same in every panel. In the paper the "
    "distance falls, then rises slowly, and the order of the shifts stays."
)


@plot("Score against error, method by method", _SCATTER)
def draw_scatter(figure: Figure, scores: Scores, heading: str = "") -> None:
    """The paper's scatter plots: one panel per method, the families in a legend on the right."""
    figure.suptitle(heading)
    figure.supxlabel("score")
    figure.supylabel("true error (%)")
    columns = list(zip(scores.methods, scores.values.T, strict=True))
    for axes, (method, score) in panels(figure, columns, size=(2.5, 2.35), margin=(1.5, 0.35), sharey=True):
        scatter(axes, score, 100 * scores.errors, scores.families, scores.severities)
        quality = fit_quality(score, scores.errors)
        if not math.isnan(quality.r_squared):
            ends = np.array([score.min(), score.max()])
            axes.plot(ends, 100 * Line.fitted(score, scores.errors).predict(ends), color=TRUTH, lw=0.8)
        axes.set_title(f"{method}\n$R^2$ {quality.r_squared:.3f}, $r_s$ {quality.spearman:.3f}", fontsize=8)
        axes.set_ylim(-3, 103)
        axes.locator_params(axis="x", nbins=4)
    handles, _ = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles=[*handles, *size_keys(scores.severities)], loc="outside right upper", fontsize=6.5)


@plot("Error against severity", _SEVERITY, WIDTH + 1.3, 3.6)
def draw_severity(figure: Figure, scores: Scores, heading: str = "") -> None:
    """One line per family."""
    figure.suptitle(heading)
    axes = figure.subplots()
    for family, members, style in by_family(scores.families):
        if family == CLEAN:
            for error in scores.errors[members]:
                axes.axhline(100 * error, color=TRUTH, ls="--", lw=0.8, label="clean test set")
        elif scores.severities[members].max() > 0:
            ordered = members[np.argsort(scores.severities[members])]
            x, y = scores.severities[ordered], 100 * scores.errors[ordered]
            axes.plot(x, y, ms=4, lw=1, label=label_of(family), **style)
    axes.set_xticks(sorted(set(scores.severities[scores.severities > 0].tolist())))
    axes.set_ylim(bottom=0)
    axes.set(xlabel="severity", ylabel="true error (%)")
    figure.legend(loc="outside right upper", fontsize=6.5)


@plot("ProjNorm along its training", _TRAJECTORY)
def draw_trajectory(figure: Figure, record: Record, heading: str = "") -> None:
    """One panel per family, from the record of a comparison that kept a trajectory."""
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
        axes.set_title(label_of(family), fontsize=7)
        axes.tick_params(which="both", labelsize=6)
