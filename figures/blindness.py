"""Methods that look at outputs alone do not see the shift."""

from __future__ import annotations

from figures.style import CYCLE, PAPER, TRUTH, WIDTH, Figure, plot
from projnorm.core.records import Record

CAPTION = (
    "Left: four statistics of the model's outputs on the same shifted examples. Not one of them moves with sigma, "
    "because the weights of the unseen coordinates are zero; any other function of the outputs would be as flat. "
    "Right: the test error and ProjNormLinear, relative to their values at the smallest sigma, do move."
)
LINES = {
    "mean_margin": ("mean |output|", CYCLE[0], "o-"),
    "confidence": ("mean confidence", CYCLE[4], "s--"),
    "entropy": ("mean entropy", CYCLE[7], "D-."),
    "confident_share": ("share with confidence above 0.9", CYCLE[9], "^:"),
}


@plot("Whatever is made of the outputs alone is blind", CAPTION, WIDTH + 1.0, 3.1)
def draw(figure: Figure, record: Record) -> None:
    """Means over trials: statistics of the outputs as they are, error and ProjNormLinear relative to their start."""
    sigma = record.arrays["sigma"]
    flat, rising = figure.subplots(1, 2)
    top = 0.0
    for name, (label, colour, style) in LINES.items():
        values = record.arrays[name].mean(axis=0)
        top = max(top, float(values.max()))
        flat.plot(sigma, values, style, ms=3.5, color=colour, label=label)
    flat.set(ylim=(0, 1.75 * top), ylabel="statistic of the outputs")
    for name, label, colour, marker in (
        ("test_error", "test error", TRUTH, "s"),
        ("projnorm_linear", "ProjNormLinear", PAPER, "o"),
    ):
        values = record.arrays[name].mean(axis=0)
        rising.plot(sigma, values / values[0], marker + "-", ms=4, color=colour, label=label)
    rising.set_ylim(bottom=0)
    rising.set_ylabel(rf"value / value at $\sigma$ = {sigma[0]:g}")
    for axes in (flat, rising):
        axes.set_xlabel(r"$\sigma$")
    flat.legend(loc="upper left", fontsize=7)
    rising.legend(loc="lower right")
