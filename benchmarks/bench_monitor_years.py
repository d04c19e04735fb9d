"""What the alarms of a monitor do in a year, for `bench_monitor.py`.

A batch is estimated once and watched with many thresholds, so the alarms are moved by the calls that `Monitor` makes;
`require_agreement` compares both. Labels drawn uniformly from a batch are one stratum, for which `labelled_log_values`
is `log_values` of the mistakes (tests/monitor/test_alarm.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from tempfile import TemporaryDirectory

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.bench_monitor_sets import (
    LABELS_A_BATCH,
    LAST_QUIET_WEEK,
    ROWS,
    STABLE_WEEKS,
    Rated,
    Year,
    real_order,
    year_of,
)
from projnorm.core.arrays import Arrays
from projnorm.estimate.error_estimator import ErrorEstimator
from projnorm.estimate.hypotheses import NO_SHIFT
from projnorm.estimate.recalibration import Recalibration
from projnorm.estimate.target_estimate import estimate_per_sample
from projnorm.estimators.softmax import Floats
from projnorm.labels.counts import StratumCounts
from projnorm.monitor.alarm import Alarm, log_values, source_margin
from projnorm.monitor.monitor import Monitor

ALPHA, LEVEL = 0.05, 0.9
ESTIMATES, FEW_LABELS, ALL_LABELS = "estimates", f"{LABELS_A_BATCH} labels", f"{ROWS} labels"
ALARMS = (ESTIMATES, FEW_LABELS, ALL_LABELS)
CORRECTED = f"estimates corrected by {LABELS_A_BATCH} labels"
ORDER = "real order"
_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Some years of a set, or its real order."""

    data: Rated
    kind: str
    numbers: tuple[int, ...]

    @property
    def years(self) -> list[Year]:
        """The years."""
        if self.kind == ORDER:
            return [real_order(self.data)]
        return [year_of(self.data, self.kind, number) for number in self.numbers]


@dataclass(frozen=True, slots=True, eq=False)
class Watched:
    """Batches of 500 rows, one after the other.

    Attributes:
        n_source: Number of labelled samples of the source.
        estimates: Estimate of each batch.
        spreads: Standard deviation that its interval claims.
        noises: Sampling noise of it.
        wrong: Number of wrong predictions in it.
        labelled_wrong: Number of them among the samples with labels.
        expected: Probability that each sample is wrong.
    """

    n_source: int
    estimates: Floats
    spreads: Floats
    noises: Floats
    wrong: Floats
    labelled_wrong: Floats
    expected: Floats

    @classmethod
    def from_arrays(cls, arrays: Arrays, number: int) -> Watched:
        """A year of what `measured` gave."""
        names = ("estimates", "spreads", "noises", "wrong", "labelled_wrong", "expected")
        return cls(int(arrays["n_source"]), *(arrays[name][number] for name in names))

    def take(self, batches: slice | Sequence[int]) -> Watched:
        """Some of the batches."""
        parts = (self.estimates, self.spreads, self.noises, self.wrong, self.labelled_wrong, self.expected)
        return Watched(self.n_source, *(part[batches] for part in parts))

    @property
    def stable(self) -> Watched:
        """A year in which nothing changes."""
        return self.take(slice(STABLE_WEEKS))

    @property
    def risen(self) -> Watched:
        """The same year with a rise after half of it."""
        return self.take([*range(LAST_QUIET_WEEK), *range(STABLE_WEEKS, len(self.estimates))])

    @property
    def corrected(self) -> Floats:
        """The estimates as the monitor has them where every batch has got its labels before the next one."""
        reports, known = [], np.empty((0, 4))
        for error, spread, noise, wrong in zip(
            self.estimates, self.spreads, self.noises, self.labelled_wrong, strict=True
        ):
            if len(known):
                correction = Recalibration.fit(known[:, 0], known[:, 1], known[:, 2], float(known[:, 3].mean()))
                reports.append(correction.interval(error, noise, LEVEL).value)
            else:
                reports.append(float(error))
            counts = StratumCounts([ROWS], [LABELS_A_BATCH], [int(wrong)])
            known = np.vstack([known, [counts.estimate, error, counts.noise, spread]])
        return np.array(reports)

    def seen_by(self, alarm: str) -> list[Floats]:
        """The numbers of each batch that an alarm is moved by."""
        if alarm == ESTIMATES:
            return list(self.expected.astype(np.float64))
        wrong, count = (self.labelled_wrong, LABELS_A_BATCH) if alarm == FEW_LABELS else (self.wrong, ROWS)
        return [np.repeat([1.0, 0.0], [int(mistakes), count - int(mistakes)]) for mistakes in wrong]

    def evidence(self, alarm: str, threshold: float) -> tuple[Floats, int]:
        """Logarithm of the evidence after each batch, and the batch of the alarm, from 1; 0 for none."""
        return _moved(self.seen_by(alarm), _fresh(alarm, threshold, self.n_source))

    def weeks_of_alarm(self, alarm: str, thresholds: Sequence[float]) -> list[int]:
        """The batch of the alarm at each of these thresholds, from 1; 0 for none."""
        seen = self.seen_by(alarm)
        return [_moved(seen, _fresh(alarm, threshold, self.n_source))[1] for threshold in thresholds]


