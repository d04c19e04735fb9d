"""The paper's three-panel figure on tangent kernels: alignment, decay, and ProjNormLinear against the error."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from figures.families import CLEAN, by_family, label_of, scatter, size_keys, styles
from figures.headings import kernel_heading, train_images
from figures.style import CYCLE, TRUTH, Axes, Figure, plot
from projnorm.core.records import Record
from projnorm.core.statistics import fit_quality

CAPTION = (
    "(a) Cosines between the leading eigenvectors of the covariances of the training set and of a shifted set, colours "
    "on a square-root scale; below, the share of the span of the top j training eigenvectors that lies in the span of "
    "the top j of the clean test set and of the shifted set. (b) Eigenvalues of the covariances on a log scale: "
    "training set, clean test set and shifted sets. (c) ProjNormLinear against the true error, one point a target; "
    "larger marks are stronger shifts; R^2 and Spearman's rank correlation r_s above it. Dotted lines "
    "are targets without labels."
)
# More families than this have their legend below the panels.
_LEGEND = 5


@plot("Tangent kernels: alignment, decay, prediction", CAPTION, 8.2)
def draw(figure: Figure, record: Record, *, aligned: str | None = None, decays: Sequence[str] | None = None) -> None:
    """Three panels: by default of the target with the largest error, of the strongest of each family, and of all.

    Where no target has labels, the one with the largest ProjNormLinear stands for the one with the largest error.
    """
    arrays = record.arrays
    names = arrays["targets"].tolist()
    shown = _worst(record) if aligned is None else names.index(aligned)
    lines = _strongest(record) if decays is None else [names.index(name) for name in decays]
    many = len(styles(arrays["families"].tolist())) > _LEGEND
    if many:
        figure.set_figheight(4.1)
    figure.suptitle(kernel_heading(record))
    axes = figure.subplot_mosaic(
        [["heat", "decay", "scatter"], ["spans", "decay", "scatter"]],
        width_ratios=(1.05, 1, 1.15),
        height_ratios=(2.2, 1),
    )
    _alignment(figure, axes["heat"], record, shown)
    _spans(axes["spans"], record, shown)
    _decay(axes["decay"], record, lines)
    _prediction(axes["scatter"], record)
    handles = [*axes["scatter"].get_legend_handles_labels()[0], *size_keys(arrays["severities"])]
    if many:
        figure.legend(handles=handles, loc="outside lower center", ncols=7, fontsize=6.5, title="panel (c)")
    else:
        axes["scatter"].legend(handles=handles, fontsize=6)


def true_error(record: Record) -> np.ndarray:
    """The error that is predicted: of the fine-tuned network where there is one, else of the kernel regression."""
    return record.arrays.get("network_error", record.arrays["error"])


def _worst(record: Record) -> int:
    error = true_error(record)
    return int(np.argmax(record.arrays["projnorm"]) if np.isnan(error).all() else np.nanargmax(error))


def spectrum(record: Record, target: int) -> tuple[np.ndarray, np.ndarray]:
    """Index and value of the positive eigenvalues of a target's covariance."""
    values = record.arrays["eigenvalues"][target]
    values = values[values > 0] / record.arrays["sizes"][target]
    return np.arange(1, len(values) + 1), values


def _strongest(record: Record) -> list[int]:
    severities = record.arrays["severities"]
    groups = by_family(record.arrays["families"])
    return [int(members[np.argmax(severities[members])]) for _, members, _ in groups]


def _alignment(figure: Figure, axes: Axes, record: Record, target: int) -> None:
    from matplotlib.colors import PowerNorm

    matrix = record.arrays["alignment"][target]
    top = len(matrix)
    extent = (0.5, top + 0.5, 0.5, top + 0.5)
    norm = PowerNorm(0.5, 0, 1)
    image = axes.imshow(matrix, origin="lower", cmap="magma_r", norm=norm, aspect="auto", extent=extent)
    axes.grid(visible=False)
    axes.set_ylabel(f"eigenvector, {label_of(str(record.arrays['targets'][target]))}", fontsize=8)
    axes.tick_params(labelbottom=False)
    axes.set_title("(a) alignment")
    figure.colorbar(image, ax=axes, label="|cosine|", shrink=0.8)


def _spans(axes: Axes, record: Record, target: int) -> None:
    overlap, names = record.arrays["span_overlap"], record.arrays["targets"]
    index = np.arange(1, overlap.shape[1] + 1)
    for i, colour, style in ((0, TRUTH, "--"), (target, CYCLE[3], "-"))[: 2 if target else 1]:
        axes.plot(index, overlap[i], style, color=colour, lw=1, label=label_of(str(names[i])))
    axes.set(xlim=(0.5, index[-1] + 0.5), ylim=(0, 1), xlabel="training eigenvector, j")
    axes.set_ylabel("shared\nspan", fontsize=8)
    axes.legend(fontsize=6, loc="upper right")


def _decay(axes: Axes, record: Record, targets: Sequence[int]) -> None:
    arrays, n = record.arrays, train_images(record)
    by_name = styles(arrays["families"].tolist())
    index = np.arange(1, len(arrays["train_eigenvalues"]) + 1)
    label = rf"training, $i^{{-{arrays['train_decay'][0]:.2f}}}$"
    axes.loglog(index, arrays["train_eigenvalues"] / n, color=TRUTH, lw=1.8, label=label)
    for target in targets:
        family, name = str(arrays["families"][target]), label_of(str(arrays["targets"][target]))
        line = "--" if family == CLEAN else "-"
        axes.loglog(*spectrum(record, target), line, color=by_name[family]["color"], lw=1, label=name)
    axes.set(xlabel="index", ylabel="eigenvalue of the covariance", title="(b) decay")
    if len(targets) <= _LEGEND + 1:
        axes.legend(fontsize=6, loc="upper right")


def _prediction(axes: Axes, record: Record) -> None:
    arrays, truth = record.arrays, true_error(record)
    known = ~np.isnan(truth)
    scatter(axes, arrays["projnorm"], 100 * truth, arrays["families"], arrays["severities"])
    by_name = styles(arrays["families"].tolist())
    for target in np.flatnonzero(~known):
        axes.axvline(arrays["projnorm"][target], color=by_name[str(arrays["families"][target])]["color"], ls=":")
    if not known.any():
        axes.set_ylim(0, 100)
    quality = fit_quality(arrays["projnorm"][known], truth[known])
    scored = rf"$R^2$ = {quality.r_squared:.3f}, $r_s$ = {quality.spearman:.3f}" if known.any() else "no labels"
    axes.set(title=f"(c) {scored}", xlabel="ProjNormLinear")
    whose = "fine-tuned network" if "network_error" in arrays else "kernel regression"
    axes.set_ylabel(f"error of the {whose} (%)")
