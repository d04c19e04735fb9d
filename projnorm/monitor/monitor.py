"""A deployed model watched batch by batch: estimates over time, and alarms with a bounded false-alarm probability."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import ThreadpoolController

from projnorm.core.errors import InputError
from projnorm.core.lazy import load
from projnorm.core.store import Store
from projnorm.estimate.choose_labels import chosen_by_error
from projnorm.estimate.error_estimator import ErrorEstimator
from projnorm.estimate.target_estimate import estimate_per_sample
from projnorm.labels.counts import StratumCounts
from projnorm.labels.labelled import Labelled
from projnorm.labels.strata import Strata
from projnorm.labels.stratified_intervals import stratified_interval
from projnorm.monitor.alarm import Alarm, log_values, source_margin
from projnorm.monitor.batch_report import BatchReport
from projnorm.monitor.journal import Journal
from projnorm.monitor.label_files import LabelFile
from projnorm.monitor.lines import (
    VERSION,
    BatchLine,
    ChosenSamples,
    LabelsLine,
    Line,
    ResetLine,
    SettingsLine,
    line_from_json,
)
from projnorm.monitor.state import MonitorState
from projnorm.outputs.outputs import Outputs, require_alike

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOGGER = logging.getLogger("projnorm")
# Rise of the error above that of the source which is alarmed at by default, and the largest threshold that it gives.
_RISE, _MOST = 0.05, 0.99
_FILE, _TO_LABEL = "batches.jsonl", "to_label"


class Monitor:
    """The error of one model over batches, kept in a folder so that tomorrow's batch continues today's.

    Two alarms watch whether the error rises above a threshold. One needs no labels: it takes the mistakes that the
    estimate expects of the samples for independent and right in the mean, and then the probability that it is *ever*
    raised while no batch has an error above the threshold is at most `alpha`, however many batches there are. The
    other looks at labels alone, where batches have any that were drawn at random, and has the same guarantee whatever
    the estimates say. Labels correct the estimates that are reported, not what the first alarm looks at.

    >>> from tempfile import TemporaryDirectory
    >>> import projnorm as pn
    >>> from projnorm.outputs.examples import example_outputs
    >>> source, quiet = example_outputs(1000, shift=0.0)
    >>> _, hard = example_outputs(m=400, shift=1.0)
    >>> with TemporaryDirectory() as folder:
    ...     monitor = pn.Monitor(pn.ErrorEstimator.fit(None, source), folder, threshold=0.18)
    ...     for number, batch in enumerate([quiet, hard, hard]):
    ...         report = monitor.update(batch.without_labels(), name=f"batch {number}")
    >>> [report.is_alarm for report in monitor.reports]
    [False, True, False]

    Several processes may share a folder: they take turns. The folder has a line for every batch (JSON, checksummed).
    """

    def __init__(
        self, estimator: ErrorEstimator, folder: str | Path, *, threshold: float | None = None, alpha: float = 0.05
    ) -> None:
        """Open the folder, or begin a new one.

        Args:
            estimator: Estimator of the error, fitted or loaded.
            folder: Folder of the state.
            threshold: Error above which there is an alarm; by default that of the source and five points.
            alpha: Largest probability of ever alarming while no error is above the threshold, for each alarm.

        Raises:
            InputError: If the folder is that of another estimator, threshold or alpha.
        """
        if not isinstance(estimator, ErrorEstimator):
            raise InputError(
                "`estimator` must be an ErrorEstimator; fit one with pn.ErrorEstimator.fit(model, source). Got "
                f"{type(estimator).__name__}."
            )
        self.estimator, self.folder, self._fitted = estimator, Path(folder), estimator.fitted
        source = self._fitted.source
        if threshold is None:
            threshold = min(_MOST, source.error + _RISE)
        by_labels = Alarm(threshold, alpha)  # refuses what is no probability
        margin = 0.0 if threshold >= _MOST else source_margin(threshold, len(source), alpha / 2.0)
        # Half of alpha is for the labels of the source, of which there are only finitely many.
        by_estimates = Alarm(min(_MOST, threshold + margin), alpha / 2.0)
        self._settings = SettingsLine(VERSION, estimator.fingerprint, threshold, alpha)
        self._begin = self._state = MonitorState(self._fitted.level, by_estimates, by_labels)
        self._threads = ThreadpoolController()
        self._journal = Journal(self.folder / _FILE)
        with self._turn():
            pass

    @property
    def threshold(self) -> float:
        """Error above which there is an alarm."""
        return self._settings.threshold

    @property
    def alpha(self) -> float:
        """Largest probability of ever alarming while no error is above the threshold, for each alarm."""
        return self._settings.alpha

    @property
    def reports(self) -> tuple[BatchReport, ...]:
        """The report on every batch, by time where all have one, else in the order in which they came."""
        reports = list(self._state.reports.values())
        have_times = all(report.time for report in reports)
        return tuple(sorted(reports, key=lambda report: report.time) if have_times else reports)

    @property
    def latest(self) -> str:
        """The latest time of a batch; empty where none has a time."""
        return self._state.latest

    def report(self, name: str) -> BatchReport | None:
        """The report on the batch called `name`; None if there is no such batch."""
        return self._state.reports.get(name)

    @property
    def has_alarm(self) -> bool:
        """Whether an alarm was raised since the last reset."""
        return self._state.has_alarm

    def update(
        self,
        batch: Any,
        *,
        name: str,
        time: str = "",
        labelled: Any = None,
        budget: int = 0,
        rows: Sequence[object] = (),
    ) -> BatchReport:
        """Take in one batch, or labels of one that was taken in before.

        A batch that is already known with the same outputs is not counted again, so that a call may be repeated.

        Args:
            batch: Unlabelled samples, in the forms that `estimate_error` takes. If all have labels, these count.
            name: Name of the batch.
            time: Time of the batch, such as "2026-03-01", which sorts as text.
            labelled: Labels of samples that were drawn at random, as in `estimate_error`.
            budget: Number of samples of the batch to be labelled: chosen and written to a file in the folder
                `to_label`, whose column `label` is to be filled in. `collect_labels` takes them in.
            rows: What a person finds each sample by, such as its row in a larger table, for that file.

        Returns:
            The report on this batch: the estimate with its interval, and whether there is an alarm.

        Raises:
            InputError: If the batch does not fit, or is known with other outputs; nothing is changed then.
        """
        for what, text in (("name", name), ("time", time)):
            if not isinstance(text, str):
                raise InputError(f"`{what}` must be text; got {text!r}.")
        if not name:
            raise InputError("`name` must name the batch.")
        if not isinstance(budget, int | np.integer) or budget < 0:
            raise InputError(f"`budget` must be a whole number, 0 or more; got {budget!r}.")
        outputs = self.estimator.outputs_of(batch, name)
        require_alike(self._fitted.source, outputs)
        if len(rows) not in (0, len(outputs)):
            raise InputError(f"`rows` must have one entry for each of {len(outputs):,} samples; got {len(rows):,}.")
        counts = None if labelled is None else _label_counts(Labelled.from_input(labelled), outputs)
        if counts is None and outputs.labels is not None:
            wrong = int((outputs.predicted != outputs.labels).sum())
            counts = StratumCounts(*(np.array([count]) for count in (len(outputs), len(outputs), wrong)))
        digest = _digest(outputs)
        with self._turn():
            is_new = name not in self._state.reports
            if is_new:
                self._add_batch(outputs.without_labels(), name, time, digest, budget, rows)
            elif self._state.batches[name].digest != digest:
                raise InputError(f"{name}: was taken in before with other outputs; give the batch another name.")
            if counts is not None and not self._state.reports[name].labels:
                self._add_labels(name, counts)
                is_new = True
            return replace(self._state.reports[name], is_new=is_new)

    @property
    def awaiting_labels(self) -> tuple[str, ...]:
        """Names of the batches whose chosen samples have no labels yet."""
        state = self._state
        return tuple(
            name for name, batch in state.batches.items() if batch.plan is not None and not state.reports[name].labels
        )

    def collect_labels(self, name: str) -> BatchReport | None:
        """Take in the labels that were filled in for a batch, in its file in the folder `to_label`.

        Args:
            name: Name of the batch, one of `awaiting_labels`.

        Returns:
            The report on the batch, now with its labelled error; None if a label is still missing, or if the labels
            were taken in before.

        Raises:
            InputError: If there is no such batch, or the file is damaged or of other samples.
        """
        with self._turn():
            batch = self._state.batches.get(name)
            if batch is None or batch.plan is None:
                raise InputError(f"`name` must name a batch with samples to label; got {name!r}.")
            if self._state.reports[name].labels:
                return None
            counts = self._label_file(name).counts(batch.plan, self._fitted.source)
            if counts is None:
                return None
            self._add_labels(name, counts)
            return self._state.reports[name]

    def reset(self) -> None:
        """Begin both alarms anew, after one was dealt with; the guarantee begins anew too."""
        with self._turn():
            self._write(ResetLine())

    def to_frame(self) -> Any:
        """The reports as a table of pandas, a row for each batch."""
        return load("pandas").DataFrame([report.to_dict() for report in self.reports])

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the error of each batch with its interval, what labels say, and the threshold.

        Args:
            axes: Axes of matplotlib to draw on; by default new ones.

        Returns:
            The axes that were drawn on.
        """
        from projnorm.monitor.plot import plot_errors

        own = axes is None
        axes = load("matplotlib.pyplot").subplots(layout="constrained")[1] if axes is None else axes
        plot_errors(axes, self.reports, threshold=self.threshold, source_error=self.estimator.source_error)
        if own:
            axes.set_xlabel("batch")
            axes.xaxis.set_major_locator(load("matplotlib.ticker").MaxNLocator(integer=True))
            axes.legend(fontsize=7)
        return axes

    def _add_batch(
        self, outputs: Outputs, name: str, time: str, digest: str, budget: int, rows: Sequence[object]
    ) -> None:
        with self._threads.limit(limits=1):  # so that numbers do not depend on the machine
            label_free = estimate_per_sample(self._fitted, outputs)
            by_sample = label_free.corrected(self.estimator.recalibration)
            values = log_values(self._state.by_estimates.threshold, by_sample.wrong)
        estimate, latest = by_sample.estimate, self._state.latest
        if time and time < latest:
            LOGGER.info("%s: is of %s, before %s, which was taken in earlier; both count.", name, time, latest)
        line = BatchLine(
            version=VERSION,
            estimator=self._settings.estimator,
            threshold=self.threshold,
            alpha=self.alpha,
            name=name,
            time=time,
            digest=digest,
            m=len(outputs),
            error=estimate.error,
            low=estimate.low,
            high=estimate.high,
            noise=estimate.sampling_noise,
            log_values=tuple(values.tolist()),
            not_refuted=estimate.not_refuted,
            warnings=estimate.warnings,
        )
        if budget:
            plan = chosen_by_error(label_free.wrong, budget, seed=self._fitted.seed)
            self._label_file(name).write(plan, rows)
            numbers = (plan.samples, plan.strata, plan.sizes, outputs.predicted[plan.samples])
            line = replace(line, plan=ChosenSamples(*(tuple(array.tolist()) for array in numbers)))
        self._write(line)

    def _add_labels(self, name: str, counts: StratumCounts) -> None:
        interval = stratified_interval(counts, self._fitted.level)
        sizes, labelled, wrong = (tuple(array.tolist()) for array in (counts.sizes, counts.labelled, counts.wrong))
        self._write(LabelsLine(name, sizes, labelled, wrong, interval.value, interval.low, interval.high))

    def _label_file(self, name: str) -> LabelFile:
        return LabelFile.for_batch(self.folder / _TO_LABEL, name)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """A context in which other processes that use the folder wait; without it they take turns batch by batch."""
        with Store(self.folder).lock("batches"):
            yield

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """A context in which no other process changes the folder, and which begins by reading what they have added."""
        with self.exclusive():
            unread = self._journal.unread()
            if unread.is_whole_file:
                self._state = self._begin
            for document in unread.documents:
                try:
                    line = line_from_json(document)
                    self._require_same_settings(line)
                    self._state = self._state.after(line)
                except (KeyError, TypeError) as error:
                    raise InputError(f"{self._journal.path}: has a line that is none of a monitor ({error}).") from None
            if not self._state.has_settings:
                self._write(self._settings)
            yield

    def _write(self, line: Line) -> None:
        self._journal.add(line.to_json())
        self._state = self._state.after(line)

    def _require_same_settings(self, line: Line) -> None:
        """Refuse a line of another estimator, threshold or alpha."""
        if not isinstance(line, SettingsLine):
            return
        if line.version != VERSION:
            raise InputError(
                f"{self._journal.path}: has version {line.version}, and this one reads {VERSION}; watch the model in "
                "another folder."
            )
        for name in ("estimator", "threshold", "alpha"):
            theirs = getattr(line, name)
            if theirs != getattr(self._settings, name):
                value = "" if name == "estimator" else f" {theirs:g}"
                raise InputError(
                    f"{self.folder}: was begun with another {name}{value}; use that, or begin in another folder."
                )


def _label_counts(labelled: Labelled, outputs: Outputs) -> StratumCounts:
    """Samples, labels and mistakes of a labelled batch."""
    if not labelled.is_whole:
        raise InputError(f"{outputs.name}: labels count once all samples that were chosen have one.")
    labels = labelled.columns_on(outputs)
    wrong = outputs.predicted[labelled.samples] != labels
    return labelled.counts(wrong, Strata.single(len(outputs))).by_stratum


def _digest(outputs: Outputs) -> str:
    sha256 = hashlib.sha256(np.ascontiguousarray(outputs.logits).tobytes())
    sha256.update(np.ascontiguousarray(outputs.predicted).tobytes())
    return sha256.hexdigest()[:16]
