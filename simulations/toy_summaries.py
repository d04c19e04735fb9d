"""What a record of the toy experiment says: curves beside their closed forms, and how scores and intervals do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, stdtrit

from projnorm.core.records import Record
from projnorm.core.statistics import FitQuality, fit_quality
from projnorm_theory import ToyAsymptotics, toy_asymptotics
from projnorm_theory.bounds import holds
from simulations.designs import FloatArray
from simulations.toy import INTERVALS as TOY_INTERVALS
from simulations.toy_designs import DESIGNS

TOY_QUANTITIES = ("test_error", "projnorm_linear", "confidence", "squared_loss")
# A mean agrees with its closed form up to this number of standard errors, or what Student's distribution makes of them
# when trials are few. As sizes are not infinite, it may also be off by this share, or by the inverse of the effective
# number of rows where that is larger.
_NOISE, _ASYMPTOTIC = 4.0, 0.02


@dataclass(frozen=True, slots=True, eq=False)
class ToyCurve:
    """One quantity of the toy experiment against sigma; every field has the shape of sigma.

    Attributes:
        mean: Mean over the trials.
        deviation: Standard deviation over the trials; zeros where there is one trial.
        standard_error: Standard error of the mean.
        closed_form: What the mean tends to; None where there is none.
    """

    mean: FloatArray
    deviation: FloatArray
    standard_error: FloatArray
    closed_form: FloatArray | None

    @property
    def relative(self) -> FloatArray:
        """The mean relative to that at the first sigma."""
        first = self.mean[0]
        return np.divide(self.mean, first, out=np.full_like(self.mean, np.nan), where=first != 0.0)


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


def toy_curves(record: Record, names: Sequence[str] = TOY_QUANTITIES) -> dict[str, ToyCurve]:
    """Arrays of a toy record as curves, with their closed forms where the theory has them."""
    theory, curves = closed_forms(record), {}
    for name in names:
        values = record.arrays[name]
        mean, trials = values.mean(axis=0), len(values)
        deviation = values.std(axis=0, ddof=1) if trials > 1 else np.zeros_like(mean)
        curves[name] = ToyCurve(mean, deviation, deviation / math.sqrt(trials), getattr(theory, name, None))
    return curves


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
