"""The paper's three-panel figure on tangent kernels: alignment, decay, and ProjNormLinear against the error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import PowerNorm

from figures.families import CLEAN, looks, spoken
from figures.style import CYCLE, TRUTH, drawing
from projnorm.fit_quality import fit_quality
from projnorm.records import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Tangent kernels: alignment, decay, prediction"
CAPTION = (
    "(a) Cosines between the leading eigenvectors of the training and the most shifted covariance, colours on a "
    "square-root scale; below, the share of the top-j training span that the top-j span of the clean (black) and of "
    "the most shifted set holds. (b) Eigenvalues of the covariances "
    "on a log scale: training (black), clean test, and the strongest shift of each family. (c) ProjNormLinear against "
    "the error of the kernel regression's own labels, one point a target; larger marks are stronger shifts."
)
_WIDTH = 8.2
# More families than this have their legend in the scatter plots of the comparison.
_LEGEND = 8


def draw(record: Record, *, aligned: str | None = None, decays: Sequence[str] | None = None) -> Figure:
    """Three panels side by side.

    Args:
        record: Of an experiment on kernels.
        aligned: The target of the first panel; the one with the largest error by default.
        decays: The targets of the second panel; the strongest of each family by default.
    """
    arrays = record.arrays
    names = arrays["targets"].tolist()
    shown = int(np.argmax(true_error(record))) if aligned is None else names.index(aligned)
    lines = _strongest(record) if decays is None else [names.index(name) for name in decays]
    with drawing(_WIDTH, 3.4) as figure:
        axes = figure.subplot_mosaic(
            [["heat", "decay", "scatter"], ["spans", "decay", "scatter"]],
            width_ratios=(1.05, 1, 1.15),
            height_ratios=(3, 1),
        )
        _alignment(figure, axes["heat"], record, shown)
        _spans(axes["spans"], record, shown)
        _decay(axes["decay"], record, lines)
        _prediction(axes["scatter"], record)
        figure.suptitle(heading(record), fontsize=8)
    return figure


def heading(record: Record) -> str:
    """What was computed on, in two lines; random weights are called random."""
    config = record.config
    kind = config["kind"] if config["kind"] == "exact" else f"{config['kind']} ({config['count']:,})"
    weights = "random weights" if config["weights"] == "random" else f"weights {record.facts['weights']}"
    return (
        f"{config['architecture']}, {weights}, {config['size']} px\n{config['data']}, n = {config['n']:,}, "
        f"m = {config['m']:,}, {kind} kernel"
    )


def true_error(record: Record) -> np.ndarray:
    """The error that is predicted: of the fine-tuned network where there is one, else of the kernel regression."""
    return record.arrays.get("network_error", record.arrays["error"])


def _strongest(record: Record) -> list[int]:
    families, severities = record.arrays["families"], record.arrays["severities"]
    members = [np.flatnonzero(families == family) for family in looks(families.tolist())]
    return [int(group[np.argmax(severities[group])]) for group in members if len(group)]


def _alignment(figure: Figure, axes: Axes, record: Record, target: int) -> None:
    matrix = record.arrays["alignment"][target]
    top = len(matrix)
    image = axes.imshow(
        matrix,
        origin="lower",
        cmap="magma_r",
        norm=PowerNorm(0.5, 0, 1),
        aspect="auto",
        extent=(0.5, top + 0.5, 0.5, top + 0.5),
    )
    axes.grid(visible=False)
    axes.set_ylabel(spoken(str(record.arrays["targets"][target])))
    axes.tick_params(labelbottom=False)
    axes.set_title("(a) alignment")
    figure.colorbar(image, ax=axes, label="|cosine|", shrink=0.8)


def _spans(axes: Axes, record: Record, target: int) -> None:
    overlap = record.arrays["span_overlap"]
    index = np.arange(1, overlap.shape[1] + 1)
    axes.plot(index, overlap[0], color=TRUTH, lw=1)
    axes.plot(index, overlap[target], color=CYCLE[3], lw=1)
    axes.set_xlim(0.5, index[-1] + 0.5)
    axes.set_ylim(0, 1)
    axes.set_xlabel("training eigenvector, j")
    axes.set_ylabel("span")


def _decay(axes: Axes, record: Record, targets: Sequence[int]) -> None:
    arrays, config = record.arrays, record.config
    styles = looks(arrays["families"].tolist())
    exponent = arrays["train_decay"][0]
    index = np.arange(1, len(arrays["train_eigenvalues"]) + 1)
    label = rf"training, $i^{{-{exponent:.2f}}}$"
    axes.loglog(index, arrays["train_eigenvalues"] / config["n"], color=TRUTH, lw=1.8, label=label)
    for target in targets:
        family = str(arrays["families"][target])
        values = arrays["eigenvalues"][target]
        values = values[values > 0] / arrays["sizes"][target]
        line = "--" if family == CLEAN else "-"
        axes.loglog(
            np.arange(1, len(values) + 1), values, line, color=styles[family]["color"], lw=1, label=spoken(family)
        )
    axes.set_xlabel("index")
    axes.set_ylabel("eigenvalue of the covariance")
    axes.set_title("(b) decay")
    axes.legend(fontsize=6, loc="lower left")


def _prediction(axes: Axes, record: Record) -> None:
    arrays, truth = record.arrays, true_error(record)
    styles = looks(arrays["families"].tolist())
    for family, style in styles.items():
        members = np.flatnonzero(arrays["families"] == family)
        if len(members):
            sizes = 14 + 9 * arrays["severities"][members]
            axes.scatter(
                arrays["projnorm"][members],
                100 * truth[members],
                s=sizes,
                label=spoken(family),
                alpha=0.8,
                linewidths=0,
                **style,
            )
    found = fit_quality(arrays["projnorm"], truth)
    axes.set_title(rf"(c) $R^2$ = {found.r_squared:.3f}, Spearman {found.spearman:.3f}")
    axes.set_xlabel("ProjNormLinear")
    whose = "fine-tuned network" if "network_error" in arrays else "kernel regression"
    axes.set_ylabel(f"error of the {whose} (%)")
    if len(styles) <= _LEGEND:
        axes.legend(fontsize=6, loc="upper left")
