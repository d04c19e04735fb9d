"""What an estimate says: the error, its interval, what it is based on, and what every method says; plain data."""

from __future__ import annotations

import html
import math
from dataclasses import asdict, dataclass, fields
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from projnorm.core.formatting import finite_or_none, joined, percent
from projnorm.core.statistics import Floats, Interval, normal_reach
from projnorm.estimate.hypotheses import BOTH, INPUTS, HypothesisResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from projnorm.labels.labelled import LabelledError
    from projnorm.labels.metrics import MetricEstimate

_STATED = {
    "classes": " Only class shares are taken to have changed, as stated.",
    "inputs": " Class shares are taken to be those of the source, as stated.",
    "known class shares": " Class shares are taken to be those that were given.",
}


@dataclass(frozen=True, slots=True)
class MethodResult:
    """What one method says of a target.

    Attributes:
        method: Name of the method.
        score: Score of the method; nan if it was not run or is undefined here.
        error: Error predicted by the method alone: by a line fitted to the calibration sets, or the score itself where
            it is an error and there are none; nan where there is neither.
        mae: Mean absolute error of that line on families left out; nan without calibration.
        note: "not run: ..." with the reason; else empty.
    """

    method: str
    score: float = math.nan
    error: float = math.nan
    mae: float = math.nan
    note: str = ""


