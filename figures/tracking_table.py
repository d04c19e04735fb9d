"""How scores and intervals follow the loss, design by design."""

from __future__ import annotations

from collections.abc import Sequence

from figures.show import Shown
from figures.table import Cell, Number, Table
from projnorm.records import Record
from simulations.tracking import IntervalTracking, interval_tracking, score_tracking

TITLE = "Other designs"
CAPTION = (
    "Over all trials and sigmas of each design: squared and rank correlation of ProjNormLinear and of the confidence "
    "score with the test loss, and the share of losses inside each interval (the paper's at rho = 1; ours at the "
    "measured rho, where they must hold). Where the outputs do not change with sigma, any correlation of the "
    "confidence score is noise between trials. In the design `overlap` the variance is fixed and the loss hardly "
    "moves, so there is little to follow; in `label-noise` the intervals still hold, because independent rows fit any "
    "labels."
)


def show(records: Sequence[Record]) -> Shown:
    """Several designs side by side."""
    return Shown([build(records), CAPTION], title=TITLE)


def build(records: Sequence[Record]) -> Table:
    """One row a design."""
    header = (
        "design",
        "ProjNorm R^2",
        "ProjNorm rho",
        "confidence R^2",
        "confidence rho",
        "paper's (%)",
        "generalised (%)",
        "sharp (%)",
    )
    rows = []
    for record in records:
        scores, intervals = score_tracking(record), interval_tracking(record)
        correlations = [Number(value) for score in scores for value in (score.r_squared, score.spearman)]
        coverage: list[Cell] = [_coverage(interval) for interval in intervals] or ["-"] * 3
        rows.append((str(record.config["design"]), *correlations, *coverage))
    return Table(header, rows)


def _coverage(interval: IntervalTracking) -> Number:
    if not interval.infeasible:
        return Number(100 * interval.coverage, ".0f")
    infeasible = {"infeasible": 100 * interval.infeasible}
    return Number(100 * interval.coverage, ".0f", infeasible, "{} ({} infeasible)")
