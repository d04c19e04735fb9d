"""What an estimate says: the error, its interval, what it rests on, and what every method found."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deep.calibration import Floats, Interval
from deep.predict.conformal import Coverage


@dataclass(frozen=True, slots=True)
class MethodResult:
    """What one method says of a target.

    Attributes:
        method: Its name.
        score: As it is; nan if it was not run or is undefined here.
        error: Predicted: by a line fitted to the calibration sets, or the score itself where it is an error and there
            are none; nan where there is neither.
        mae: Mean absolute error of that line on families left out; nan without calibration.
        note: "not run: ..." with the reason; else empty.
    """

    method: str
    score: float
    error: float
    mae: float
    note: str


@dataclass(frozen=True, slots=True, eq=False)
class Grounds:
    """The labelled shifted sets that a calibrated estimate rests on.

    Attributes:
        origin: Where the sets come from.
        names: Of the sets.
        families: Of the sets.
        errors: True ones.
        predicted: For each set, by what was learnt from the other families.
        mae: Mean absolute difference of the two.
        coverage: Of intervals at the same level, each family left out in turn.
    """

    origin: str
    names: tuple[str, ...]
    families: NDArray[np.str_]
    errors: Floats
    predicted: Floats
    mae: float
    coverage: Coverage


@dataclass(frozen=True, slots=True, eq=False)
class ErrorEstimate:
    """The estimate for one target.

    Attributes:
        target: Its name.
        m: Samples in it.
        error: The estimate, from 0 to 1.
        low: Lower end of the interval.
        high: Upper end.
        level: Of the interval.
        rests_on: Methods that the estimate is made of.
        source_error: Of the model on the labelled source set.
        n_source: Samples in that set.
        methods: What each method says.
        warnings: What a reader must know.
        grounds: Of a calibrated estimate; None where the interval covers sampling noise only.
    """

    target: str
    m: int
    error: float
    low: float
    high: float
    level: float
    rests_on: tuple[str, ...]
    source_error: float
    n_source: int
    methods: tuple[MethodResult, ...]
    warnings: tuple[str, ...]
    grounds: Grounds | None
    _above: Callable[[float], float]

    def probability_above(self, threshold: float) -> float:
        """Probability that the error is above a threshold, as far as the interval covers."""
        return self._above(threshold)

    @property
    def sentence(self) -> str:
        """What was found and what it rests on, in words."""
        head = (
            f"Estimated error {percent(self.error)}, {100 * self.level:g} % interval {percent(self.low)} to "
            f"{percent(self.high)}, on {self.m:,} samples; {percent(self.source_error)} on the {self.n_source:,} "
            f"labelled ones. It rests on {joined(self.rests_on)}"
        )
        if self.grounds is None:
            return (
                f"{head}, without calibration. The interval covers the sampling noise of both sets; the method's own "
                "error under shift is not covered. For that, give labelled shifted sets, or the network with its "
                "inputs."
            )
        g = self.grounds
        count = len(set(g.families.tolist()))
        held = f", and {_held(g.coverage)}"
        return (
            f"{head}, calibrated on {len(g.errors)} labelled sets of {count} families ({g.origin}). On families left "
            f"out it missed the error by {100 * g.mae:.1f} points in the mean{held}. The interval covers sampling "
            "noise and the method's error under shifts like these; shifts of another kind are not covered."
        )


def _held(measured: Coverage) -> str:
    share: Interval = measured.share
    if math.isnan(share.value):
        return "how often such intervals hold cannot be measured with so few families"
    return (
        f"such intervals held on {100 * share.value:.0f} % of the sets of a family they had not seen "
        f"[{100 * share.low:.0f}, {100 * share.high:.0f}]"
    )


def percent(share: float) -> str:
    """A share in percent."""
    return f"{100 * share:.1f} %"


def joined(names: Sequence[str]) -> str:
    """Names with commas and an "and"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
