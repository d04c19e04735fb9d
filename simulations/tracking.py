"""How well scores and intervals follow the test loss, over the trials and sigmas of a toy record."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from projnorm.fit_quality import fit_quality
from projnorm.records import Record
from simulations.bound_check import holds
from simulations.toy import INTERVALS


@dataclass(frozen=True, slots=True)
class ScoreTracking:
    """One score against the loss, pooled over trials and sigmas.

    Attributes:
        score: Name of the score.
        r_squared: Share of the variance of the loss that a straight line in the score explains; nan for a constant.
        spearman: Rank correlation with the loss; nan for a constant.
    """

    score: str
    r_squared: float
    spearman: float


@dataclass(frozen=True, slots=True)
class IntervalTracking:
    """One interval against the loss, over the trials that computed it.

    Attributes:
        interval: Name of the interval.
        coverage: Share of losses it contains, where it exists; nan if nowhere.
        infeasible: Share of points at which no linear ground truth gives both sets of labels, and it does not exist.
        median_width: Median of upper end over lower end; inf where lower ends are zero.
        spearman_upper: Rank correlation of its upper end with the loss.
    """

    interval: str
    coverage: float
    infeasible: float
    median_width: float
    spearman_upper: float


def score_tracking(record: Record) -> list[ScoreTracking]:
    """ProjNormLinear and confidence against the squared loss."""
    loss = record.arrays["squared_loss"].ravel()
    rows = []
    for score in ("projnorm_linear", "confidence"):
        found = fit_quality(record.arrays[score], loss)
        rows.append(ScoreTracking(score, found.r_squared, found.spearman))
    return rows


def interval_tracking(record: Record) -> list[IntervalTracking]:
    """The three intervals against the squared loss; empty when the record has none."""
    computed = len(record.arrays["rho"])
    if computed == 0:
        return []
    loss = record.arrays["squared_loss"][:computed]
    rows = []
    for name in INTERVALS:
        exists = ~np.isnan(record.arrays[name][..., 0])
        ends, covered_loss = record.arrays[name][exists], loss[exists]
        if not exists.any():
            rows.append(IntervalTracking(name, float("nan"), 1.0, float("nan"), float("nan")))
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            width = float(np.median(ends[..., 1] / ends[..., 0]))
        upper = ends[..., 1]
        spearman = fit_quality(upper, covered_loss).spearman
        coverage = float(np.mean(holds(covered_loss, ends)))
        rows.append(IntervalTracking(name, coverage, float(np.mean(~exists)), width, spearman))
    return rows
