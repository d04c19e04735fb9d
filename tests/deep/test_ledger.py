"""The ledger survives what a dying process leaves; calibration against its definition."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from deep.ledger import Ledger, Row, Scores
from scipy import stats

from deep.calibration import correlations, drawn_ranks, left_out_predictions, qualities, quality

ROWS = [
    Row(f"{family}-{severity}", family, severity, "generated", 50, 0.1 * severity, method, score * severity)
    for family in ("fog", "snow")
    for severity in (1, 2, 3)
    for method, score in (("A", 1.0), ("B", -2.0))
]


def test_rows_are_appended_once_and_read_back(tmp_path):
    ledger = Ledger(tmp_path / "run" / "ledger.jsonl")
    ledger.append(ROWS[:4])
    ledger.append(ROWS)
    assert Ledger(ledger.path).rows == ROWS
    assert ledger.has("fog-1", "A")
    assert not ledger.has("fog-1", "C")


def test_a_torn_last_line_is_cut_off_and_the_rest_kept(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append(ROWS)
    whole = ledger.path.read_bytes()
    end_of_first = whole.index(b"\n") + 1
    for cut in range(end_of_first + 1, len(whole), 7):
        ledger.path.write_bytes(whole[:cut])
        kept = Ledger(ledger.path).rows
        assert ledger.path.read_bytes() == whole[:cut]  # reading changes nothing
        assert kept == ROWS[: len(kept)]
        assert len(kept) == whole[:cut].count(b"\n")
        resumed = Ledger(ledger.path)
        resumed.append(ROWS)
        assert ledger.path.read_bytes() == whole


@pytest.mark.parametrize("line", [b"{}\n", b"[]\n", b"nonsense\n", b'{"target": 1}\n', b"\xff\xfe\n"])
def test_a_line_that_is_no_row_is_named_and_gone_with_the_next_one_written(tmp_path, line, caplog):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append(ROWS[:2])
    with ledger.path.open("ab") as file:
        file.write(line)
    again = Ledger(ledger.path)
    assert again.rows == ROWS[:2]
    assert "ledger.jsonl: line 3 damaged" in caplog.text
    again.append(ROWS[2:4])
    caplog.clear()
    assert Ledger(ledger.path).rows == ROWS[:4]
    assert not caplog.text


def test_rows_from_before_there_were_checksums_are_read(tmp_path):
    path = tmp_path / "ledger.jsonl"
    path.write_text("".join(json.dumps(asdict(row)) + "\n" for row in ROWS))
    assert Ledger(path).rows == ROWS


def test_scores_hold_the_targets_every_method_has_seen():
    scores = Scores.of(ROWS[:10])
    assert scores.targets.tolist() == ["fog-1", "fog-2", "fog-3", "snow-1", "snow-2"]
    assert scores.methods == ("A", "B")
    np.testing.assert_allclose(scores.values[:, 1], [-2, -4, -6, -2, -4])
    behind = Scores.of(ROWS[:-1])
    assert behind.methods == ("A",)
    assert len(behind.targets) == 6
    assert Scores.of([]).values.shape == (0, 0)


def drawn_scores(seed=0) -> Scores:
    rng = np.random.default_rng(seed)
    rows = []
    for family in "abcdef":
        offset = 0.05 * rng.standard_normal()
        for severity in range(1, 6):
            error = 0.1 * severity + offset
            rows.append(Row(f"{family}{severity}", family, severity, "generated", 9, error, "exact", 3 * error + 1))
            noisy = error + 0.05 * rng.standard_normal()
            rows.append(Row(f"{family}{severity}", family, severity, "generated", 9, error, "noisy", noisy))
    return Scores.of(rows)


def test_left_out_predictions_never_see_their_family():
    scores = drawn_scores()
    x, y, families = scores.values[:, 1], scores.errors, scores.families
    found = left_out_predictions(x, y, families)
    for i in range(len(x)):
        others = families != families[i]
        line = stats.linregress(x[others], y[others])
        assert found[i] == pytest.approx(line.intercept + line.slope * x[i], rel=1e-9)
    moved = y.copy()
    moved[families == "a"] += 1.0
    np.testing.assert_allclose(left_out_predictions(x, moved, families)[:5], found[:5])


def test_a_perfect_score_is_perfect_and_its_interval_too():
    exact, noisy = qualities(drawn_scores())
    assert (exact.r_squared.value, exact.spearman.value) == (pytest.approx(1.0), pytest.approx(1.0))
    assert exact.mae.value == pytest.approx(0.0, abs=1e-12)
    assert exact.r_squared.low == pytest.approx(1.0)
    assert noisy.r_squared.low < noisy.r_squared.value < noisy.r_squared.high < 1.0
    assert noisy.mae.low < noisy.mae.value < noisy.mae.high
    assert noisy.targets == 30
    misses = np.abs(left_out_predictions(drawn_scores().values[:, 1], drawn_scores().errors, drawn_scores().families))
    assert np.isfinite(misses).all()


def test_too_few_families_have_no_interval():
    scores = Scores.of(ROWS)
    found = quality(scores, "A", rng=np.random.default_rng(0))
    assert math.isnan(found.r_squared.low)
    assert found.r_squared.value == pytest.approx(1.0)


def test_the_bootstrap_is_that_of_points_drawn_one_by_one():
    rng = np.random.default_rng(0)
    x, y = np.round(rng.standard_normal(12), 1), np.round(rng.standard_normal(12), 1)
    counts = rng.integers(0, 4, (6, 12))
    pearson = correlations(x, y, counts)
    spearman = correlations(drawn_ranks(x, counts), drawn_ranks(y, counts), counts)
    for row, r, rho in zip(counts, pearson, spearman, strict=True):
        drawn = np.repeat(np.arange(12), row)
        assert r == pytest.approx(np.corrcoef(x[drawn], y[drawn])[0, 1])
        assert rho == pytest.approx(stats.spearmanr(x[drawn], y[drawn]).statistic)
    assert np.isnan(correlations(np.ones(12), y, counts)).all()
