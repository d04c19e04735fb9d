"""A monitor: the same estimates as by hand, alarms, late labels, and a state that survives whatever happens to it."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import projnorm as pn
from projnorm.core.errors import InputError
from projnorm.estimate import fitted_source
from projnorm.estimate.hypotheses import HypothesisTests
from projnorm.estimators.scaling import Scaling
from projnorm.labels.plan import LabelPlan
from projnorm.monitor.alarm import Alarm
from projnorm.monitor.journal import Journal
from projnorm.monitor.lines import BatchLine, ChosenSamples, LabelsLine, ResetLine, SettingsLine, line_from_json
from projnorm.monitor.monitor import Monitor
from projnorm.monitor.periods import periods_of
from projnorm.monitor.state import MonitorState

C = 0.3


def outputs(m, seed, *, sure=1.0, labelled=True, classes=2):
    """Outputs whose probabilities are right where `sure` is 1; a smaller one makes more mistakes, and shows it."""
    rng = np.random.default_rng(seed)
    logits = sure * rng.normal(0.0, 2.5, (m, classes))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (rng.random((m, 1)) >= p.cumsum(axis=1)[:, :-1]).sum(axis=1)
    return pn.Outputs.from_logits(logits, labels=labels if labelled else None, name="outputs")


@pytest.fixture(scope="module")
def estimator():
    return pn.ErrorEstimator.fit(None, outputs(800, 0))


@pytest.fixture
def monitor(estimator, tmp_path):
    return Monitor(estimator, tmp_path / "state", threshold=C)


def again(monitor):
    """The same monitor from its folder."""
    return Monitor(monitor.estimator, monitor.folder, threshold=monitor.threshold, alpha=monitor.alpha)


def batch(seed, **options):
    return outputs(200, seed, labelled=False, **options)


def test_a_batch_has_the_estimate_that_the_estimator_gives_it(monitor, estimator):
    report, estimate = monitor.update(batch(1), name="one"), estimator.estimate(batch(1))
    assert (report.error, report.low, report.high) == (estimate.error, estimate.low, estimate.high)
    assert (report.m, report.not_refuted, report.labels, report.is_new) == (200, estimate.not_refuted, 0, True)
    json.dumps(report.to_dict(), allow_nan=False)


def test_the_state_continues_in_another_process_of_the_same_folder(monitor, estimator, tmp_path):
    whole = Monitor(estimator, tmp_path / "whole", threshold=C)
    for seed in range(6):
        continued = again(monitor)
        continued.update(batch(seed), name=f"b{seed}")
        whole.update(batch(seed), name=f"b{seed}")
    assert [one.to_dict() for one in again(monitor).reports] == [one.to_dict() for one in whole.reports]


def test_a_batch_that_comes_twice_counts_once_and_another_of_its_name_is_refused(monitor):
    monitor.update(batch(1), name="one")
    before = (monitor.folder / "batches.jsonl").read_bytes()
    assert not monitor.update(batch(1), name="one").is_new
    with pytest.raises(InputError, match="one: was taken in before with other outputs"):
        monitor.update(batch(2), name="one")
    assert (monitor.folder / "batches.jsonl").read_bytes() == before


def test_an_alarm_is_raised_by_estimates_stays_and_can_be_reset(monitor):
    for seed in range(4):
        monitor.update(batch(seed), name=f"good {seed}")
    assert not monitor.has_alarm
    bad = [outputs(600, seed, sure=0.1, labelled=False) for seed in range(4)]
    reports = [monitor.update(one, name=f"bad {seed}") for seed, one in enumerate(bad)]
    assert [one.is_alarm for one in reports].count(True) == 1
    assert monitor.has_alarm
    assert again(monitor).has_alarm
    monitor.reset()
    assert not again(monitor).has_alarm
    assert len(again(monitor).reports) == 8


def test_labels_alarm_where_estimates_are_blind_and_correct_the_next_estimates(monitor):
    def blind(seed):  # sure, and wrong half of the time
        one = outputs(200, seed)
        flipped = np.random.default_rng(seed).random(200) < 0.5
        return pn.Outputs.from_logits(one.logits, labels=np.where(flipped, 1 - one.labels, one.labels), name="blind")

    first = monitor.update(blind(0).without_labels(), name="0")
    assert first.error < 0.3
    reports = [monitor.update(blind(seed), name=f"{seed}") for seed in range(6)]
    assert all(one.is_new for one in reports)
    assert not monitor.update(blind(0), name="0").is_new
    assert sum(one.is_labelled_alarm for one in reports) == 1
    assert not any(one.is_alarm for one in reports[:2])
    assert [one.labelled_low for one in reports] == pytest.approx([blind(seed).error for seed in range(6)])
    assert [one.labelled_high for one in reports] == pytest.approx([one.labelled_low for one in reports])
    assert [one.recalibrated_by for one in monitor.reports] == [0, 1, 2, 3, 4, 5]
    assert abs(monitor.reports[-1].error - 0.5) < abs(first.error - 0.5) / 2


def test_chosen_samples_are_written_filled_in_and_collected(monitor):
    full = outputs(200, 3)
    monitor.update(full.without_labels(), name="a/b c", budget=20, rows=[f"row {i}" for i in range(200)])
    (path,) = (monitor.folder / "to_label").glob("*.csv")
    assert monitor.collect_labels("a/b c") is None
    assert monitor.awaiting_labels == ("a/b c",)
    plan = LabelPlan.read(path)
    assert len(plan) == 20
    assert f"row {plan.samples[0]}" in path.read_text()
    labels = [str(label) for label in full.labels[plan.samples]]
    LabelPlan(plan.samples, plan.strata, plan.sizes, plan.expected, (*labels[:-1], "")).write(path)
    assert monitor.collect_labels("a/b c") is None
    LabelPlan(plan.samples, plan.strata, plan.sizes, plan.expected, tuple(labels)).write(path)
    report = again(monitor).collect_labels("a/b c")
    wrong = full.predicted != full.labels
    assert report.labels == 20
    assert report.labelled_low <= wrong.mean() <= report.labelled_high
    assert monitor.collect_labels("a/b c") is None
    assert monitor.awaiting_labels == ()
    with pytest.raises(InputError, match="`name` must name a batch with samples to label"):
        monitor.collect_labels("b")


def test_a_file_that_is_filled_in_is_never_written_over(monitor):
    monitor.update(batch(3), name="one", budget=5)
    (path,) = (monitor.folder / "to_label").glob("*.csv")
    LabelPlan.read(path).with_labels(dict.fromkeys(range(200), 1)).write(path)
    (monitor.folder / "batches.jsonl").write_bytes(b"")
    again(monitor).update(batch(3), name="one", budget=5)
    assert again(monitor).collect_labels("one").labels == 5


def test_files_of_other_samples_are_refused(monitor):
    monitor.update(batch(3), name="one", budget=5)
    (path,) = (monitor.folder / "to_label").glob("*.csv")
    plan = LabelPlan.read(path)
    LabelPlan(plan.samples + 1, plan.strata, plan.sizes, plan.expected, ("0",) * 5).write(path)
    with pytest.raises(InputError, match="does not have the samples that were chosen"):
        monitor.collect_labels("one")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (outputs(50, 0, labelled=False, classes=3), "classes"),
        ({"logits": np.empty((0, 2))}, "holds no sample"),
        ({"logits": np.full((5, 2), np.nan)}, "finite"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused_and_changes_nothing(monitor, given, message):
    before = (monitor.folder / "batches.jsonl").read_bytes()
    with pytest.raises(InputError, match=message):
        monitor.update(given, name="odd")
    with pytest.raises(InputError, match="`name`"):
        monitor.update(batch(0), name="")
    assert (monitor.folder / "batches.jsonl").read_bytes() == before


def test_batches_out_of_order_are_sorted_by_time(monitor, caplog):
    caplog.set_level("INFO")
    for time in ("2026-03-02", "2026-03-03", "2026-03-01"):
        monitor.update(batch(int(time[-1])), name=f"of {time}", time=time)
    assert [one.time for one in monitor.reports] == ["2026-03-01", "2026-03-02", "2026-03-03"]
    assert "of 2026-03-01: is of 2026-03-01, before 2026-03-03" in caplog.text


def test_a_folder_of_another_estimator_or_threshold_is_refused(monitor):
    other = pn.ErrorEstimator.fit(None, outputs(800, 1))
    with pytest.raises(InputError, match="was begun with another estimator"):
        Monitor(other, monitor.folder, threshold=C)
    with pytest.raises(InputError, match=r"was begun with another threshold 0\.3"):
        Monitor(monitor.estimator, monitor.folder, threshold=0.4)


def test_a_lost_line_of_settings_does_not_admit_others(monitor):
    monitor.update(batch(0), name="b0")
    path = monitor.folder / "batches.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    with pytest.raises(InputError, match=r"was begun with another threshold 0\.3"):
        Monitor(monitor.estimator, monitor.folder, threshold=0.4)
    assert len(again(monitor).reports) == 1


def test_a_last_line_without_its_end_is_whole(monitor, caplog):
    for seed in range(2):
        monitor.update(batch(seed), name=f"b{seed}")
    path = monitor.folder / "batches.jsonl"
    path.write_bytes(path.read_bytes().rstrip())
    again(monitor).update(batch(2), name="b2")
    assert len(again(monitor).reports) == 3
    assert "damaged" not in caplog.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"time": 20240101}, "`time` must be text"),
        ({"rows": [1, 2]}, "`rows` must have one entry for each of 200 samples"),
        ({"budget": -1}, "`budget` must be a whole number, 0 or more"),
        ({"budget": 1.5}, "`budget` must be a whole number, 0 or more; got 1.5"),
        ({"labelled": {"sample": [9999], "label": [0]}}, "must name different rows"),
    ],
)
def test_arguments_that_do_not_fit_are_said(monitor, arguments, message):
    with pytest.raises(InputError, match=message):
        monitor.update(batch(0), name="b0", **arguments)
    assert monitor.reports == ()


@pytest.mark.parametrize("damage", ["cut", "middle", "garbage", "first"])
def test_damaged_lines_are_set_aside_and_their_batches_can_be_given_again(monitor, damage, caplog):
    for seed in range(4):
        monitor.update(batch(seed), name=f"b{seed}")
    path = monitor.folder / "batches.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    place = {"cut": 4, "middle": 2, "garbage": 3, "first": 0}[damage]
    lines[place] = {
        "cut": lines[4][:-30],
        "middle": lines[2].replace(b"0.", b"0.1", 1),
        "garbage": b"\xff\x00{\n",
        "first": b"{}\n",
    }[damage]
    path.write_bytes(b"".join(lines))
    mended = again(monitor)
    assert "1 line was damaged and left out" in caplog.text
    assert (monitor.folder / "batches.jsonl.damaged-1").read_bytes() == b"".join(lines)
    assert len(mended.reports) == (4 if damage == "first" else 3)
    for seed in range(4):
        mended.update(batch(seed), name=f"b{seed}")
    assert {one.name: one.error for one in mended.reports} == {one.name: one.error for one in monitor.reports}
    caplog.clear()
    assert len(again(monitor).reports) == 4
    assert not caplog.text


def test_a_file_that_was_replaced_is_read_anew(monitor, estimator, tmp_path):
    other = Monitor(estimator, tmp_path / "other", threshold=C)
    for seed in range(3):
        monitor.update(batch(seed), name=f"b{seed}")
    other.update(batch(9), name="b9")
    (monitor.folder / "batches.jsonl").write_bytes((other.folder / "batches.jsonl").read_bytes())
    monitor.update(batch(10), name="b10")
    assert [one.name for one in monitor.reports] == ["b9", "b10"]


def test_two_monitors_of_one_folder_take_turns_and_lose_nothing(monitor):
    def work(number):
        own = again(monitor)
        for seed in range(number, 12, 2):
            own.update(batch(seed), name=f"b{seed}")
        own.update(batch(100), name="both")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))
    assert sorted(one.name for one in again(monitor).reports) == sorted([*(f"b{seed}" for seed in range(12)), "both"])


def _dies(folder, source):
    killed = Monitor(pn.ErrorEstimator.fit(None, source), folder, threshold=C)
    killed.update(batch(1), name="b1")
    Journal.add = lambda self, _document: (  # half of a line, as when the power fails
        self.path.open("ab", buffering=0).write(b'{"kind": "batch", "na'),
        os.kill(os.getpid(), signal.SIGKILL),
    )
    killed.update(batch(2), name="b2")


@pytest.mark.slow
def test_a_process_killed_in_the_middle_of_a_batch_loses_that_batch_alone(estimator, tmp_path):
    process = multiprocessing.get_context("spawn").Process(target=_dies, args=(tmp_path / "state", outputs(800, 0)))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    monitor = Monitor(estimator, tmp_path / "state", threshold=C)
    assert [one.name for one in monitor.reports] == ["b1"]
    monitor.update(batch(2), name="b2")
    assert [one.name for one in again(monitor).reports] == ["b1", "b2"]


TIMES = pd.date_range("2026-01-01", periods=100, freq="3h")


def test_a_table_is_cut_by_the_calendar_or_by_rows():
    table = pd.DataFrame({"time": TIMES.strftime("%Y-%m-%d %H:%M")[::-1], "x": range(100)})
    weeks = list(periods_of(table, "week"))
    assert [one.time for one in weeks] == ["2025-12-29", "2026-01-05", "2026-01-12"]
    assert [one.is_over for one in weeks] == [True, True, False]
    assert [list(one.rows.columns) for one in weeks] == [["x"]] * 3
    assert weeks[0].rows["x"].iloc[0] == 99  # by time, not by row
    rows = list(periods_of(table, "40"))
    assert [(len(one.rows), one.is_over) for one in rows] == [(40, True), (40, True), (20, False)]
    plain = list(periods_of(table[["x"]], "60", name="new"))
    assert [one.name for one in plain] == ["new rows 0-59", "new rows 60-99"]
    assert len(list(periods_of(table, "hour"))) == 100


@pytest.mark.parametrize(
    ("every", "column", "message"),
    [
        ("decade", "", "`every` must be hour, day, week"),
        ("0", "", "`every` must be"),
        ("week", "when", "has no column 'when'"),
        ("week", "x", "must hold dates or times"),
        ("week", "unix", "must hold dates or times as text; it holds numbers"),
        ("²", "", "`every` must be"),
        ("week", "gap", "1 rows have no time"),
    ],
)
def test_a_table_without_times_is_refused(every, column, message):
    gap = [*TIMES[:-1].strftime("%Y-%m-%d"), None]
    table = pd.DataFrame({"time": TIMES, "x": ["a"] * 100, "gap": gap, "unix": range(100)})
    with pytest.raises(InputError, match=message):
        list(periods_of(table, every, time_column=column))


SETTINGS = SettingsLine(2, "e", C, 0.05)
NUMBERS = {**asdict(SETTINGS), "digest": "d", "m": 10, "error": 0.2, "low": 0.1, "high": 0.3, "noise": 0.05}
LINES = (
    SETTINGS,
    BatchLine(
        **NUMBERS,
        name="one",
        time="2026-01-01",
        log_values=(0.1,) * 6,
        not_refuted=("inputs",),
        warnings=("few samples",),
    ),
    BatchLine(
        **NUMBERS,
        name="two",
        time="",
        log_values=(3.0,) * 6,
        not_refuted=(),
        warnings=(),
        plan=ChosenSamples((1,), (0,), (9,), (1,)),
    ),
    LabelsLine("one", (10,), (10,), (9,), 0.9, 0.9, 0.9),
    ResetLine(),
)


@pytest.mark.parametrize("line", LINES)
def test_a_line_is_the_same_after_json(line):
    assert line_from_json(json.loads(json.dumps(line.to_json()))) == line


def fresh_state():
    return MonitorState(0.9, Alarm(C + 0.05, 0.025), Alarm(C))


def test_a_state_is_folded_from_lines_without_files_and_never_changes():
    settings, one, two, labels, reset = LINES
    begun = fresh_state().after(settings).after(one)
    assert begun.has_settings
    assert begun.reports["one"].error == one.error
    assert begun.after(one) is begun
    labelled = begun.after(labels)
    assert begun.reports["one"].labels == 0
    assert labelled.reports["one"].labels == 10
    assert labelled.reports["one"].is_labelled_alarm
    after = labelled.after(two)
    assert after.reports["two"].recalibrated_by == 1
    assert after.reports["two"].error > two.error
    assert after.latest == "2026-01-01"
    assert after.has_alarm
    assert not after.after(reset).has_alarm
    assert list(after.after(reset).reports) == ["one", "two"]


def test_labels_of_an_unknown_batch_change_nothing():
    state = fresh_state()
    assert state.after(LINES[3]) is state


def counted(monkeypatch, owner, name):
    """The list of the first arguments that a method or function is called with from here on."""
    original, calls = getattr(owner, name), []

    def call(*arguments, **options):
        calls.append(arguments)
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, call)
    return calls


def test_nothing_is_fitted_twice_and_no_batch_is_assessed_twice(estimator, tmp_path, monkeypatch):
    estimator.save(tmp_path / "e.projnorm")
    fits = [counted(monkeypatch, cls, "fit") for cls in (Scaling, HypothesisTests)]
    loaded = pn.ErrorEstimator.load(tmp_path / "e.projnorm")
    assessed = counted(monkeypatch, HypothesisTests, "assess")
    monitor = Monitor(loaded, tmp_path / "state", threshold=C)
    for seed in range(3):
        monitor.update(batch(seed), name=f"b{seed}", budget=5)
    assert [len(calls) for calls in fits] == [1, 1]
    assert len(assessed) == 3


def test_with_calibration_sets_nothing_is_fitted_twice(monkeypatch):
    fits = [counted(monkeypatch, cls, "fit") for cls in (Scaling, HypothesisTests)]
    built = counted(monkeypatch, fitted_source, "build")
    sets = {f"f{i}-{j}": outputs(240, 10 * i + j, sure=1.0 - 0.2 * j) for i in range(4) for j in (1, 2)}
    fitted = pn.ErrorEstimator.fit(None, outputs(400, 0), calibration=sets)
    assert len(fitted.fitted.calibration.sizes) == 3
    assessed = counted(monkeypatch, HypothesisTests, "assess")
    fitted.estimate(batch(1))
    assert [len(calls) for calls in fits] == [1, 1]
    assert set(Counter(method for method, *_ in built).values()) == {3}
    assert len(assessed) == 1


def test_a_target_with_labels_or_to_be_labelled_is_assessed_once(estimator, monkeypatch):
    assessed = counted(monkeypatch, HypothesisTests, "assess")
    target = outputs(200, 1)
    labels = {"sample": np.arange(50), "label": target.labels[:50]}
    estimator.estimate(target.without_labels(), labelled=labels, metrics=True)
    assert len(assessed) == 1
    pn.choose_labels(None, outputs(400, 0), target.without_labels(), budget=10)
    assert len(assessed) == 2


def test_reports_are_a_table_and_a_picture(monitor):
    for seed in range(3):
        monitor.update(outputs(200, seed), name=f"b{seed}")
    table = monitor.to_frame()
    assert table["name"].tolist() == ["b0", "b1", "b2"]
    assert table["error"].tolist() == [report.error for report in monitor.reports]
    axes = Figure().subplots()
    assert monitor.plot(axes) is axes
    assert axes.get_ylabel() == "error (%)"


@pytest.mark.parametrize("document", [{"kind": "other"}, {"kind": "batch", "name": "b"}, {"name": "b"}])
def test_a_whole_line_that_is_none_of_a_monitor_is_refused(monitor, document):
    Journal(monitor.folder / "batches.jsonl").add(document)
    with pytest.raises(InputError, match="has a line that is none of a monitor"):
        again(monitor)
