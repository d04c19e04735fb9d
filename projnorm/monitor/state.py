"""What a monitor knows after some lines of its journal: a value that each line turns into the next one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Self

import numpy as np

from projnorm.core.statistics import Interval, normal_reach
from projnorm.estimate.recalibration import Recalibration
from projnorm.monitor.alarm import Alarm, labelled_log_values
from projnorm.monitor.batch_report import BatchReport
from projnorm.monitor.lines import BatchLine, LabelsLine, Line, ResetLine, SettingsLine


@dataclass(frozen=True, slots=True)
class LabelledBatch:
    """A batch with labels, as the correction of later estimates takes it.

    Attributes:
        error: Its error by the labels.
        label_free: The estimate without them.
        noise: `StratumCounts.noise` of the labels.
        spread: Standard deviation that the interval of the estimate claims.
    """

    error: float
    label_free: float
    noise: float
    spread: float


@dataclass(frozen=True, slots=True, eq=False)
class MonitorState:
    """The batches so far and both alarms.

    >>> from projnorm.monitor.lines import VERSION
    >>> line = BatchLine(
    ...     VERSION,
    ...     estimator="",
    ...     threshold=0.3,
    ...     alpha=0.05,
    ...     name="monday",
    ...     time="",
    ...     digest="",
    ...     m=100,
    ...     error=0.2,
    ...     low=0.1,
    ...     high=0.3,
    ...     noise=0.04,
    ...     log_values=(-1.0,) * 6,
    ...     not_refuted=("no shift",),
    ...     warnings=(),
    ... )
    >>> state = MonitorState(0.9, Alarm(0.35, 0.025), Alarm(0.3)).after(line)
    >>> str(state.reports["monday"]), state.has_alarm
    ('monday: 20.0 % (10.0 % to 30.0 %)', False)

    Attributes:
        level: Level of the intervals.
        by_estimates: Alarm from the estimates without labels.
        by_labels: Alarm from labels alone.
        batches: The line of every batch, by its name, in the order in which they came.
        reports: The report on every batch.
        labelled: The batches that have labels, in the order of these.
        has_settings: Whether there was a line of settings.
    """

    level: float
    by_estimates: Alarm
    by_labels: Alarm
    batches: Mapping[str, BatchLine] = field(default_factory=lambda: MappingProxyType({}))
    reports: Mapping[str, BatchReport] = field(default_factory=lambda: MappingProxyType({}))
    labelled: tuple[LabelledBatch, ...] = ()
    has_settings: bool = False

    @property
    def latest(self) -> str:
        """The latest time of a batch; empty where none has a time."""
        return max((batch.time for batch in self.batches.values()), default="")

    @property
    def has_alarm(self) -> bool:
        """Whether an alarm was raised since the last reset."""
        return self.by_estimates.is_raised or self.by_labels.is_raised

    def after(self, line: Line) -> Self:
        """The state after one more line; a known batch, and labels of an unknown one, change nothing."""
        match line:
            case BatchLine():
                return self if line.name in self.reports else self._after_batch(line)
            case LabelsLine():
                return self._after_labels(line) if line.name in self.reports else self
            case ResetLine():
                return replace(self, by_estimates=self.by_estimates.restarted(), by_labels=self.by_labels.restarted())
            case SettingsLine():
                return replace(self, has_settings=True)

    def _after_batch(self, line: BatchLine) -> Self:
        interval = self._corrected(line)
        alarm = self.by_estimates.after(np.array(line.log_values))
        report = BatchReport(
            name=line.name,
            time=line.time,
            m=line.m,
            error=interval.value,
            low=interval.low,
            high=interval.high,
            not_refuted=line.not_refuted,
            warnings=line.warnings,
            recalibrated_by=len(self.labelled),
            log_evidence=alarm.log_evidence,
            is_alarm=alarm.is_raised and not self.by_estimates.is_raised,
        )
        return replace(
            self,
            by_estimates=alarm,
            batches={**self.batches, line.name: line},
            reports={**self.reports, line.name: report},
        )

    def _after_labels(self, line: LabelsLine) -> Self:
        counts, batch = line.counts, self.batches[line.name]
        spread = (batch.high - batch.low) / (2.0 * normal_reach(self.level))
        alarm = self.by_labels.after(labelled_log_values(self.by_labels.threshold, counts))
        report = replace(
            self.reports[line.name],
            labels=int(counts.labelled.sum()),
            labelled_error=line.error,
            labelled_low=line.low,
            labelled_high=line.high,
            labelled_log_evidence=alarm.log_evidence,
            is_labelled_alarm=alarm.is_raised and not self.by_labels.is_raised,
        )
        return replace(
            self,
            by_labels=alarm,
            reports={**self.reports, line.name: report},
            labelled=(*self.labelled, LabelledBatch(line.error, batch.error, counts.noise, spread)),
        )

    def _corrected(self, line: BatchLine) -> Interval:
        """The estimate for a batch, corrected by the labels of earlier ones."""
        if not self.labelled:
            return Interval(line.error, line.low, line.high)
        errors, label_free, noises, spreads = (
            np.array([getattr(batch, name) for batch in self.labelled])
            for name in ("error", "label_free", "noise", "spread")
        )
        correction = Recalibration.fit(errors, label_free, noises, float(spreads.mean()))
        return correction.interval(line.error, line.noise, self.level)
