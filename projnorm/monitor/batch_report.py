"""The report of a monitor on one batch: plain data."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from projnorm.core.formatting import finite_or_none, percent


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """The error of a model on one batch, and what all batches so far say of the threshold.

    Attributes:
        name: Name of the batch.
        time: Time of the batch as it was given; empty where it was not.
        m: Number of samples.
        error: Estimate without labels of this batch; corrected by labels of earlier ones, where there are any.
        low: Lower end of its interval.
        high: Upper end of its interval.
        not_refuted: Hypotheses about the shift that were not refuted.
        warnings: What a reader must know of the estimate.
        recalibrated_by: Number of labelled batches that corrected the estimate.
        log_evidence: Logarithm of the evidence that the error was ever above the threshold, after this batch.
        is_alarm: Whether this batch raised the alarm.
        labels: Number of labels of this batch.
        labelled_error: Error that they give; nan without labels.
        labelled_low: Lower end of its interval.
        labelled_high: Upper end of its interval.
        labelled_log_evidence: As `log_evidence`, from labels alone, after the labels of this batch; nan without labels.
        is_labelled_alarm: Whether these labels raised the alarm.
        is_new: Whether this call took in the batch, or labels of it.
    """

    name: str
    time: str
    m: int
    error: float
    low: float
    high: float
    not_refuted: tuple[str, ...]
    warnings: tuple[str, ...]
    recalibrated_by: int
    log_evidence: float
    is_alarm: bool
    labels: int = 0
    labelled_error: float = math.nan
    labelled_low: float = math.nan
    labelled_high: float = math.nan
    labelled_log_evidence: float = math.nan
    is_labelled_alarm: bool = False
    is_new: bool = True

    def to_dict(self) -> dict[str, object]:
        """The report as plain JSON values; None where there are no labels."""
        return {name: finite_or_none(value) for name, value in asdict(self).items()}

    def __str__(self) -> str:
        text = f"{self.name}: {percent(self.error)} ({percent(self.low)} to {percent(self.high)})"
        if self.labels:
            ends = f"{percent(self.labelled_low)} to {percent(self.labelled_high)}"
            text += f"; by {self.labels:,} labels {percent(self.labelled_error)} ({ends})"
        return text + ("; ALARM" if self.is_alarm else "") + ("; ALARM by labels" if self.is_labelled_alarm else "")
