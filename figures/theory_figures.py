"""The smaller figures of the theory, one function each.

The counterexample to the paper's bound, the intervals against the angle between the tails, and in two dimensions; where
and how tightly they hold on drawn designs; the toy experiment's blind scores and other designs; spectra and alignment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from figures.report import single_figure
from figures.style import CYCLE, GENERALISED, PAPER, SHARP, TRUTH, WIDTH, Figure, plot
from projnorm.core.records import Record
from simulations.bound_check import Family
from simulations.bound_summaries import distances_to_loss, misses_by_dial
from simulations.counterexample import closed_form_ratios
from simulations.toy_summaries import toy_curves

COUNTEREXAMPLE_CAPTION = (
    "Three features, one shared direction, tails at an angle. The paper's bound says the scaled ratio is 1 at every "
    "angle (orange), because both tail eigenvalues are 1; two ground truths that satisfy its assumptions as printed "
    "(markers) leave it as soon as the tails are not orthogonal, and the sharp interval (green) ends exactly on them."
)


@plot("The paper's bound needs orthogonal tails", COUNTEREXAMPLE_CAPTION)
def draw_counterexample(figure: Figure, record: Record) -> None:
    """Ratio against the angle, measured on both ground truths, with the closed forms and the intervals."""
    arrays = record.arrays
    phi, degrees = arrays["phi"], np.degrees(arrays["phi"])
    axes = figure.add_subplot()
    axes.fill_between(degrees, *arrays["sharp"].T, color=SHARP, alpha=0.2, lw=0, label="sharp interval")
    tan_squared, cot_squared = closed_form_ratios(phi)
    axes.plot(degrees, tan_squared, color=SHARP, label=r"$\tan^2(\varphi/2)$")
    axes.plot(degrees, cot_squared, color=SHARP, ls="--", label=r"$\cot^2(\varphi/2)$")
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


show_counterexample = single_figure(draw_counterexample, "counterexample")


TAIL_ANGLE_CAPTION = (
    "The ratio of test loss to ProjNormLinear squared on one drawn design as its tails lean from orthogonal (left) "
    "towards each other; each mark is a ground truth with the same training labels. The paper's interval (orange) "
    "holds at 90 degrees and loses them as the tails lean, the generalised one (blue) always holds, and the sharp one "
    "(green) is the smallest that can: a ground truth can be built on each of its ends (diamonds)."
)


@plot("Three intervals for the test loss", TAIL_ANGLE_CAPTION, height=3.6)
def draw_tail_angle(figure: Figure, record: Record) -> None:
    """Bands of the intervals and marks of the truth against the tail angle."""
    arrays = record.arrays
    angle = arrays["angle"]
    axes = figure.add_subplot()
    axes.fill_between(angle, *arrays["generalised"].T, color=GENERALISED, alpha=0.18, lw=0, label="generalised bound")
    axes.fill_between(angle, *arrays["sharp"].T, color=SHARP, alpha=0.45, lw=0, label="sharp interval")
    axes.plot(angle, arrays["paper"][:, 0], color=PAPER, lw=2, label="paper's bound")
    axes.plot(angle, arrays["paper"][:, 1], color=PAPER, lw=2)
    axes.plot(angle, arrays["ratio"], ".", ms=2.5, color=TRUTH, alpha=0.6)
    axes.plot([], [], ".", color=TRUTH, label=r"ground truths $\theta^*$, drawn")
    some = slice(None, None, max(1, angle.size // 10))
    axes.plot(angle[some], arrays["extreme"][some], "D", ms=3.5, mfc="white", color=TRUTH)
    axes.plot([], [], "D", ms=3.5, mfc="white", color=TRUTH, label=r"ground truths $\theta^*$, built")
    axes.set_yscale("log")
    axes.set_ylim(top=4 * arrays["generalised"].max())
    axes.invert_xaxis()
    axes.set_xlabel("angle between the tails (degrees); 90 is the paper's assumption")
    axes.set_ylabel(r"TestLoss / ProjNormLinear$^2$")
    axes.legend(loc="upper left")


show_tail_angle = single_figure(draw_tail_angle, "tail_angle")


GEOMETRY_CAPTION = (
    "Two features, one training row (horizontal) and one shifted row (at an angle). Every ground truth on the dashed "
    "line fits the training label, and its loss is the squared distance between the projections of the truth and of "
    "the fit on the shifted row. Equal projections (rho = 1) leave the two green truths; one of them runs off to "
    "infinity as the angle closes. A length in the plane of both rows (eta) leaves the two blue ones, whose loss goes "
    "to zero with the angle. A truth of random direction has the density on the right."
)


@plot("What each interval allows", GEOMETRY_CAPTION, width=6.0, height=4.6)
def draw_geometry(figure: Figure) -> None:
    """The two row spaces, the line of truths, and those that each ratio allows."""
    axes, density = figure.subplots(1, 2, width_ratios=(4, 1), sharey=True)
    angle, eta, fit = math.radians(50), 1.35, 1.0
    cosine, sine = math.cos(angle), math.sin(angle)
    reach = np.array([-2.6, 2.6])
    axes.plot(reach, 0 * reach, color="0.6", lw=1)
    axes.plot(reach * cosine, reach * sine, color="0.6", lw=1)
    axes.annotate("training row", (-2.0, 0.0), (0, 3), textcoords="offset points", color="0.4")
    axes.annotate("shifted row", (0.98, 1.38), color="0.4", rotation=math.degrees(angle), rotation_mode="anchor")
    axes.axvline(fit, color=TRUTH, ls="--", lw=1)

    circle = np.linspace(0, 2 * math.pi, 200)
    axes.plot(eta * np.cos(circle), eta * np.sin(circle), color=GENERALISED, lw=0.9)
    for sign in (-1, 1):  # the lines on which the projection on the shifted row has the length of the fit
        foot = np.array([sign * fit * cosine, sign * fit * sine])
        ends = foot + np.outer([-4, 4], [-sine, cosine])
        axes.plot(*ends.T, color=SHARP, lw=0.9)

    def mark(heights: tuple[float, float], color: str, label: str) -> None:
        for height in heights:
            seen = fit * cosine + height * sine
            axes.plot([fit, seen * cosine], [height, seen * sine], color=color, lw=0.6, ls=":")
            axes.plot(seen * cosine, seen * sine, ".", color=color, ms=4)
        axes.plot([fit, fit], heights, "o", color=color, ms=7, label=label)

    mark((fit * math.tan(angle / 2), -fit / math.tan(angle / 2)), SHARP, r"$\rho = 1$: equal projections")
    offset = fit * math.sqrt(eta**2 - 1)
    mark((offset, -offset), GENERALISED, rf"$\eta = {eta}$: length in both rows")
    axes.plot(fit, 0, "s", color=TRUTH, ms=7, label=r"fit $\hat\theta$")
    axes.plot(fit * cosine**2, fit * cosine * sine, "s", color=TRUTH, ms=4)
    axes.set(
        xlim=(-2.4, 2.4),
        ylim=(-2.6, 2.2),
        aspect="equal",
        xticks=[],
        yticks=[],
        xlabel="first feature",
        ylabel="second feature",
    )
    axes.grid(visible=False)
    axes.legend(loc="lower left", fontsize=7.5)

    heights = np.linspace(-2.6, 2.2, 300)
    density.fill_betweenx(heights, 0, 1 / (math.pi * (1 + (heights / fit) ** 2)), color=CYCLE[1], alpha=0.4, lw=0)
    density.set(xticks=[], xlim=(0, 0.4), xlabel="density", ylabel="", title="random direction")
    density.grid(visible=False)


DIALS_CAPTION = (
    "Share of drawn designs on which an interval misses the true loss, as the tails lean from a right angle (left), "
    "the norms become unequal (middle) or the shared span tilts (right). The paper's interval (orange) and the "
    "generalised one at the true k (dashed, which needs the shared span) start to miss; the sharp interval and the "
    "generalised one at k = 0, given rho, and the joint one, given eta, never do. Dotted: the sharp interval with rho "
    "wrongly taken as 1."
)
# Lines that coincide are told apart by hollow markers of different sizes.
_DIALS_LINES: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("paper", "paper's", "o-", {"color": PAPER, "ms": 3}),
    ("generalised_k", "generalised, true k", "s--", {"color": GENERALISED, "ms": 6, "mfc": "none"}),
    ("sharp", "sharp, joint, generalised at k = 0", "D-", {"color": SHARP, "ms": 3}),
    ("sharp_rho_1", r"sharp, $\rho$ taken as 1", "^:", {"color": TRUTH, "ms": 8, "mfc": "none", "mew": 0.7}),
)
_DIALS_PANELS: dict[Family, tuple[str, float]] = {
    "phi": ("lean of the tails (°)", 180 / np.pi),
    "rho": (r"$\rho - 1$", 1.0),
    "tilt": ("tilt of the span (°)", 180 / np.pi),
}


@plot("Breaking one assumption at a time", DIALS_CAPTION, height=2.9)
def draw_dials(figure: Figure, record: Record) -> None:
    """One panel per dial."""
    row = figure.subplots(1, 3, sharey=True)
    for axes, (family, (label, unit)) in zip(row, _DIALS_PANELS.items(), strict=True):
        for name, legend, line_style, properties in _DIALS_LINES:
            centres, share = misses_by_dial(record, family, name)
            axes.plot(centres * unit, 100 * share, line_style, label=legend, **properties)
        axes.set_xlabel(label, fontsize=8)
        axes.set_ylim(-3, 103)
    row[0].set_ylabel("designs missed (%)")
    figure.legend(*row[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)


TIGHTNESS_CAPTION = (
    "Share of designs on which an end is within a given factor of the true loss: left the upper end, right the lower. "
    "Designs with leaning tails, where the paper's interval may fail: its curves start left of 1. The sharp interval "
    "is never wider than the generalised one, and knowing the shared span (k) tightens that one by far. The joint one "
    "is given eta instead of rho."
)
_TIGHTNESS_LINES = {
    "paper": ("paper's", PAPER, "-"),
    "generalised_0": ("generalised, k = 0", GENERALISED, ":"),
    "generalised_k": ("generalised, true k", GENERALISED, "-"),
    "sharp": ("sharp", SHARP, "-"),
    "joint": ("joint", CYCLE[3], "-"),
}


@plot("How tight the intervals are", TIGHTNESS_CAPTION, height=3.0)
def draw_tightness(figure: Figure, record: Record) -> None:
    """Distribution of upper / loss and of loss / lower over the designs with leaning tails."""
    above, below = figure.subplots(1, 2, sharey=True)
    for name, (label, colour, style) in _TIGHTNESS_LINES.items():
        for axes, distances in zip((above, below), distances_to_loss(record, name), strict=True):
            share = np.arange(1, distances.size + 1) / distances.size
            axes.plot(distances, share, style, color=colour, lw=1.8, label=label)
    for axes, label, limit in ((above, "upper end / loss", 1e3), (below, "loss / lower end", 1e9)):
        axes.axvline(1.0, color="0.4", lw=0.8)
        axes.set(xscale="log", xlim=(0.05, limit), xlabel=label)
    above.set_ylabel("share of designs")
    figure.legend(*above.get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize=8)


BLINDNESS_CAPTION = (
    "Left: four statistics of the model's outputs on the same shifted examples. Not one of them moves with sigma, "
    "because the weights of the unseen coordinates are zero; any other function of the outputs would be as flat. "
    "Right: the test error and ProjNormLinear, relative to their values at the smallest sigma, do move."
)
_BLINDNESS_LINES = {
    "mean_margin": ("mean |output|", CYCLE[0], "o-"),
    "confidence": ("mean confidence", CYCLE[4], "s--"),
    "entropy": ("mean entropy", CYCLE[7], "D-."),
    "confident_share": ("share with confidence above 0.9", CYCLE[9], "^:"),
}
_BLINDNESS_RISING = {
    "test_error": ("test error", TRUTH, "s-"),
    "projnorm_linear": ("ProjNormLinear", PAPER, "o-"),
}


@plot("No function of the outputs alone sees this shift", BLINDNESS_CAPTION, WIDTH + 1.0, 3.1)
def draw_blindness(figure: Figure, record: Record) -> None:
    """Means over trials: statistics of the outputs as they are, error and ProjNormLinear relative to their start."""
    sigma, curves = record.arrays["sigma"], toy_curves(record, (*_BLINDNESS_LINES, *_BLINDNESS_RISING))
    flat, rising = figure.subplots(1, 2)
    top = 0.0
    for name, (label, colour, style) in _BLINDNESS_LINES.items():
        top = max(top, float(curves[name].mean.max()))
        flat.plot(sigma, curves[name].mean, style, ms=3.5, color=colour, label=label)
    flat.set(ylim=(0, 1.75 * top), ylabel="statistic of the outputs")
    for name, (label, colour, style) in _BLINDNESS_RISING.items():
        rising.plot(sigma, curves[name].relative, style, ms=4, color=colour, label=label)
    rising.set_ylim(bottom=0)
    rising.set_ylabel(rf"value / value at $\sigma$ = {sigma[0]:g}")
    for axes in (flat, rising):
        axes.set_xlabel(r"$\sigma$")
    flat.legend(loc="upper left", fontsize=7)
    rising.legend(loc="lower right")


TOY_DESIGNS_CAPTION = (
    "Test error, ProjNormLinear and squared loss against sigma, one column for each design. Blue: mean over trials and "
    "two standard errors of it, from draws that all points share; dashed: closed form from the covariances of both "
    "sets, with nothing fitted. ProjNormLinear rises with the test error on every design. The squared loss does so "
    "unless the outputs shrink, as in the design overlap."
)
_TOY_DESIGNS_ROWS = {"test_error": "test error", "projnorm_linear": "ProjNormLinear", "squared_loss": "squared loss"}


@plot("Closed forms of the other designs", TOY_DESIGNS_CAPTION)
def draw_toy_designs(figure: Figure, records: Sequence[Record]) -> None:
    """A column for each record and a row for each quantity."""
    figure.set_size_inches(0.9 + 1.55 * len(records), 4.6)
    grid = figure.subplots(len(_TOY_DESIGNS_ROWS), len(records), sharex=True, sharey="row", squeeze=False)
    for column, record in zip(grid.T, records, strict=True):
        sigma = record.arrays["sigma"]
        for axes, curve in zip(column, toy_curves(record, tuple(_TOY_DESIGNS_ROWS)).values(), strict=True):
            mark = {"fmt": "o", "ms": 3, "lw": 1, "color": GENERALISED, "label": "mean ± 2 s.e."}
            axes.errorbar(sigma, curve.mean, 2 * curve.standard_error, **mark)
            if curve.closed_form is not None:
                axes.plot(sigma, curve.closed_form, "--", color=TRUTH, zorder=3, label="closed form")
        column[0].set_title(record.config["design"])
        column[-1].set_xlabel(r"$\sigma$")
    for axes, label in zip(grid[:, 0], _TOY_DESIGNS_ROWS.values(), strict=True):
        axes.set_ylabel(label)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=2)


SPECTRA_CAPTION = (
    "Left: both spectra of a drawn design and the power laws fitted to them. Right: the cosines between the leading "
    "eigenvectors of the two covariances. Up to the shared dimension (dashed) the eigenvectors mix among themselves "
    "but span the same space; behind it only the leaning of the tails is left."
)


@plot("Eigenvalue decay and alignment", SPECTRA_CAPTION, WIDTH + 1.0, 2.7)
def draw_spectra(figure: Figure, record: Record) -> None:
    """Decay on the left, alignment on the right."""
    arrays, k = record.arrays, record.config["k"]
    decay, heat = figure.subplots(1, 2, width_ratios=(1, 1.1))
    for name, label, colour, marker in (("train", "training", GENERALISED, "."), ("ood", "shifted", PAPER, "x")):
        values, (exponent, low, high, prefactor) = arrays[f"{name}_eigenvalues"], arrays[f"{name}_fit"]
        index = np.arange(1, values.size + 1)
        decay.loglog(index, values, marker, ms=3, color=colour, label=label)
        fit = rf"$i^{{-{exponent:.2f}}}$ [{low:.2f}, {high:.2f}]"
        decay.loglog(
            index, prefactor * index**-exponent, "-" if name == "train" else "--", color=TRUTH, lw=1, label=fit
        )
    decay.set(xlabel="index", ylabel="eigenvalue of the covariance")
    decay.legend(fontsize=7, loc="lower left")
    top = len(arrays["alignment"])
    image = heat.imshow(
        arrays["alignment"], origin="lower", cmap="magma_r", vmin=0, vmax=1, extent=(0.5, top + 0.5, 0.5, top + 0.5)
    )
    heat.axvline(k + 0.5, color="0.3", ls="--", lw=0.8)
    heat.axhline(k + 0.5, color="0.3", ls="--", lw=0.8)
    heat.grid(visible=False)
    heat.set(xlabel="training eigenvector", ylabel="shifted eigenvector")
    figure.colorbar(image, ax=heat, label="|cosine|", shrink=0.9)


show_spectra = single_figure(draw_spectra, "spectra")
