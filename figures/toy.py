"""The toy figure of the paper, with bands over trials and our closed forms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from figures.report import Report
from figures.style import GENERALISED, TRUTH, Drawing, Figure, plot
from figures.table import Cell, Number, Table
from figures.theory_figures import draw_blindness, draw_toy_designs
from projnorm.core.formatting import joined, percent
from projnorm.core.records import Record
from simulations.toy_summaries import closed_form_gap, interval_tracking, score_tracking, toy_curves, toy_rows

CAPTION = (
    "As coordinates unseen in training gain variance (sigma), the test error and the loss rise. ProjNormLinear rises "
    "with them; the confidence score, like anything made of the outputs alone, does not move. Blue: mean over trials "
    "and a band of one standard deviation; dashed: closed form, with nothing fitted."
)
OVERLAP_CAPTION = (
    "The total variance is fixed, and its share in coordinates unseen in training grows with sigma. The test error and "
    "ProjNormLinear rise. The outputs shrink, so the confidence score falls, and the loss does not rise. Blue: mean "
    "over trials and a band of one standard deviation; dashed: closed form, with nothing fitted."
)
# How "two-class linear regression" is read.
READINGS = {"sign": "one output on labels ±1", "one-hot": "two outputs on one-hot labels"}
DESIGNS_CAPTION = (
    "Over all trials and sigmas of each design: squared and rank correlation of ProjNormLinear and of the confidence "
    "score with the test loss, and the share of losses inside each interval (the paper's at rho = 1; ours at the "
    "measured rho, where they must hold). Where the outputs do not change with sigma, any correlation of the "
    "confidence score is noise between trials. In the design `overlap` the variance is fixed and the loss hardly "
    "moves, so there is little to follow; in `label-noise` the intervals still hold, because independent rows fit any "
    "labels. With fewer rows than in the run of the paper's sizes both ProjNormLinear and the loss vary more from "
    "trial to trial, so on the same design, gaussian, the squared correlation over single trials is lower than there."
)
PANELS = {
    "test_error": "test error",
    "projnorm_linear": "ProjNormLinear",
    "confidence": "confidence score",
    "squared_loss": "squared loss",
}


def show(record: Record, _folder: Path | None) -> Report:
    """The numbers beside their closed forms, and how scores and intervals follow the loss."""
    design, trials = record.config["design"], record.config["trials"]
    heading = f"Toy experiment, design {design}, {_reading(record)}"
    figures = {"toy": drawing(record)}
    if design == "gaussian":
        figures["blindness"] = draw_blindness.later(record)
    rows, scores = table(record), tracking([record])
    return Report(
        blocks=[
            f"{heading}: mean ± standard error of {trials} trials [closed form]",
            rows,
            "How scores follow the loss over all trials and sigmas, and the share of losses in each interval:",
            scores,
        ],
        figures=figures,
        values={
            "rows": toy_rows(record),
            "scores": [{"score": score, **asdict(fit)} for score, fit in score_tracking(record).items()],
            "intervals": interval_tracking(record),
        },
        title=draw.title if design == "gaussian" else f"The toy experiment, design {design}",
        verdict=_verdict(record),
        tables={"toy_table": rows, "toy_scores": scores},
        record=record,
    )


def show_designs(records: Sequence[Record]) -> Report:
    """Several designs side by side."""
    figures = {"toy_designs": draw_toy_designs.later(records)}
    table = tracking(records)
    text = (DESIGNS_CAPTION, *_gaps(records))
    return Report([table, *text], figures, title="Other designs", tables={"toy_designs_table": table})


def drawing(record: Record) -> Drawing:
    """The figure, with a caption that says how the labels enter the regression."""
    drawn = draw.later(record)
    caption = OVERLAP_CAPTION if record.config["design"] == "overlap" else drawn.caption
    return replace(drawn, caption=f"{caption} The regression has {_reading(record)}.")


@plot("The Gaussian toy experiment", CAPTION, height=4.2)
def draw(figure: Figure, record: Record) -> None:
    """Four panels against sigma."""
    sigma, curves = record.arrays["sigma"], toy_curves(record)
    grid = figure.subplots(2, 2, sharex=True)
    for axes, (name, label) in zip(grid.flat, PANELS.items(), strict=True):
        mean, band, closed_form = curves[name].mean, curves[name].deviation, curves[name].closed_form
        axes.plot(sigma, mean, "o-", ms=3, color=GENERALISED, label="mean of trials")
        axes.fill_between(sigma, mean - band, mean + band, color=GENERALISED, alpha=0.25, lw=0, label="± 1 s.d.")
        if closed_form is not None:
            axes.plot(sigma, closed_form, "--", color=TRUTH, label="closed form")
        axes.set_ylabel(label)
    grid[1, 1].set_ylabel(
        f"{PANELS['squared_loss']}, {'±1' if record.config['outputs'] == 'sign' else 'one-hot'} labels"
    )
    for axes in grid[1]:
        axes.set_xlabel(r"$\sigma$")
    # The flat line must not be blown up by its own noise: it gets the range of the test error.
    spread = np.ptp(curves["test_error"].mean) or 0.1
    middle = float(record.arrays["confidence"].mean())
    low, high = grid[1, 0].get_ylim()
    grid[1, 0].set_ylim(min(low, middle - spread), max(high, middle + spread))
    grid[0, 0].legend(loc="lower right")


def table(record: Record) -> Table:
    """One row per sigma: means with their standard errors, and closed forms in brackets."""
    return Table(
        ("sigma", *PANELS.values()),
        [(Number(row["sigma"], "g"), *(_cell(row[name]) for name in PANELS)) for row in toy_rows(record)],
    )


def tracking(records: Sequence[Record]) -> Table:
    """One row per design."""
    scored = ("ProjNorm R^2", "ProjNorm rank corr.", "confidence R^2", "confidence rank corr.")
    header = ("design", "n", *scored, "paper's (%)", "generalised (%)", "sharp (%)")
    rows = []
    for record in records:
        scores, intervals = score_tracking(record), interval_tracking(record)
        correlations = [Number(value) for fit in scores.values() for value in (fit.r_squared, fit.spearman)]
        coverage: list[Cell] = [_coverage(interval) for interval in intervals] or ["-"] * 3
        rows.append((_name(record), Number(record.config["n"], ",d"), *correlations, *coverage))
    return Table(header, rows)


def _reading(record: Record) -> str:
    return READINGS[record.config["outputs"]]


def _name(record: Record) -> str:
    design, outputs = record.config["design"], record.config["outputs"]
    return design if outputs == "sign" else f"{design}, {outputs}"


def _verdict(record: Record) -> str:
    gap = closed_form_gap(record)
    if gap is None:
        return ""
    agrees = "agrees" if gap.agrees else "does not agree"
    differ = f"differ from them by at most {percent(gap.share)}, or {gap.standard_errors:.1f} standard errors"
    heading = f"The toy experiment at n = {record.config['n']:,} {agrees} with its closed forms"
    return f"{heading}: means over the trials {differ}."


def _gaps(records: Sequence[Record]) -> list[str]:
    """How far the means of several designs are from their closed forms, as one paragraph; empty where none has any."""
    gaps = {_name(record): gap for record in records if (gap := closed_form_gap(record)) is not None}
    if not gaps:
        return []
    sizes = joined(sorted({f"{record.config['n']:,}" for record in records}))
    listed = [f"{percent(gap.share)} ({gap.standard_errors:.1f} s.e.) on {name}" for name, gap in gaps.items()]
    text = (
        f"The closed forms are exact as n grows. At n = {sizes} the means over the trials differ from them by at most "
        f"{joined(listed)}, as shares of the largest closed form of the quantity, with standard errors in brackets."
    )
    return [text]


def _cell(entry: dict[str, Any]) -> Number:
    layouts = {"standard_error": " ± {}", "closed_form": " [{}]"}
    known = {name: entry[name] for name in layouts if entry[name] is not None}
    more = {name.replace("_", " "): value for name, value in known.items()}
    return Number(entry["mean"], ".4f", more, "{}" + "".join(layouts[name] for name in known))


def _coverage(interval: dict[str, Any]) -> Number:
    coverage = 100 * interval["coverage"]
    if not interval["infeasible"]:
        return Number(coverage, ".0f")
    return Number(coverage, ".0f", {"infeasible": 100 * interval["infeasible"]}, "{} ({} infeasible)")
