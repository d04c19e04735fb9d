"""The picture of an estimate: its interval, the error on the source, the hypotheses and the methods."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from projnorm.core.lazy import load

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ESTIMATE, _TRUTH = "#0173b2", "0.15"
_CHANGED = {"no shift": "if nothing changed"}


def draw_estimate(estimate: Any, axes: Axes | None = None) -> Axes:
    """Draw an `ErrorEstimate` on the given axes, or on new ones.

    Squares are hypotheses, empty where they are refuted; circles are the methods that the estimate is made of.
    """
    if axes is None:
        axes = load("matplotlib.pyplot").subplots(figsize=(5, 2.6), layout="constrained")[1]
    with_error = [method for method in estimate.methods if math.isfinite(method.error)]
    axes.axvspan(100 * estimate.low, 100 * estimate.high, color=_ESTIMATE, alpha=0.18, lw=0, label="interval")
    axes.axvline(100 * estimate.error, color=_ESTIMATE, lw=1.2, label="estimate")
    axes.axvline(100 * estimate.source_error, color=_TRUTH, lw=0.8, ls=":", label="error on the source")
    if estimate.truth is not None:
        axes.axvline(100 * estimate.truth, color=_TRUTH, lw=1.2, label="true error")
    hypotheses = [hypothesis for hypothesis in estimate.hypotheses if math.isfinite(hypothesis.error)]
    for row, hypothesis in enumerate(hypotheses):
        inside = "none" if hypothesis.refuted else _TRUTH
        axes.plot(100 * hypothesis.error, row, "s", color=_TRUTH, markerfacecolor=inside, ms=4, ls="none")
    for row, method in enumerate(with_error, len(hypotheses)):
        is_member = method.method in estimate.based_on
        marker, colour = ("o", _ESTIMATE) if is_member else ("|", _TRUTH)
        axes.plot(100 * method.error, row, marker, color=colour, ms=5)
    names = [_CHANGED.get(hypothesis.name, f"if {hypothesis.name} changed") for hypothesis in hypotheses] + [
        method.method for method in with_error
    ]
    axes.set_yticks(range(len(names)), names, fontsize=6.5)
    axes.invert_yaxis()
    axes.set_xlabel("error (%)")
    axes.set_title(
        f"{100 * estimate.error:.1f} %, {100 * estimate.level:g} % {estimate.kind} {100 * estimate.low:.1f} % to "
        f"{100 * estimate.high:.1f} %",
        fontsize=8,
    )
    if not with_error:
        axes.legend(fontsize=6, loc="lower right")
    return axes
