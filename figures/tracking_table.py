"""How scores and intervals follow the loss, design by design."""

from __future__ import annotations

from collections.abc import Sequence

from figures.table import Table
from projnorm.runs import Record
from simulations.tracking import IntervalTracking, interval_tracking, score_tracking

CAPTION = (
    "Over all trials and sigmas of each design: squared and rank correlation of ProjNormLinear and of the confidence "
    "score with the test loss, and the share of losses inside each interval (paper's at rho = 1; ours at the measured "
    "rho, where they must hold). Where the outputs do not change with sigma, what confidence shows is noise between "
    "trials. On the design `overlap` the variance is fixed and the loss hardly moves, so there is little to follow; "
    "on `label-noise` the intervals still hold, because independent rows fit any labels."
)


def build(records: Sequence[Record]) -> Table:
    """One row a design."""
    header = ("design", "ProjNorm R²", "ProjNorm rho", "conf. R²", "conf. rho", "paper's", "generalised", "sharp")
    rows = []
    for record in records:
        scores, intervals = score_tracking(record), interval_tracking(record)
        correlations = [f"{value:.3f}" for score in scores for value in (score.r_squared, score.spearman)]
        coverage = [_coverage(interval) for interval in intervals] or ["-"] * 3
        rows.append((str(record.config["design"]), *correlations, *coverage))
    return Table(header, rows)


def _coverage(interval: IntervalTracking) -> str:
    if not interval.infeasible:
        return f"{interval.coverage:.0%}"
    covered = "-" if interval.infeasible == 1.0 else f"{interval.coverage:.0%}"
    return f"{covered} ({interval.infeasible:.0%} infeasible)"
