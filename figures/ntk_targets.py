"""Figures of an experiment on tangent kernels, target by target: norm ratio, eigenvalue decay, and intervals."""

from __future__ import annotations

import numpy as np

from figures.families import CLEAN, by_family, label_of, severity_panels
from figures.headings import kernel_heading, train_images
from figures.ntk_panels import spectrum
from figures.style import CYCLE, GENERALISED, PAPER, SHARP, TRUTH, WIDTH, Drawing, Figure, plot
from projnorm.core.records import Record

_NORM_RATIO = (
    "The norm of the truth in the shifted row space against that in the training row space, less one; the paper "
    "assumes 0. The dashed lines are a factor of two either way. The truth is measured from the labels of both sets."
)
_DECAY = (
    "Eigenvalues of the covariance of the tangent features, one line a severity, darker for stronger shifts; the "
    "dashed line is the training set, the same in every panel. In brackets the exponents of the power laws fitted, "
    "from the weakest shift to the strongest."
)
_INTERVALS = (
    "The squared loss of the interpolating kernel regression on every target (black) and intervals for it. Those that "
    "use a ratio measured from the labels must hold: ours at k = 0 and the sharp one (rho), the joint one (eta). The "
    "paper's at k = 0 assumes equal norms and orthogonal row spaces, the 90 % prediction interval a truth of random "
    "direction; they need not hold."
)
# Of the figure of the intervals in inches: heading, legend and labels need as much.
_LEAST_HEIGHT = 2.2
_INTERVAL_STYLES = {
    "proposition": ("paper, k = 0", PAPER),
    "generalised": ("ours, k = 0", GENERALISED),
    "sharp": ("sharp", SHARP),
    "joint": ("joint", CYCLE[3]),
    "spherical": ("random direction, 90 %", CYCLE[4]),
}


def drawings(record: Record) -> dict[str, Drawing]:
    """All three, by file name; without the norm ratio where no target has labels."""
    measured = {} if np.isnan(record.arrays["rho"]).all() else {"ntk_norm_ratio": draw_norm_ratio.later(record)}
    return {**measured, "ntk_decay_grid": draw_decay.later(record), "ntk_intervals": draw_intervals.later(record)}


@plot("Equal projected norms, measured", _NORM_RATIO, WIDTH + 1.3, 3.4)
def draw_norm_ratio(figure: Figure, record: Record) -> None:
    """Relative difference of the two norms, which the paper assumes to be equal, against severity."""
    arrays = record.arrays
    axes = figure.subplots()
    axes.set_title(kernel_heading(record), fontsize=8)  # above the axes alone: the legend is as high as the figure
    for family, members, style in by_family(arrays["families"]):
        x, y = arrays["severities"][members], arrays["rho"][members] - 1.0
        style |= {"ls": "none" if family in (CLEAN, "given") else "-", "ms": 9 if family == CLEAN else 5}
        axes.plot(x, y, label=label_of(family), **style)
    for level, label in ((-0.5, "a factor of two either way"), (1.0, None)):
        axes.axhline(level, color=TRUTH, ls="--", lw=0.8, label=label)
    axes.axhline(0.0, color=TRUTH, lw=0.8, label="equal norms, as the paper assumes")
    axes.set_xticks(sorted(set(arrays["severities"].tolist())))
    axes.set(xlabel="severity (0: no corruption)", ylabel=r"$(\|\tilde P\theta^*\| - \|P\theta^*\|)\,/\,\|P\theta^*\|$")
    figure.legend(loc="outside right upper", fontsize=6.5)


@plot("Eigenvalue decay of every target", _DECAY)
def draw_decay(figure: Figure, record: Record) -> None:
    """One panel per family, log-log."""
    arrays = record.arrays
    families = list(dict.fromkeys(arrays["families"].tolist()))
    train = arrays["train_eigenvalues"] / train_images(record)
    figure.suptitle(kernel_heading(record))
    figure.supxlabel("index")
    figure.supylabel("eigenvalue of the covariance")
    grid = severity_panels(figure, arrays, families, size=(2.2, 2.0), margin=(1.0, 0.4), dashed="training set")
    for axes, family, members in grid:
        for target, colour in members:
            axes.loglog(*spectrum(record, target), color=colour, lw=1)
        axes.loglog(np.arange(1, len(train) + 1), train, "--", color=TRUTH, lw=1)
        exponents = [f"{arrays['decay'][target, 0]:.2f}" for target, _ in members]
        ends = " to ".join([exponents[0], *exponents[1:][-1:]])
        axes.set_title(f"{label_of(family)} [{ends}]", fontsize=8)


@plot("Intervals for the loss on tangent kernels", _INTERVALS)
def draw_intervals(figure: Figure, record: Record) -> None:
    """One row per target, log scale."""
    arrays = record.arrays
    names = arrays["targets"].tolist()
    figure.set_size_inches(WIDTH, max(0.9 + 0.2 * len(names), _LEAST_HEIGHT))
    figure.suptitle(kernel_heading(record))
    axes = figure.subplots()
    height = np.arange(len(names))
    for i, (key, (label, colour)) in enumerate(_INTERVAL_STYLES.items()):
        low, high = arrays[key].T
        if not np.isnan(low).all():
            axes.hlines(height + 0.15 * (2 - i), low, high, color=colour, lw=2, label=label)
    if not np.isnan(arrays["test_loss"]).all():
        axes.plot(arrays["test_loss"], height, "o", ms=3, color=TRUTH, label="loss")
    axes.set_xscale("log")
    axes.set_yticks(height, [label_of(name) for name in names], fontsize=7)
    axes.set(ylim=(len(names) - 0.4, -0.6), xlabel="squared loss")
    figure.legend(fontsize=7, ncols=3, loc="outside lower center")
