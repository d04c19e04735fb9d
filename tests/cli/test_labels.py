"""`projnorm label`, `fit` and `monitor` as a user meets them, and labels given to `projnorm estimate`."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pandas as pd
import pytest

from projnorm.core.arrays import to_npz
from tests.monitor.test_monitor import outputs

FIT = ("fit", "--source", "val.npz", "--out", "e.projnorm")
LABEL = ("label", "--estimator", "e.projnorm", "--target", "new.npz")
ESTIMATE = ("estimate", "--source", "val.npz", "--target", "new.npz")
MONITOR = ("monitor", "--estimator", "e.projnorm", "--threshold", "0.3")
NEW = outputs(300, 1)

pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture
def folder(tmp_path, projnorm):
    """Outputs on a source and a target, and an estimator."""
    source = outputs(600, 0)
    (tmp_path / "val.npz").write_bytes(to_npz({"logits": source.logits, "labels": source.labels}))
    (tmp_path / "new.npz").write_bytes(to_npz({"logits": NEW.logits}))
    code, out, err = projnorm(*FIT)
    assert (code, err) == (0, "")
    assert "fitted to 600 labelled samples" in out
    return tmp_path


def fill(path, count=None):
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    for row in rows[:count]:
        row["label"] = str(NEW.labels[int(row["sample"])])
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def test_samples_are_chosen_filled_in_and_give_an_interval(projnorm, folder):
    code, out, err = projnorm(*LABEL, "--budget", "40")
    assert (code, err) == (0, "")
    assert out.startswith("to_label.csv: 40 samples to label, chosen from 300")
    assert projnorm(*LABEL)[::2] == (
        2,
        "projnorm: to_label.csv: exists; continue it with --more, or name another file as --out.\n",
    )
    fill(folder / "to_label.csv")
    found = {}
    for interval in ("auto", "anytime", "guaranteed"):
        code, out, _ = projnorm(
            *ESTIMATE, "--labelled", "to_label.csv", "--interval", interval, "--level", "0.99", "--json"
        )
        assert code == 0
        (found[interval],) = json.loads(out)["estimates"]
        assert found[interval]["low"] <= NEW.error <= found[interval]["high"]
        assert found[interval]["labelled"]["labels"] == 40
    assert found["auto"]["target"] == "new"
    assert found["auto"]["high"] < found["anytime"]["high"]
    code, out, _ = projnorm(
        "estimate", "--estimator", "e.projnorm", "--target", "new.npz", "--labelled", "to_label.csv"
    )
    assert "40 labelled samples are wrong" in out


def test_labelling_goes_on_until_the_interval_is_narrow_enough(projnorm, folder):
    projnorm(*LABEL, "--budget", "10")
    rounds = 0
    while True:
        fill(folder / "to_label.csv")
        code, out, _ = projnorm(*LABEL, "--more", "to_label.csv", "--budget", "40", "--until-width", "0.25", "--json")
        found = json.loads(out)
        if code == 0:
            break
        rounds += 1
        assert (code, found["written"]) == (1, "to_label.csv")
        assert rounds < 8
    assert found["stop"]
    assert found["estimate"]["high"] - found["estimate"]["low"] <= 0.25
    assert rounds > 0
    code, out, _ = projnorm(*LABEL, "--more", "to_label.csv", "--until-side", "0.9")
    assert code == 0
    assert out.endswith("Stop here.\n")


def test_metrics_are_printed_with_and_without_labels(projnorm, folder):
    projnorm(*LABEL, "--budget", "60")
    fill(folder / "to_label.csv")
    for labels in ((), ("--labelled", "to_label.csv")):
        code, out, _ = projnorm(*ESTIMATE, "--metrics", *labels)
        assert code == 0
        for name in ("balanced accuracy", "recall of class 1", "AUROC", "Brier score"):
            assert name in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("estimate", "--target", "new.npz"), "give either --source or --estimator"),
        ((*ESTIMATE, "--estimator", "e.projnorm"), "give either --source or --estimator"),
        (("fit",), "--source must be given"),
        (
            ("estimate", "--estimator", "e.projnorm", "--target", "new.npz", "--shift", "inputs"),
            "has its settings from",
        ),
        (
            ("estimate", "--estimator", "new.npz", "--target", "new.npz"),
            "was not written by `projnorm fit`, or is damaged",
        ),
        ((*ESTIMATE, "--labelled", "val.npz"), "is no file of samples to label"),
        ((*ESTIMATE, "--labelled", "absent.csv"), "there is no such file"),
        ((*ESTIMATE, "--interval", "fixed"), "--interval is for --labelled"),
        ((*LABEL, "--until-width", "0.1"), "are for --more"),
        ((*LABEL, "--budget", "0"), "--budget must be at least 1"),
        ((*MONITOR, "new.npz", "--last"), "are for --every"),
        ((*MONITOR, "absent.npz"), "there is no such file"),
        (("monitor", "new.npz"), "--estimator"),
        ((*MONITOR, "--alpha", "2"), "--alpha must be below 1"),
    ],
)
def test_what_is_wrong_is_one_line(projnorm, arguments, message):
    code, out, err = projnorm(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def table(m, seed, **options):
    one = outputs(m, seed, **options)
    p = np.exp(one.logits) / np.exp(one.logits).sum(axis=1, keepdims=True)
    return pd.DataFrame({"prob_no": p[:, 0], "prob_yes": p[:, 1], "label": np.array(["no", "yes"])[one.labels]})


def test_a_table_is_watched_week_by_week_and_continues_tomorrow(projnorm, folder):
    table(600, 0).to_csv("val.csv", index=False)
    projnorm("fit", "--source", "val.csv", "--out", "e.projnorm")
    stream = pd.concat([table(100, seed) for seed in range(1, 5)] + [table(700, 9, sure=0.05)])
    stream.insert(0, "time", pd.date_range("2026-01-05", periods=len(stream), freq="100min"))
    week = 7 * 24 * 60 // 100 + 1
    unlabelled = stream.drop(columns="label")
    unlabelled.iloc[: 2 * week].to_csv("stream.csv", index=False)
    code, out, err = projnorm(*MONITOR, "stream.csv", "--every", "week")
    assert code == 0
    assert [line.split(":")[0] for line in out.splitlines()[:-1]] == ["2026-01-05"]
    assert "may not be complete" in err
    unlabelled.to_csv("stream.csv", index=False)
    code, out, _ = projnorm(*MONITOR, "stream.csv", "--every", "week", "--json", "--last")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert rows[0]["name"] == "2026-01-12"
    assert sum(row["is_alarm"] for row in rows) == 1
    page = (folder / "projnorm-monitor" / "report.html").read_text()
    assert "An alarm is raised" in page
    assert (folder / "projnorm-monitor" / "timeline.png").exists()
    assert projnorm(*MONITOR, "--reset", "--no-report")[0] == 0
    # Labels that come late are taken in, once.
    stream.to_csv("stream.csv", index=False)
    again = (*MONITOR, "stream.csv", "--every", "week", "--json", "--last", "--no-report")
    labels = [json.loads(line)["labels"] for line in projnorm(*again)[1].splitlines()]
    assert sum(labels) == len(stream)
    assert projnorm(*again)[1] == ""


def test_a_bad_batch_does_not_stop_the_others(projnorm, folder):
    three = outputs(50, 0, classes=3)
    (folder / "three.npz").write_bytes(to_npz({"logits": three.logits}))
    (folder / "empty.npz").write_bytes(to_npz({"logits": np.empty((0, 2))}))
    (folder / "cut.npz").write_bytes((folder / "new.npz").read_bytes()[:200])
    code, out, err = projnorm(*MONITOR, "three.npz", "empty.npz", "cut.npz", "new.npz", "--no-report")
    assert code == 2
    assert out.splitlines()[0].startswith("new: ")
    assert len(err.splitlines()) == 3
    assert all(name in line for name, line in zip(("three", "empty", "cut"), err.splitlines(), strict=True))
    assert projnorm(*MONITOR, "new.npz", "--no-report")[0] == 0


def test_a_bad_period_does_not_stop_the_others_and_rows_that_went_are_no_error(projnorm):
    stream = table(400, 3).drop(columns="label")
    stream.insert(0, "time", pd.date_range("2026-01-05", periods=len(stream), freq="1h"))
    holes = stream.copy()
    holes.loc[3, "prob_no"] = np.nan
    table(600, 0).to_csv("val.csv", index=False)
    projnorm("fit", "--source", "val.csv", "--out", "e.projnorm")
    watch = (*MONITOR, "stream.csv", "--every", "week", "--no-report")
    holes.to_csv("stream.csv", index=False)
    code, out, err = projnorm(*watch)
    assert code == 2
    assert out.startswith("2026-01-12: ")
    assert "2026-01-05" in err
    stream.to_csv("stream.csv", index=False)
    assert projnorm(*watch)[0] == 0
    stream.iloc[50:].to_csv("stream.csv", index=False)  # old rows are gone
    code, out, err = projnorm(*watch)
    assert code == 0
    assert "was taken in with 168 rows and has 118 now" in err
    rows = (*MONITOR, "stream.csv", "--every", "100", "--no-report", "--state", "by rows")
    assert projnorm(*rows)[0] == 0
    stream.iloc[80:].to_csv("stream.csv", index=False)
    code, out, err = projnorm(*rows)
    assert code == 2
    assert "must begin with the same rows every time" in err


def test_a_file_of_labels_is_continued_in_place_and_no_other_is_written_over(projnorm, folder):
    projnorm(*LABEL, "--budget", "10", "--out", "mine.csv")
    (folder / "to_label.csv").write_text("precious")
    assert projnorm(*LABEL, "--more", "mine.csv", "--until-width", "0.2")[0] == 2  # no label yet
    fill(folder / "mine.csv")
    code, out, _ = projnorm(*LABEL, "--more", "mine.csv", "--budget", "5")
    assert (code, out.splitlines()[-1].split(":")[0]) == (0, "mine.csv")
    assert (folder / "to_label.csv").read_text() == "precious"
    assert projnorm(*LABEL, "--more", "mine.csv", "--out", "to_label.csv")[0] == 2
    text = (folder / "mine.csv").read_text()
    (folder / "mine.csv").write_text(text.replace(",", ";") + ";;;;;;\n")
    assert projnorm(*ESTIMATE, "--labelled", "mine.csv")[0] == 0
    (folder / "mine.csv").write_text("\n".join(text.splitlines()[:-2]) + "\n")
    code, _, err = projnorm(*ESTIMATE, "--labelled", "mine.csv")
    assert "rows are missing; where there is no label leave it empty" in err


def test_a_bad_file_of_labels_is_named_and_stops_nothing(projnorm, folder):
    (folder / "other.npz").write_bytes(to_npz({"logits": outputs(300, 2).logits}))
    projnorm(*MONITOR, "other.npz", "new.npz", "--budget", "5", "--no-report")
    one, other = sorted((folder / "projnorm-monitor" / "to_label").glob("*.csv"))
    fill(one)
    other.write_text(other.read_text().replace(",,yes", ",red aple,yes"))
    code, out, err = projnorm(*MONITOR, "--no-report")
    assert code == 2
    assert "by 5 labels" in out
    assert other.name in err
    assert "red aple" in err
