"""The toy experiment on its other designs, beside the closed forms of each."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from figures.style import GENERALISED, TRUTH, Figure, plot
from projnorm.core.records import Record
from simulations.summaries import closed_forms

CAPTION = (
    "Test error, ProjNormLinear and squared loss against sigma, one column for each design. Blue: mean over trials and "
    "two standard errors of it, from draws that all points share; dashed: closed form from the covariances of both "
    "sets, with nothing fitted. ProjNormLinear rises with the test error on every design. The squared loss does so "
    "unless the outputs shrink, as in the design overlap."
)
ROWS = {"test_error": "test error", "projnorm_linear": "ProjNormLinear", "squared_loss": "squared loss"}


@plot("Closed forms of the other designs", CAPTION)
def draw(figure: Figure, records: Sequence[Record]) -> None:
    """A column for each record and a row for each quantity."""
    figure.set_size_inches(0.9 + 1.55 * len(records), 4.6)
    grid = figure.subplots(len(ROWS), len(records), sharex=True, sharey="row", squeeze=False)
    for column, record in zip(grid.T, records, strict=True):
        theory = closed_forms(record)
        for axes, name in zip(column, ROWS, strict=True):
            sigma, values = record.arrays["sigma"], record.arrays[name]
            error = values.std(axis=0, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else np.zeros_like(sigma)
            axes.errorbar(
                sigma, values.mean(axis=0), 2 * error, fmt="o", ms=3, lw=1, color=GENERALISED, label="mean ± 2 s.e."
            )
            if theory is not None:
                axes.plot(sigma, getattr(theory, name), "--", color=TRUTH, zorder=3, label="closed form")
        column[0].set_title(record.config["design"])
        column[-1].set_xlabel(r"$\sigma$")
    for axes, label in zip(grid[:, 0], ROWS.values(), strict=True):
        axes.set_ylabel(label)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
