"""The toy figure of the paper, with bands over trials and our closed forms."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from figures import blindness, toy_table, tracking_table
from figures.show import Drawing, Shown
from figures.style import GENERALISED, TRUTH, WIDTH, drawing
from projnorm.records import Record
from simulations.summaries import closed_form_gap, closed_forms, toy_rows
from simulations.tracking import interval_tracking, score_tracking

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "The Gaussian toy experiment"
CAPTION = (
    "As coordinates unseen in training gain variance (sigma), the test error and the loss rise. ProjNormLinear rises "
    "with them; the confidence score, like anything made of the outputs alone, does not move. Blue: mean over trials "
    "and a band of one standard deviation; dashed: closed form, with nothing fitted."
)


def show(record: Record, _folder: Path | None) -> Shown:
    """The numbers beside their closed forms, and how scores and intervals follow the loss."""
    design, trials = record.config["design"], record.config["trials"]
    figures = {"toy": Drawing(TITLE, CAPTION, partial(draw, record))}
    if design == "gaussian":
        figures["blindness"] = Drawing(blindness.TITLE, blindness.CAPTION, partial(blindness.draw, record))
    return Shown(
        blocks=[
            f"Toy experiment, design {design}: mean ± standard error of {trials} trials [closed form]",
            toy_table.build(record),
            "How scores follow the loss over all trials and sigmas, and the share of losses in each interval:",
            tracking_table.build([record]),
        ],
        figures=figures,
        values={
            "rows": toy_rows(record),
            "scores": [asdict(row) for row in score_tracking(record)],
            "intervals": [asdict(row) for row in interval_tracking(record)],
        },
        title=TITLE if design == "gaussian" else f"The toy experiment, design {design}",
        verdict=_verdict(record),
        record=record,
    )


def draw(record: Record) -> Figure:
    """Four panels against sigma."""
    sigma, theory = record.arrays["sigma"], closed_forms(record)
    with drawing(WIDTH, 4.2) as figure:
        grid = figure.subplots(2, 2, sharex=True)
        for axes, (name, label) in zip(grid.flat, toy_table.PANELS.items(), strict=True):
            _band(axes, sigma, record.arrays[name])
            if theory is not None:
                axes.plot(sigma, getattr(theory, name), "--", color=TRUTH, label="closed form")
            axes.set_ylabel(label)
        for axes in grid[1]:
            axes.set_xlabel(r"$\sigma$")
        # The flat line must not be blown up by its own noise: it gets the range of the test error.
        spread = np.ptp(record.arrays["test_error"].mean(axis=0)) or 0.1
        middle = float(record.arrays["confidence"].mean())
        low, high = grid[1, 0].get_ylim()
        grid[1, 0].set_ylim(min(low, middle - spread), max(high, middle + spread))
        grid[0, 0].legend(loc="lower right")
    return figure


def _band(axes: Axes, sigma: np.ndarray, values: np.ndarray) -> None:
    mean = values.mean(axis=0)
    deviation = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros_like(mean)
    axes.plot(sigma, mean, "o-", ms=3, color=GENERALISED, label="mean of trials")
    axes.fill_between(sigma, mean - deviation, mean + deviation, color=GENERALISED, alpha=0.25, lw=0, label="± 1 s.d.")


def _verdict(record: Record) -> str:
    gap = closed_form_gap(record)
    if gap is None:
        return ""
    agrees = "agrees" if gap.agrees else "does not agree"
    differ = f"differ from them by at most {gap.share:.1%}, or {gap.standard_errors:.1f} standard errors"
    return f"The toy experiment {agrees} with its closed forms: means over the trials {differ}."