def measured(task: Task) -> Arrays:
    """Estimates and mistakes of every batch of every year."""
    years, rows = task.years, []
    wrong, outputs = task.data.wrong, task.data.outputs
    for year in years:
        source = outputs.take(year.source)
        fitted = ErrorEstimator.fit(None, source).fitted
        by_sample = [estimate_per_sample(fitted, outputs.take(batch).without_labels()) for batch in year.batches]
        estimates = [sample_estimates.estimate for sample_estimates in by_sample]
        rows.append(
            {
                "estimates": np.array([estimate.error for estimate in estimates]),
                "spreads": np.array([(estimate.high - estimate.low) / (2.0 * _reach()) for estimate in estimates]),
                "noises": np.array([estimate.sampling_noise for estimate in estimates]),
                "refuted": np.array([NO_SHIFT not in estimate.not_refuted for estimate in estimates]),
                "expected": np.stack([sample_estimates.wrong for sample_estimates in by_sample]),
                "wrong": wrong[year.batches].sum(axis=1),
                "labelled_wrong": np.take_along_axis(wrong[year.batches], year.labelled, axis=1).sum(axis=1),
                "error": np.array(year.error),
                "shifted_share": np.array(year.shifted_share),
                "source_error": np.array(source.error),
            }
        )
    return {"n_source": np.array(len(source)), **{key: np.stack([row[key] for row in rows]) for key in rows[0]}}


def require_agreement(data: Rated, kind: str) -> None:
    """Stop if the monitor itself says anything else of the first year."""
    year = year_of(data, kind, 0)
    arrays = measured(Task(data, kind, (0,)))
    watched = Watched.from_arrays(arrays, 0)
    estimator = ErrorEstimator.fit(None, data.outputs.take(year.source))
    for some, has_labels in ((watched.stable, False), (watched.risen, True)):
        chosen = range(STABLE_WEEKS)
        if has_labels:
            chosen = [*range(LAST_QUIET_WEEK), *range(STABLE_WEEKS, len(year.batches))]
        with TemporaryDirectory() as folder, threadpool_limits(1):
            monitor = Monitor(estimator, Path(folder), threshold=year.error, alpha=ALPHA)
            for number in chosen:
                batch, places = data.outputs.take(year.batches[number]), year.labelled[number]
                labelled = {"sample": places, "label": batch.known_labels[places]} if has_labels else None
                monitor.update(batch.without_labels(), name=f"week {number}", labelled=labelled)
            _compare([report.log_evidence for report in monitor.reports], some.evidence(ESTIMATES, year.error)[0])
            if has_labels:
                _compare([report.error for report in monitor.reports], some.corrected)
                evidence = [report.labelled_log_evidence for report in monitor.reports]
                _compare(evidence, some.evidence(FEW_LABELS, year.error)[0])


def _fresh(alarm: str, threshold: float, n_source: int) -> Alarm:
    """The alarm as `Monitor` begins it."""
    if alarm in (FEW_LABELS, ALL_LABELS):
        return Alarm(threshold, ALPHA)
    return Alarm(threshold + source_margin(threshold, n_source, ALPHA / 2.0), ALPHA / 2.0)


def _moved(seen: list[Floats], alarm: Alarm) -> tuple[Floats, int]:
    """The evidence after each batch, and the batch of the alarm."""
    evidence = []
    for numbers in seen:
        alarm = alarm.after(log_values(alarm.threshold, numbers))
        evidence.append(alarm.log_evidence)
    return np.array(evidence), alarm.batch_of_alarm


def _compare(theirs: Sequence[float], ours: Floats) -> None:
    if not np.allclose(theirs, ours, rtol=_TOLERANCE, atol=_TOLERANCE):
        raise SystemExit(f"the monitor has other evidence: {np.max(np.abs(np.array(theirs) - ours))}")


def _reach() -> float:
    return NormalDist().inv_cdf(0.5 + LEVEL / 2.0)
