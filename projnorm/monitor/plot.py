"""The error of a model over batches as a picture: estimates with their intervals, what labels say, the threshold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from projnorm.monitor.batch_report import BatchReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# With more batches, lines have no markers.
_MANY = 200
_TRUTH = "0.15"


def plot_errors(
    axes: Axes,
    reports: Sequence[BatchReport],
    *,
    threshold: float,
    source_error: float,
    colours: tuple[str, str, str] = ("C0", "C1", "C3"),
) -> None:
    """Draw the errors of batches, one after the other.

    Args:
        axes: Axes of matplotlib to draw on.
        reports: The reports of a monitor.
        threshold: Error above which there is an alarm.
        source_error: Error on the source.
        colours: Colours of the estimates, of what labels say, and of alarms.
    """
    by_estimates, by_labels, alarms = colours
    x = np.arange(len(reports))
    values = {name: np.array([getattr(report, name) for report in reports]) for name in ("error", "low", "high")}
    error, low, high = (100 * values[name] for name in ("error", "low", "high"))
    marker = "o" if len(reports) <= _MANY else ""
    axes.fill_between(x, low, high, color=by_estimates, alpha=0.18, lw=0, label="interval")
    axes.plot(x, error, color=by_estimates, lw=1, marker=marker, ms=2.5, label="estimate without labels")
    known = [i for i, report in enumerate(reports) if report.labels]
    if known:
        y = np.array(
            [[100 * getattr(reports[i], f"labelled_{end}") for i in known] for end in ("low", "error", "high")]
        )
        ends = [y[1] - y[0], y[2] - y[1]]
        axes.errorbar(known, y[1], yerr=ends, fmt="s", color=by_labels, ms=3, lw=0.8, capsize=1.5, label="from labels")
    axes.axhline(100 * threshold, color=_TRUTH, lw=1, ls="--", label="threshold")
    axes.axhline(100 * source_error, color=_TRUTH, lw=0.8, ls=":", label="error on the source")
    for name, attribute, colour, style in (
        ("alarm", "is_alarm", by_estimates, "-"),
        ("alarm from labels", "is_labelled_alarm", by_labels, "-."),
    ):
        for i in (i for i, report in enumerate(reports) if getattr(report, attribute)):
            axes.axvline(i, color=alarms, lw=1.2, ls=style)
            side = "right" if i else "left"
            axes.annotate(name, (i, axes.get_ylim()[1]), fontsize=7, color=colour, ha=side, va="top", rotation=90)
    axes.set_ylabel("error (%)")
    axes.set_ylim(bottom=0)
