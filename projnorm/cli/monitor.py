"""`projnorm monitor`: watch a deployed model batch by batch, with a bounded chance of ever raising a false alarm."""

from __future__ import annotations

import json
import logging
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from projnorm.cli.model_data import ModelData, ModelOptions
from projnorm.cli.output import say, say_json
from projnorm.core.config import Config, setting
from projnorm.core.errors import InputError
from projnorm.core.files import locate
from projnorm.core.formatting import percent
from projnorm.core.progress import tracked
from projnorm.data.tables import is_table_file, read_table, stem

if TYPE_CHECKING:
    from projnorm.monitor.batch_report import BatchReport
    from projnorm.monitor.monitor import Monitor

LOGGER = logging.getLogger("projnorm")


@dataclass(frozen=True)
class BatchOptions(Config):
    """The batches, and the state that is kept."""

    estimator: str = setting(help="File that `projnorm fit` wrote.")
    batches: tuple[str, ...] = setting(
        (), "New batches, a file each in the order of time; or tables with --every.", positional=True, repeat=True
    )
    state: str = setting("projnorm-monitor", "Folder of the state, which continues from call to call.")
    every: str = setting(
        "", "Cut tables into batches: hour, day, week, month, quarter or year; or a number of rows, such as 500."
    )
    time_column: str = setting(
        "", "Column of the times in tables; time, timestamp, datetime or date need not be named."
    )
    last: bool = setting(False, "With --every: also take the last batch of a table, which may not be complete.")
    label_column: str = setting(
        "", "Column of the labels in tables, where there are some; label, labels, y or target need not be named."
    )

    def check(self) -> None:
        """Refuse what would be ignored."""
        if not self.every and (self.time_column or self.last):
            raise InputError("`time_column` and `last` are for `every`.")


@dataclass(frozen=True)
class AlarmOptions(Config):
    """When to raise an alarm."""

    threshold: float | None = setting(
        None, "Error above which to alarm; that of the source and five points by default.", above=0.0, below=1.0
    )
    alpha: float = setting(
        0.05, "Largest probability of ever alarming while the error is below the threshold.", above=0.0, below=1.0
    )
    budget: int = setting(
        0, "Number of samples of each new batch to choose for labelling; fill in the files in STATE/to_label.", least=0
    )
    reset: bool = setting(False, "Begin the alarms anew, after one was dealt with.")
    report: bool = setting(True, "Write the timeline to STATE/report.html and STATE/timeline.png.")
    json: bool = setting(False, "Print a line of JSON for each batch that is new or has new labels.")


def monitor(batches: BatchOptions, alarm: AlarmOptions, model: ModelOptions) -> int:
    """Estimate the error of each new batch, and raise an alarm when it rises above a threshold.

    The probability of ever raising a false alarm is at most --alpha, however often this runs: for the alarm without
    labels if the estimates are right up to sampling noise, for the alarm from labels whatever they are. Batches that
    were taken in before are left out, so that the same command may run every night.

    The exit code is 1 while an alarm is raised (until --reset), 2 if a batch could not be taken in, else 0.
    """
    opened = ModelData(model, [*batches.batches, batches.estimator], label_column=batches.label_column, seed=0)
    fitted = opened.load(batches.estimator)
    from projnorm.monitor.monitor import Monitor

    watched = Monitor(fitted, batches.state, threshold=alarm.threshold, alpha=alarm.alpha)
    if watched.threshold < fitted.source_error:
        message = f"the threshold is below the error on the source, {percent(fitted.source_error)}"
        LOGGER.warning("%s, so an alarm is to be expected.", message)
    with watched.exclusive():
        if alarm.reset:
            watched.reset()
        failed = _take_in(watched, batches, alarm, opened)
        if alarm.report and watched.reports:
            _write_report(watched)
    if not alarm.json:
        say(_summary(watched))
    return 1 if watched.has_alarm else 2 if failed else 0


def _take_in(watched: Monitor, batches: BatchOptions, alarm: AlarmOptions, opened: ModelData) -> int:
    """Take in labels and batches; returns how many could not be taken in, each of which was named."""
    failed = 0
    for name in watched.awaiting_labels:
        try:
            if (report := watched.collect_labels(name)) is not None:
                _tell(report, alarm)
        except InputError as error:
            LOGGER.error("%s", error)
            failed += 1
    for path in tracked(batches.batches, description="batches", total=len(batches.batches)):
        try:
            for batch in _batches_in(path, batches, opened):
                failed += not _taken_in(watched, batch, alarm)
        except InputError as error:
            LOGGER.error("%s", error)
            failed += 1
    return failed


def _taken_in(watched: Monitor, batch: UnreadBatch, alarm: AlarmOptions) -> bool:
    """Whether a batch could be taken in, or was before."""
    known = watched.report(batch.name)
    if known is not None and batch.rows and len(batch.rows) != known.m:
        count = len(batch.rows)
        LOGGER.info("%s: was taken in with %d rows and has %d now; it is left as it was.", batch.name, known.m, count)
        return True
    try:
        if known is None and batch.is_cut_by_rows and batch.time < watched.latest:
            raise InputError(
                f"{batch.name}: begins before {watched.latest}, which was taken in; a table that is cut by rows must "
                "begin with the same rows every time."
            )
        _tell(
            watched.update(batch.read(), name=batch.name, time=batch.time, budget=alarm.budget, rows=batch.rows), alarm
        )
    except InputError as error:
        LOGGER.error("%s", error)
        return False
    return True


def _tell(report: BatchReport, alarm: AlarmOptions) -> None:
    if report.is_new and alarm.json:
        say_json(report.to_dict())
    elif report.is_new:
        say(report)


@dataclass(frozen=True, eq=False)
class UnreadBatch:
    """A batch in a file: its name and time, its row numbers in a table that was cut, and how its samples are read."""

    name: str
    read: Callable[[], Any]
    time: str = ""
    rows: Sequence[object] = ()
    is_cut_by_rows: bool = False


def _batches_in(path: str, batches: BatchOptions, opened: ModelData) -> Iterator[UnreadBatch]:
    """The batches of a file."""
    file = Path(path)
    if not batches.every:
        yield UnreadBatch(stem(file), partial(opened.read, file))
        return
    if not is_table_file(file):
        raise InputError(f"{path}: `every` cuts .csv and .parquet files.")
    from projnorm.monitor.periods import PERIODS, periods_of

    table = read_table(locate(file))
    by_rows = batches.every not in PERIODS
    for period in periods_of(table, batches.every, time_column=batches.time_column, name=stem(file)):
        if period.is_over or batches.last:
            read = partial(opened.of_table, period.rows, period.name)
            yield UnreadBatch(period.name, read, period.time, period.rows.index.tolist(), by_rows)
        else:
            LOGGER.info("%s: may not be complete and is left for a later call; --last takes it.", period.name)


def _write_report(watched: Monitor) -> None:
    from figures.style import save
    from figures.timeline import draw, report_page
    from projnorm.core.atomic import write_atomically

    command = shlex.join(["projnorm", *sys.argv[1:]])
    write_atomically(watched.folder / "report.html", report_page(watched, command=command).encode("utf-8"))
    save(draw(watched), watched.folder, "timeline", formats=("png",))


def _summary(watched: Monitor) -> str:
    alarms = [report for report in watched.reports if report.is_alarm or report.is_labelled_alarm]
    head = f"{len(watched.reports):,} batches in {watched.folder}; alarm above {percent(watched.threshold)}: "
    if not watched.has_alarm:
        return head + "none."
    return head + f"raised by {', '.join(json.dumps(report.name) for report in alarms[-1:])}; --reset begins anew."
