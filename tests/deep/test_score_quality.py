"""Scores of a run are found again or reported as damaged; calibration and intervals against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from deep.comparison.ensemble import Stack, signs
from deep.comparison.runs import Run, kernel_scores, open_run
from deep.comparison.score_quality import correlations, drawn_ranks, qualities, quality
from deep.comparison.scores import Scores, TargetScores
from projnorm.core.errors import InputError
from projnorm.core.records import RunContext
from projnorm.core.statistics import left_out_predictions
from tests.small import SMALL

PARTS = [
    TargetScores(f"{family}-{severity}", family, severity, "generated", 50, 0.1 * severity, {method: score * severity})
    for family in ("fog", "snow")
    for severity in (1, 2, 3)
    for method, score in (("A", 1.0), ("B", -2.0))
]


def begun(root, name="deep-0123456789ab") -> Run:
    run = Run(SMALL, RunContext(root), name)
    run.begin({"data_sha256": "abc"})
    return run


def test_scores_come_back_from_the_folder_of_a_run(tmp_path):
    run = begun(tmp_path)
    with pytest.raises(InputError, match="has no target yet that every method has scored"):
        run.scores()
    run.put_scores("outputs-0000", PARTS[:2])
    run.put_scores(
        "outputs-0001", [*PARTS[2:3], TargetScores("fog-2", "fog", 2, "generated", 50, 0.2, {"B": math.nan})]
    )
    run.put_scores("tangent-kernels", PARTS[4:5])
    again = open_run(tmp_path)
    assert (again.config, again.name) == (SMALL, run.name)
    assert again.target_scores("outputs-0000") == PARTS[:2]
    assert math.isnan(again.target_scores()[3].scores["B"])
    assert kernel_scores(run.folder) == PARTS[4:5]
    assert kernel_scores(tmp_path) == []
    assert again.scores().methods == ("A",)
    run.store.remove("run")  # scores whose inputs nobody knows are absent
    assert run.recorded_inputs() is None
    run.begin({"data_sha256": "abc"})
    assert run.target_scores() == []


def test_scores_hold_the_targets_every_method_has_seen():
    scores = Scores.from_targets(PARTS[:10])
    assert scores.targets.tolist() == ["fog-1", "fog-2", "fog-3", "snow-1", "snow-2"]
    assert scores.methods == ("A", "B")
    np.testing.assert_allclose(scores.values[:, 1], [-2, -4, -6, -2, -4])
    behind = Scores.from_targets(PARTS[:-1])
    assert behind.methods == ("A",)
    assert len(behind.targets) == 6
    assert Scores.from_targets([]).values.shape == (0, 0)


def drawn_scores(seed=0) -> Scores:
    rng = np.random.default_rng(seed)
    parts = []
    for family in "abcdef":
        offset = 0.05 * rng.standard_normal()
        for severity in range(1, 6):
            error = 0.1 * severity + offset
            scores = {"exact": 3 * error + 1, "noisy": error + 0.05 * rng.standard_normal()}
            parts.append(TargetScores(f"{family}{severity}", family, severity, "generated", 9, error, scores))
    return Scores.from_targets(parts)


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


def test_too_few_families_have_no_interval():
    scores = Scores.from_targets(PARTS)
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


def test_a_stack_finds_the_weights_of_what_was_made_of_them():
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((50, 3))
    found = Stack.fitted(scores, 0.4 + scores @ [0.1, 0.0, 0.02])
    new = rng.standard_normal((5, 3))
    np.testing.assert_allclose(found.predict(new), 0.4 + new @ [0.1, 0.0, 0.02], atol=1e-12)
    # A negative weight is cut to none.
    assert Stack.fitted(scores, -scores[:, 0]).weights.max() < 0.3
    assert signs(("COT", "MI", "NuclearNorm")).tolist() == [1.0, -1.0, -1.0], "what falls is turned"
