"""The paper's scatter plots: true error against the score of every method, one colour and marker per family."""

from __future__ import annotations

import math

import numpy as np

from deep.calibration import Line
from deep.scores import Scores
from figures.families import scatter, size_keys
from figures.style import TRUTH, Figure, panels, plot
from projnorm.fit_quality import fit_quality

CAPTION = (
    "One point per target: the true error of the network against the score that a method gives without labels. "
    "Colour and marker tell the family of shifts, larger marks are stronger shifts, the star is the clean test set. "
    "The line is the least-squares fit over all targets."
)


@plot("Score against error, method by method", CAPTION)
def draw(figure: Figure, scores: Scores, heading: str = "") -> None:
    """One panel per method, the families in a legend on the right."""
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
        axes.set_title(f"{method}\n$R^2$ {quality.r_squared:.3f}, $\\rho$ {quality.spearman:.3f}", fontsize=8)
        axes.set_ylim(-3, 103)
        axes.locator_params(axis="x", nbins=4)
    handles, _ = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles=[*handles, *size_keys(scores.severities)], loc="outside right upper", fontsize=6.5)
