"""What a record of the verification says: misses, slack and width of the intervals, and one design by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from projnorm.core.records import Record
from projnorm_theory.bounds import holds
from simulations.bound_check import FAMILIES, INTERVALS, MUST_HOLD, Family, Instance, measure
from simulations.designs import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class RatioSample:
    """The paper's interval for TestLoss / ProjNormLinear^2 where its assumptions hold, sorted by the upper ends.

    Attributes:
        lower: Lower ends, shape ``(design,)``.
        upper: Upper ends.
        ratio: The true ratios.
        total: Number of designs that the sample was taken from.
    """

    lower: FloatArray
    upper: FloatArray
    ratio: FloatArray
    total: int


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


class MissesByDial(NamedTuple):
    """How often an interval misses the loss, by the dial.

    Attributes:
        centres: Mean of the dial in each bin, shape ``(bins,)``.
        share: Share of the designs in each bin that the interval misses, shape ``(bins,)``.
    """

    centres: NDArray[np.float64]
    share: NDArray[np.float64]


def misses_by_dial(record: Record, family: Family, interval: str, bins: int = 8) -> MissesByDial:
    """The share of designs of a family that an interval misses, in bins of the dial with equally many designs."""
    chosen = record.arrays["family"] == FAMILIES.index(family)
    dial = record.arrays["dial"][chosen]
    missed = ~holds(record.arrays["loss"][chosen], record.arrays[interval][chosen])
    groups = [group for group in np.array_split(np.argsort(dial), bins) if group.size]
    centres, share = (np.array([values[group].mean() for group in groups]) for values in (dial, missed))
    return MissesByDial(centres, share)


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


def ratio_sample(record: Record, count: int) -> RatioSample:
    """At most `count` of the designs that satisfy every assumption, evenly taken from all of them."""
    exact = np.flatnonzero(record.arrays["family"] == FAMILIES.index("exact"))
    sample = exact[np.linspace(0, exact.size - 1, min(count, exact.size)).astype(int)]
    square = record.arrays["projnorm_linear"][sample] ** 2
    lower, upper = record.arrays["paper"][sample].T / square
    ratio = record.arrays["loss"][sample] / square
    order = np.lexsort((ratio, upper))
    return RatioSample(lower[order], upper[order], ratio[order], exact.size)


class DistancesToLoss(NamedTuple):
    """Distances of the ends of an interval from the loss, each in ascending order.

    Attributes:
        above: Upper end over the loss, shape ``(designs,)``.
        below: The loss over the lower end, shape ``(designs,)``.
    """

    above: FloatArray
    below: FloatArray


def distances_to_loss(record: Record, interval: str, family: Family = "phi") -> DistancesToLoss:
    """The distances of the ends of an interval from the loss, on the designs of a family."""
    chosen = record.arrays["family"] == FAMILIES.index(family)
    loss = record.arrays["loss"][chosen]
    lower, upper = record.arrays[interval][chosen].T
    with np.errstate(divide="ignore"):
        return DistancesToLoss(np.sort(upper / loss), np.sort(loss / lower))