@dataclass(frozen=True, slots=True)
class Coverage:
    """How often intervals held on families they had not seen.

    Attributes:
        share: Share of the sets, with an interval from bootstrap draws of whole families.
        width: Median width of the intervals, cut to 0 to 1.
    """

    share: Interval
    width: float


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationSummary:
    """The labelled shifted sets that a calibrated estimate is based on.

    Attributes:
        origin: Where the sets come from, in words.
        names: Name of each set.
        families: Family of shifts that each set belongs to.
        errors: True error on each set.
        predicted: Predicted error of each set, by what was learnt from the other families.
        mae: Mean absolute difference of the two.
        coverage: How often intervals at the same level held when each family was left out in turn.
    """

    origin: str
    names: tuple[str, ...]
    families: NDArray[np.str_]
    errors: Floats
    predicted: Floats
    mae: float
    coverage: Coverage

    def to_dict(self) -> dict[str, object]:
        """The summary as plain JSON values."""
        share = self.coverage.share
        return {
            "origin": self.origin,
            "sets": list(self.names),
            "families": self.families.tolist(),
            "errors": self.errors.tolist(),
            "predicted": self.predicted.tolist(),
            "mae": self.mae,
            "coverage": [finite_or_none(end) for end in (share.value, share.low, share.high)],
            "median_width": self.coverage.width,
        }


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class ErrorEstimate:
    """The estimated error of a model on one target.

    Attributes:
        target: Name of the target.
        m: Number of samples in it.
        error: The estimate, from 0 to 1.
        low: Lower end of the interval.
        high: Upper end of the interval.
        level: Level of the interval, such as 0.9.
        based_on: Names of the methods that the estimate is made of.
        source_error: Error of the model on the labelled source set.
        n_source: Number of samples in that set.
        methods: What each method says.
        sampling_noise: Standard deviation of the error that comes from the number of samples alone.
        warnings: What a reader must know.
        hypotheses: The error under each hypothesis about the shift, and which are refuted; empty where methods were
            named.
        class_shares: Class shares of the target: known ones, or those that are likeliest if only they changed.
        calibration: What a calibrated estimate is based on; None where there were no calibration sets.
        truth: True error, where the target came with labels; they serve for nothing else.
        how_to_calibrate: How to have calibration sets, where there are none.
        assumed: What the user said of the shift: "any", "classes", "inputs" or "known class shares".
        labelled: What labels of some samples say, where there were any; error and interval are then theirs.
        recalibrated_by: Number of labelled batches that corrected the estimate and its interval.
        metrics: Metrics besides the error, where they were asked for: from the labels, or from probabilities that
            expect the estimated error.

    Examples:
        >>> import projnorm as pn
        >>> from projnorm.outputs.examples import example_outputs
        >>> source, target = example_outputs(1000, shift=0.0)
        >>> estimate = pn.estimate_error(None, source, target)
        >>> estimate.based_on, estimate.level, estimate.low < estimate.error < estimate.high
        (('DoC',), 0.9, True)
    """

    target: str
    m: int
    error: float
    low: float
    high: float
    level: float
    based_on: tuple[str, ...]
    source_error: float
    n_source: int
    methods: tuple[MethodResult, ...]
    sampling_noise: float
    warnings: tuple[str, ...] = ()
    hypotheses: tuple[HypothesisResult, ...] = ()
    class_shares: tuple[float, ...] = ()
    calibration: CalibrationSummary | None = None
    truth: float | None = None
    how_to_calibrate: str = ""
    assumed: str = "any"
    labelled: LabelledError | None = None
    recalibrated_by: int = 0
    metrics: tuple[MetricEstimate, ...] = ()

    def probability_above(self, threshold: float) -> float:
        """Probability that the error is above a threshold, as far as the interval covers.

        Half of the probability is on either side of the estimate, spread as a normal law that has the end of the
        interval as its quantile.

        Args:
            threshold: Error that would be too large, between 0 and 1.
        """
        end = self.high if threshold >= self.error else self.low
        reach = normal_reach(self.level)
        spread = max(abs(end - self.error) / reach, 1e-9)
        return 1.0 - NormalDist(self.error, spread).cdf(threshold)

    @property
    def not_refuted(self) -> tuple[str, ...]:
        """Names of the hypotheses about the shift that were not refuted."""
        return tuple(hypothesis.name for hypothesis in self.hypotheses if not hypothesis.refuted)

    @property
    def covers(self) -> str:
        """What the interval covers, in words."""
        if self.labelled is not None:
            return "the draw of the labels, whatever the shift"
        if self.recalibrated_by:
            return "sampling noise and what the estimate misses on batches like the labelled ones"
        if self.calibration is not None:
            return "sampling noise and the method's error under shifts like those of the calibration sets"
        if not self.hypotheses:
            return "sampling noise, what the methods say, and an allowance for real shifts"
        return "sampling noise, the hypotheses that were not refuted, and an allowance for real shifts"

    @property
    def kind(self) -> str:
        """An interval where calibration sets measured it or labels give it, else a range."""
        has_labels = self.labelled is not None or self.recalibrated_by > 0
        return "interval" if has_labels or self.calibration is not None else "range"

    @property
    def sentence(self) -> str:
        """What the error is and what it is based on, in words."""
        if self.labelled is not None:
            return f"{self._answer}, on {self.m:,} samples.{self._truth} {self.labelled.sentence}"
        head = (
            f"{self._answer}, on {self.m:,} samples; {percent(self.source_error)} on the {self.n_source:,} labelled "
            f"ones.{self._truth}{self._assumption} It is based on {joined(self.based_on)}"
        )
        if self.recalibrated_by:
            batches = f"{self.recalibrated_by} labelled batch{'es' if self.recalibrated_by > 1 else ''}"
            return f"{head}, corrected by {batches}. The interval covers {self.covers}."
        c = self.calibration
        if c is None:
            return (
                f"{head}, without calibration sets. The range covers {self.covers}, measured on a benchmark; a change "
                "of what the inputs mean can exceed it."
                f"{f' For a better founded answer, {self.how_to_calibrate}.' if self.how_to_calibrate else ''}"
            )
        count = len(set(c.families.tolist()))
        return (
            f"{head}, calibrated on {len(c.errors)} labelled sets of {count} families ({c.origin}). On families left "
            f"out it missed the error by {100 * c.mae:.1f} points in the mean, and {_coverage(c.coverage)}. The "
            "interval covers sampling noise and the method's error under shifts like these; shifts of another kind "
            "are not covered."
        )

    def to_dict(self) -> dict[str, object]:
        """The estimate as plain JSON values, with the sentence and what the interval covers."""
        own = {
            attribute.name: getattr(self, attribute.name)
            for attribute in fields(self)
            if attribute.name not in ("how_to_calibrate", "assumed")
        }
        return own | {
            "covers": self.covers,
            "sentence": self.sentence,
            "based_on": list(self.based_on),
            "warnings": list(self.warnings),
            "methods": [_finite(asdict(method)) for method in self.methods],
            "hypotheses": [_finite(asdict(hypothesis)) for hypothesis in self.hypotheses],
            "class_shares": list(self.class_shares),
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
            "labelled": None if self.labelled is None else self.labelled.to_dict(),
            "metrics": [_finite(asdict(metric)) for metric in self.metrics],
        }

    @property
    def summary(self) -> str:
        """The estimate in a few sentences, without its warnings."""
        if self.labelled is not None:
            return f"{self._answer}.{self._truth} {self.labelled.sentence}"
        return (
            f"{self._answer}.{self._truth}{self._assumption} Based on {joined(self.based_on)}; "
            f"{percent(self.source_error)} on the labelled source. The {self.kind} covers {self.covers}."
        )

    def to_frame(self) -> Any:
        """The estimate as a DataFrame of pandas.

        The first row is the estimate with its interval, then there is one for each hypothesis about the shift and one
        for each method that was run.
        """
        from projnorm.core.lazy import load

        run = [method for method in self.methods if math.isfinite(method.score) or math.isfinite(method.error)]
        names = ", ".join(self.based_on)
        rows: list[dict[str, object]] = [
            {"row": "estimate", "name": names, "error": self.error, "low": self.low, "high": self.high},
            *({"row": "hypothesis", **asdict(hypothesis)} for hypothesis in self.hypotheses),
            *({"row": "method", "name": method.method, **asdict(method)} for method in run),
        ]
        columns = ["row", "name", "error", "low", "high", "p_value", "refuted", "score", "mae", "note"]
        return load("pandas").DataFrame(rows, columns=columns)

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the interval, the error on the source and what each method says.

        Args:
            axes: Axes of matplotlib to draw on; new ones by default.

        Returns:
            The axes.
        """
        from projnorm.estimate.plot import draw_estimate

        return draw_estimate(self, axes)

    def __str__(self) -> str:
        return "\n".join([self.summary, *(f"Warning: {warning}" for warning in self.warnings)])

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(method.method)}</td><td>{method.score:.4g}</td><td>{percent(method.error)}</td></tr>"
            for method in self.methods
            if math.isfinite(method.error)
        )
        warnings = "".join(f"<li>{html.escape(warning)}</li>" for warning in self.warnings)
        answer = f"{percent(self.error)} ({100 * self.level:g} %: {percent(self.low)} to {percent(self.high)})"
        return (
            f"<p><b>{html.escape(self.target)}: {answer}</b></p><p>{html.escape(self.sentence)}</p><ul>{warnings}</ul>"
            + (f"<table><tr><th>method</th><th>score</th><th>error</th></tr>{rows}</table>" if rows else "")
        )

    @property
    def _answer(self) -> str:
        ends = f"{percent(self.low)} to {percent(self.high)}"
        return f"Estimated error {percent(self.error)}, {100 * self.level:g} % {self.kind} {ends}"

    @property
    def _assumption(self) -> str:
        """What the outputs say of the shift."""
        if not self.hypotheses:
            return ""
        if self.assumed != "any":
            return _STATED[self.assumed]
        if "no shift" in self.not_refuted:
            return " The outputs show no shift."
        if "class shares" in self.not_refuted:
            return " A change of class shares alone explains the outputs."
        by_name = {result.name: result for result in self.hypotheses}
        inputs, both = by_name[INPUTS], by_name[BOTH]
        unlikely = ", which they do not look like," if inputs.refuted else ","
        return (
            f" Inputs have changed: the error is {percent(inputs.error)} if class shares are those of the source"
            f"{unlikely} and {percent(both.error)} if class shares have changed too; the true class shares or a few "
            "labels would decide."
        )

    @property
    def _truth(self) -> str:
        return "" if self.truth is None else f" The true error, from the target's labels, is {percent(self.truth)}."


def _finite(values: dict[str, object]) -> dict[str, object]:
    """The same with None for numbers that are not finite, as JSON has it."""
    return {name: finite_or_none(value) for name, value in values.items()}


def _coverage(measured: Coverage) -> str:
    share = measured.share
    if math.isnan(share.value):
        return "how often such intervals hold cannot be measured with so few families"
    ends = f" [{100 * share.low:.0f}, {100 * share.high:.0f}]" if math.isfinite(share.low) else ""
    return f"such intervals held on {100 * share.value:.0f} % of the sets of a family they had not seen{ends}"
