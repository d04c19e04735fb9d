"""A model that is watched while it runs: an estimate for every batch, and alarms that are seldom ever false."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtri
from threadpoolctl import ThreadpoolController

from projnorm.core.errors import InputError
from projnorm.core.store import Store
from projnorm.estimate.calibrated import FOR_BOTH, FOR_INPUTS
from projnorm.estimate.choose import chosen_by_error
from projnorm.estimate.error_estimator import ErrorEstimator
from projnorm.estimate.recalibration import Recalibration
from projnorm.labels.counts import StratumCounts
from projnorm.labels.labelled import Labelled
from projnorm.labels.plan import LabelPlan
from projnorm.labels.strata import Strata
from projnorm.labels.stratified import stratified_interval
from projnorm.monitor.alarm import Alarm, labelled_log_values, log_values, room_for_source
from projnorm.monitor.batch_report import BatchReport
from projnorm.monitor.journal import Journal
from projnorm.outputs.outputs import Outputs, require_alike

LOGGER = logging.getLogger("projnorm")
_VERSION = 1
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
        rule, self.folder = estimator.fitted, Path(folder)
        if threshold is None:
            threshold = min(_MOST, rule.source.error + _RISE)
        self._fresh = Alarm(threshold, alpha)  # refuses what is no probability
        room = 0.0 if threshold >= _MOST else room_for_source(threshold, len(rule.source), alpha / 2.0)
        # Half of alpha is for the labels of the source, of which there are only so many.
        self._fresh_free = Alarm(min(_MOST, threshold + room), alpha / 2.0)
        self.estimator = estimator
        # Only what the answer is made of, not the methods that are shown beside it.
        methods = () if rule.calibration is None else tuple(dict.fromkeys([*FOR_INPUTS, *FOR_BOTH]))
        self._rule = rule if rule.methods is not None else replace(rule, methods=methods)
        self._threads = ThreadpoolController()
        self._settings: dict[str, Any] = {
            "version": _VERSION,
            "estimator": estimator.fingerprint,
            "threshold": threshold,
            "alpha": alpha,
        }
        self._journal = Journal(self.folder / _FILE)
        self._forget()
        with self._turn():
            pass

    @property
    def threshold(self) -> float:
        """Error above which there is an alarm."""
        return self._fresh.threshold

    @property
    def alpha(self) -> float:
        """Largest probability of ever alarming while no error is above the threshold, for each alarm."""
        return self._fresh.alpha

    @property
    def reports(self) -> tuple[BatchReport, ...]:
        """What was said of every batch, by time where all have one, else in the order in which they came."""
        reports = list(self._reports.values())
        return tuple(sorted(reports, key=lambda one: one.time) if all(one.time for one in reports) else reports)

    @property
    def latest(self) -> str:
        """The latest time of a batch; empty where none has a time."""
        return self._latest

    def report(self, name: str) -> BatchReport | None:
        """What was said of a batch; None for one that is not known."""
        return self._reports.get(name)

    @property
    def has_alarm(self) -> bool:
        """Whether an alarm was raised since the last reset."""
        return self._free.is_raised or self._by_labels.is_raised

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

        Raises:
            InputError: If the batch does not fit, or is known with other outputs; nothing is changed then.
        """
        for what, text in (("name", name), ("time", time)):
            if not isinstance(text, str):
                raise InputError(f"`{what}` must be text; got {text!r}.")
        if not name:
            raise InputError("`name` must name the batch.")
        if budget < 0:
            raise InputError(f"`budget` must be 0 or more; got {budget}.")
        outputs = self.estimator.outputs_of(batch, name)
        require_alike(self._rule.source, outputs)
        if len(rows) not in (0, len(outputs)):
            raise InputError(f"`rows` must have one entry for each of {len(outputs):,} samples; got {len(rows):,}.")
        counts = None if labelled is None else _label_counts(Labelled.of(labelled), outputs)
        if counts is None and outputs.labels is not None:
            wrong = int((outputs.predicted != outputs.labels).sum())
            counts = StratumCounts(*(np.array([one]) for one in (len(outputs), len(outputs), wrong)))
        digest = _digest(outputs)
        with self._turn():
            is_new = name not in self._reports
            if is_new:
                self._add_batch(outputs.without_labels(), name, time, digest, budget, rows)
            elif self._digests[name] != digest:
                raise InputError(f"{name}: was taken in before with other outputs; give the batch another name.")
            if counts is not None and not self._reports[name].labels:
                self._add_labels(name, counts)
                is_new = True
            return replace(self._reports[name], is_new=is_new)

    @property
    def awaiting_labels(self) -> tuple[str, ...]:
        """Names of the batches whose chosen samples have no labels yet."""
        return tuple(name for name in self._plans if not self._reports[name].labels)

    def collect_labels(self, name: str) -> BatchReport | None:
        """Take in the file of a batch in the folder `to_label`; None if it is not filled in, or was taken in before.

        Raises:
            InputError: If there is no such batch, or the file is damaged or of other samples.
        """
        with self._turn():
            if name not in self._plans:
                raise InputError(f"`name` must name a batch with samples to label; got {name!r}.")
            path = self._plan_path(name)
            if self._reports[name].labels or not path.exists():
                return None
            plan = LabelPlan.read(path)
            known = int(plan.is_labelled.sum())
            if known < len(plan):
                if known:
                    LOGGER.info("%s: has %d of %d labels; they count once all are there.", path, known, len(plan))
                return None
            self._add_labels(name, self._counts_of_plan(name, plan, path))
            return self._reports[name]

    def reset(self) -> None:
        """Begin both alarms anew, after one was dealt with; the guarantee begins anew too."""
        with self._turn():
            self._write({"kind": "reset"})

    def _add_batch(
        self, outputs: Outputs, name: str, time: str, digest: str, budget: int, rows: Sequence[object]
    ) -> None:
        with self._threads.limit(limits=1):  # so that numbers do not depend on the machine
            by_sample = self._rule.estimate_per_sample(outputs)
            expected = by_sample.corrected(self.estimator.recalibration)
        estimate = expected.estimate
        if time and time < self._latest:
            LOGGER.info("%s: is of %s, before %s, which was taken in earlier; both count.", name, time, self._latest)
        document: dict[str, Any] = {
            "kind": "batch",
            **self._settings,
            "name": name,
            "time": time,
            "digest": digest,
            "m": len(outputs),
            "error": estimate.error,
            "low": estimate.low,
            "high": estimate.high,
            "noise": estimate.sampling_noise,
            "log_values": log_values(self._free.threshold, expected.wrong).tolist(),
            "survivors": list(estimate.survivors),
            "warnings": list(estimate.warnings),
        }
        if budget:
            plan = chosen_by_error(by_sample.wrong, budget, seed=self._rule.seed)
            if not self._plan_path(name).exists():  # else it may be filled in, and its line of the journal was damaged
                plan.write(self._plan_path(name), rows=rows)
            document["plan"] = {
                "samples": plan.samples.tolist(),
                "strata": plan.strata.tolist(),
                "sizes": plan.sizes.tolist(),
                "predicted": outputs.predicted[plan.samples].tolist(),
            }
        self._write(document)

    def _add_labels(self, name: str, counts: StratumCounts) -> None:
        found = stratified_interval(counts, self._rule.level)
        self._write(
            {
                "kind": "labels",
                "name": name,
                "sizes": counts.sizes.tolist(),
                "labelled": counts.labelled.tolist(),
                "wrong": counts.wrong.tolist(),
                "error": found.error,
                "low": found.low,
                "high": found.high,
            }
        )

    def _counts_of_plan(self, name: str, plan: LabelPlan, path: Path) -> StratumCounts:
        """What the labels in a file say, which must be of the samples that were chosen."""
        chosen = self._plans[name]
        predicted = dict(zip(chosen["samples"], chosen["predicted"], strict=True))
        if set(plan.samples.tolist()) != set(predicted) or plan.sizes.tolist() != chosen["sizes"]:
            raise InputError(f"{path}: does not have the samples that were chosen; fill in the column `label` alone.")
        try:
            labels = Labelled.of(plan).columns(self._rule.source)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        said = np.array([predicted[sample] for sample in plan.samples.tolist()])
        return StratumCounts.of(plan.strata, labels != said, plan.sizes)

    def _plan_path(self, name: str) -> Path:
        safe = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)
        return self.folder / _TO_LABEL / f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:6]}.csv"

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Other processes that use the folder wait until this is left, instead of taking turns batch by batch."""
        with Store(self.folder).lock("batches"):
            yield

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Nobody else changes the folder inside, and everything that others have added is known."""
        with self.exclusive():
            documents, is_all = self._journal.unread()
            if is_all:
                self._forget()
            for document in documents:
                try:
                    self._take_in(document)
                except (KeyError, TypeError) as error:
                    raise InputError(f"{self._journal.path}: has a line that is none of a monitor ({error}).") from None
            if not self._has_settings:
                self._write({"kind": "settings", **self._settings})
            yield

    def _write(self, document: dict[str, Any]) -> None:
        self._journal.add(document)
        self._take_in(document)

    def _forget(self) -> None:
        """The state before the first line."""
        self._free, self._by_labels = self._fresh_free, self._fresh
        self._reports: dict[str, BatchReport] = {}
        self._digests: dict[str, str] = {}
        self._plans: dict[str, Mapping[str, Any]] = {}
        self._raw: dict[str, tuple[float, float]] = {}
        # Error by labels, estimate without them, noise of the labels and spread of the estimate, by batch.
        self._labelled_batches: list[tuple[float, float, float, float]] = []
        self._latest = ""
        self._has_settings = False

    def _take_in(self, document: Mapping[str, Any]) -> None:
        """Change the state by one line."""
        kind = document["kind"]
        if kind == "settings":
            self._check_settings(document)
            self._has_settings = True
        elif kind == "batch" and document["name"] not in self._reports:
            self._take_in_batch(document)
        elif kind == "labels" and document["name"] in self._reports:
            self._take_in_labels(document)
        elif kind == "reset":
            self._free, self._by_labels = self._fresh_free, self._fresh

    def _take_in_batch(self, document: Mapping[str, Any]) -> None:
        self._check_settings(document)  # the line of the settings may have been lost
        name, level = document["name"], self._rule.level
        error, low, high, noise = (document[key] for key in ("error", "low", "high", "noise"))
        self._digests[name] = document["digest"]
        self._latest = max(self._latest, document["time"])
        self._raw[name] = (error, (high - low) / (2.0 * _reach(level)))
        if "plan" in document:
            self._plans[name] = document["plan"]
        batches = len(self._labelled_batches)
        if batches:
            labelled, free_errors, noises, spreads = np.array(self._labelled_batches).T
            correction = Recalibration.fit(labelled, free_errors, noises, float(spreads.mean()))
            found = correction.interval(error, noise, level)
            error, low, high = found.error, found.low, found.high
        free = self._free.after(np.array(document["log_values"]))
        is_alarm = free.is_raised and not self._free.is_raised
        self._free = free
        self._reports[name] = BatchReport(
            name,
            document["time"],
            document["m"],
            error,
            low,
            high,
            tuple(document["survivors"]),
            tuple(document["warnings"]),
            batches,
            free.log_evidence,
            is_alarm,
        )

    def _take_in_labels(self, document: Mapping[str, Any]) -> None:
        name = document["name"]
        counts = StratumCounts(*(np.array(document[key]) for key in ("sizes", "labelled", "wrong")))
        low, high = document["low"], document["high"]
        raw, spread = self._raw[name]
        self._labelled_batches.append((document["error"], raw, counts.noise, spread))
        labelled = self._by_labels.after(labelled_log_values(self.threshold, counts))
        is_alarm = labelled.is_raised and not self._by_labels.is_raised
        self._by_labels = labelled
        self._reports[name] = replace(
            self._reports[name],
            labels=int(counts.labelled.sum()),
            labelled_error=document["error"],
            labelled_low=low,
            labelled_high=high,
            labelled_log_evidence=labelled.log_evidence,
            is_labelled_alarm=is_alarm,
        )

    def _check_settings(self, document: Mapping[str, Any]) -> None:
        if document["version"] != _VERSION:
            raise InputError(f"{self._journal.path}: has version {document['version']}; this one reads {_VERSION}.")
        for name in ("estimator", "threshold", "alpha"):
            if document[name] != self._settings[name]:
                found = "" if name == "estimator" else f" {document[name]:g}"
                raise InputError(
                    f"{self.folder}: was begun with another {name}{found}; use that, or another folder as `state`."
                )


def _label_counts(labelled: Labelled, outputs: Outputs) -> StratumCounts:
    """What labels say of a batch."""
    if not labelled.is_whole:
        raise InputError(f"{outputs.name}: labels count once all samples that were chosen have one.")
    labels = labelled.columns_on(outputs)
    wrong = outputs.predicted[labelled.samples] != labels
    return labelled.counts(wrong, Strata.single(len(outputs)))[1]


def _reach(level: float) -> float:
    return float(ndtri(0.5 + level / 2.0))


def _digest(outputs: Outputs) -> str:
    sha256 = hashlib.sha256(np.ascontiguousarray(outputs.logits).tobytes())
    sha256.update(np.ascontiguousarray(outputs.predicted).tobytes())
    return sha256.hexdigest()[:16]
