"""Methods that look at outputs alone do not see the shift."""

from __future__ import annotations

from matplotlib.figure import Figure

from figures.style import COLUMN_WIDTH, CYCLE, PAPER, TRUTH, house_style, settled
from projnorm.runs import Record

TITLE = "Anything made of the outputs alone is blind"
CAPTION = (
    "Four statistics of the model's outputs on the same shifted examples, each divided by its value at sigma = 0: "
    "not one of them moves, because the weights of the unseen coordinates are zero. The test error and ProjNormLinear "
    "do; any function of the outputs would lie on the flat line."
)
LINES = {
    "confidence": "confidence",
    "entropy": "entropy",
    "mean_margin": "mean |output|",
    "confident_share": "share above 0.9",
}


def draw(record: Record) -> Figure:
    """Means over trials relative to the smallest sigma."""
    sigma = record.arrays["sigma"]
    with house_style():
        figure = Figure(figsize=(COLUMN_WIDTH, 3.2), layout="constrained")
        axes = figure.add_subplot()
        for (name, label), style in zip(LINES.items(), ("-", "--", ":", "-."), strict=True):
            values = record.arrays[name].mean(axis=0)
            axes.plot(sigma, values / values[0], style, color=CYCLE[0], lw=2, label=label)
        for name, label, colour, marker in (
            ("test_error", "test error", TRUTH, "s"),
            ("projnorm_linear", "ProjNormLinear", PAPER, "o"),
        ):
            values = record.arrays[name].mean(axis=0)
            axes.plot(sigma, values / values[0], marker + "-", ms=4, color=colour, label=label)
        axes.set_xlabel(r"$\sigma$")
        axes.set_ylabel(rf"value / value at $\sigma$ = {sigma[0]:g}")
        axes.legend(ncols=2)
        return settled(figure)
