"""Eigenvalue decay of every target's tangent kernel, one panel a family."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from figures.families import severity_keys, severity_shades, spoken
from figures.ntk_panels import heading, spectrum
from figures.style import TRUTH, drawing, panels
from projnorm.records import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Eigenvalue decay of every target"
CAPTION = (
    "Eigenvalues of the covariance of the tangent features, one line a severity, darker for stronger shifts; the "
    "dashed line is the training set, the same in every panel. In brackets the exponents of the power laws fitted, "
    "from the weakest shift to the strongest."
)
# Few families in three columns, many in five.
_COLUMNS, _MANY, _MORE_COLUMNS = 3, 9, 5


def draw(record: Record) -> Figure:
    """One panel per family, log-log."""
    arrays = record.arrays
    families = list(dict.fromkeys(arrays["families"].tolist()))
    columns = min(_COLUMNS if len(families) <= _MANY else _MORE_COLUMNS, len(families))
    size = (2.2 * columns, 2.0 * math.ceil(len(families) / columns) + 0.7)
    shade = severity_shades(arrays["severities"])
    with drawing(*size, heading=heading(record), x="index", y="eigenvalue of the covariance") as figure:
        train = arrays["train_eigenvalues"] / record.config["n"]
        for axes, family in zip(
            panels(figure, len(families), columns, sharex=True, sharey=True), families, strict=True
        ):
            members = np.flatnonzero(arrays["families"] == family)
            for target in members:
                axes.loglog(*spectrum(record, target), color=shade[int(arrays["severities"][target])], lw=1)
            axes.loglog(np.arange(1, len(train) + 1), train, "--", color=TRUTH, lw=1)
            exponents = arrays["decay"][members, 0]
            ends = f"{exponents[0]:.2f}" + (f" to {exponents[-1]:.2f}" if len(members) > 1 else "")
            axes.set_title(f"{spoken(family)} [{ends}]", fontsize=8)
        keys = severity_keys(arrays["severities"], "training set")
        figure.legend(handles=keys, loc="outside lower center", ncols=6, fontsize=7)
    return figure
