"""What the records of the simulations say, as rows of numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from projnorm.core.records import Record
from projnorm.core.statistics import FitQuality, fit_quality
from projnorm_theory import ToyAsymptotics, toy_asymptotics
from simulations.bound_check import FAMILIES, INTERVALS, MUST_HOLD, Family, Instance, holds, measure
from simulations.toy import INTERVALS as TOY_INTERVALS
from simulations.toy_designs import DESIGNS

TOY_QUANTITIES = ("test_error", "projnorm_linear", "confidence", "squared_loss")
# A mean agrees with its closed form up to this number of standard errors, or what Student's distribution makes of them
# when trials are few. As sizes are not infinite, it may also be off by this share, or by the inverse of the effective
# number of rows where that is larger.
_NOISE, _ASYMPTOTIC = 4.0, 0.02


@dataclass(frozen=True, slots=True)
class ClosedFormGap:
    """Means over the trials against their closed forms.

    Attributes:
        share: Largest difference, as a share of the largest closed form of the quantity.
        standard_errors: Largest difference in standard errors of the mean.
        agrees: Whether every difference is explained by noise and by the sizes being finite.
    """

    share: float
    standard_errors: float
    agrees: bool


def closed_forms(record: Record) -> ToyAsymptotics | None:
    """The closed forms of a toy record's configuration; None where the training rows are about as many as d1.

    For the paper's design the moments of the weights are exact; for the others they are deterministic equivalents.
    """
    config = record.config
    if abs(config["n"] - config["d1"]) < 4:
        return None
    options = {name: config[name] for name in ("d1", "d2", "n", "m", "outputs")}
    if config["design"] == "gaussian":
        return toy_asymptotics(config["sigmas"], **options)
    return DESIGNS[config["design"]].asymptotics(np.array(config["sigmas"]), **options)


def toy_rows(record: Record) -> list[dict[str, Any]]:
    """One row per sigma: for each quantity its mean, standard error and closed form (None where there is none)."""
    theory = closed_forms(record)
    trials = len(record.arrays["test_error"])
    rows = []
    for i, sigma in enumerate(record.arrays["sigma"]):
        row: dict[str, Any] = {"sigma": float(sigma)}
        for name in TOY_QUANTITIES:
            sample = record.arrays[name][:, i]
            row[name] = {
                "mean": float(np.mean(sample)),
                "standard_error": float(np.std(sample, ddof=1)) / math.sqrt(trials) if trials > 1 else None,
                "closed_form": float(getattr(theory, name)[i]) if theory is not None else None,
            }
        rows.append(row)
    return rows


def closed_form_gap(record: Record) -> ClosedFormGap | None:
    """How far the means over the trials are from their closed forms; None where there are none, or only one trial."""
    theory, trials = closed_forms(record), len(record.arrays["test_error"])
    if theory is None or trials < 2:
        return None
    share, noise, agrees = [], [], []
    noise_limit = float(stdtrit(trials - 1, ndtr(_NOISE)))
    finite_size = np.maximum(_ASYMPTOTIC, 1 / theory.effective)
    for name in TOY_QUANTITIES:
        sample, expected = record.arrays[name], np.asarray(getattr(theory, name))
        gap, error = np.abs(sample.mean(axis=0) - expected), sample.std(axis=0, ddof=1) / math.sqrt(trials)
        share.append(gap.max() / np.abs(expected).max())
        noise.append((gap / np.maximum(error, np.finfo(float).tiny)).max())
        agrees.append(gap <= noise_limit * error + finite_size * np.abs(expected).max())
    return ClosedFormGap(float(max(share)), float(max(noise)), bool(np.all(agrees)))


def score_tracking(record: Record) -> dict[str, FitQuality]:
    """How well ProjNormLinear and confidence follow the squared loss, over all trials and sigmas of a toy record."""
    loss = record.arrays["squared_loss"]
    return {score: fit_quality(record.arrays[score], loss) for score in ("projnorm_linear", "confidence")}


def interval_tracking(record: Record) -> list[dict[str, Any]]:
    """One row per interval of a toy record, over the trials that computed it; empty where there is none.

    "coverage" is the share of losses that it contains where it exists, and "infeasible" the share of points at which no
    linear ground truth gives both sets of labels, so that it does not exist. "median_width" is the median of upper end
    over lower end, and "spearman_upper" the rank correlation of the upper end with the loss. Nan where there is none.
    """
    computed = len(record.arrays["rho"])
    if computed == 0:
        return []
    loss = record.arrays["squared_loss"][:computed]
    rows = []
    for name in TOY_INTERVALS:
        exists = ~np.isnan(record.arrays[name][..., 0])
        ends = record.arrays[name][exists]
        with np.errstate(divide="ignore", invalid="ignore"):
            widths = ends[..., 1] / ends[..., 0]
        rows.append(
            {
                "interval": name,
                "coverage": float(np.mean(holds(loss[exists], ends))) if exists.any() else math.nan,
                "infeasible": float(np.mean(~exists)),
                "median_width": float(np.median(widths)) if exists.any() else math.nan,
                "spearman_upper": fit_quality(ends[..., 1], loss[exists]).spearman,
            }
        )
    return rows


def bound_rows(record: Record) -> list[dict[str, Any]]:
    """One row per family of designs and interval: how often it misses the loss, its slack and its width.

    The last row of a family is the prediction interval at 90 % for isotropic truths, of which only misses are known.
    """
    rows = []
    for number, family in enumerate(FAMILIES):
        chosen = record.arrays["family"] == number
        if not chosen.any():
            continue
        loss = record.arrays["loss"][chosen]
        for interval in INTERVALS:
            ends = record.arrays[interval][chosen]
            lower, upper = ends.T
            with np.errstate(divide="ignore", invalid="ignore"):
                slack = np.minimum(upper / loss - 1, 1 - lower / loss)
                width = upper / lower
            rows.append(
                {
                    "family": family,
                    "interval": interval,
                    "instances": int(chosen.sum()),
                    "missed": float(np.mean(~holds(loss, ends))),
                    "must_hold": family in MUST_HOLD.get(interval, ()),
                    "worst_slack": float(np.nanmin(slack)) if np.isfinite(slack).any() else None,
                    "median_width": float(np.nanmedian(width)) if np.isfinite(width).any() else None,
                }
            )
        probability = record.arrays["probability"][chosen]
        rows.append(
            {
                "family": family,
                "interval": "spherical",
                "instances": int(chosen.sum()),
                "missed": float(np.mean(np.abs(probability - 0.5) > 0.45)),
                "must_hold": False,
                "worst_slack": None,
                "median_width": None,
            }
        )
    return rows


def misses_by_dial(
    record: Record, family: Family, interval: str, bins: int = 8
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Centres of equally filled bins of the dial, and the share of designs that an interval misses in each."""
    chosen = record.arrays["family"] == FAMILIES.index(family)
    dial = record.arrays["dial"][chosen]
    missed = ~holds(record.arrays["loss"][chosen], record.arrays[interval][chosen])
    groups = [group for group in np.array_split(np.argsort(dial), bins) if group.size]
    return np.array([dial[g].mean() for g in groups]), np.array([missed[g].mean() for g in groups])


def instance_rows(instance: Instance) -> list[dict[str, Any]]:
    """One row per interval of a single design: its ends, the loss, and whether it holds and must."""
    measured = measure(instance)
    return [
        {
            "interval": name,
            "lower": measured[name][0],
            "loss": measured["loss"],
            "upper": measured[name][1],
            "holds": bool(holds(measured["loss"], np.array(measured[name]))),
            "must_hold": instance.family in MUST_HOLD.get(name, ()),
        }
        for name in INTERVALS
    ]
