"""Eigenvalue decay and alignment, as the paper shows them, on a drawn design whose structure is known."""

from __future__ import annotations

import numpy as np

from figures.report import single_figure
from figures.style import GENERALISED, PAPER, TRUTH, WIDTH, Figure, plot
from projnorm.core.records import Record

CAPTION = (
    "Left: both spectra of a drawn design and the power laws fitted to them. Right: the cosines between the leading "
    "eigenvectors of the two covariances. Up to the shared dimension (dashed) the eigenvectors mix among themselves "
    "but span the same space; behind it only the leaning of the tails is left."
)


@plot("Eigenvalue decay and alignment", CAPTION, WIDTH + 1.0, 2.7)
def draw(figure: Figure, record: Record) -> None:
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


show = single_figure(draw)
