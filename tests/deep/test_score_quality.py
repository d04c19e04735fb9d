"""Scores of a run are found again or reported as damaged; calibration and intervals against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from benchmarks.studies.conformal import Residuals, coverage, family_weights, weighted_quantile
from deep.comparison.ensemble import Stack, signs
from deep.comparison.runs import Run, kernel_rows, open_run
from deep.comparison.score_quality import correlations, drawn_ranks, qualities, quality
from deep.comparison.scores import Row, Scores
from projnorm.core.errors import InputError
from projnorm.core.records import RunContext
from projnorm.core.statistics import Line, left_out_predictions
from tests.small import SMALL

ROWS = [
    Row(f"{family}-{severity}", family, severity, "generated", 50, 0.1 * severity, method, score * severity)
    for family in ("fog", "snow")
    for severity in (1, 2, 3)
    for method, score in (("A", 1.0), ("B", -2.0))
]


def begun(root, name="deep-0123456789ab") -> Run:
    run = Run(SMALL, RunContext(root), name)
    run.begin({"data_sha256": "abc"})
    return run


def test_rows_come_back_from_the_folder_of_a_run(tmp_path):
    run = begun(tmp_path)
    with pytest.raises(InputError, match="has no target yet that every method has scored"):
        run.scores()
    run.put_rows("outputs-0000", ROWS[:2])
    run.put_rows("outputs-0001", [*ROWS[2:3], Row("fog-2", "fog", 2, "generated", 50, 0.2, "B", math.nan)])
    run.put_rows("tangent-kernels", ROWS[4:5])
    again = open_run(tmp_path)
    assert (again.config, again.name) == (SMALL, run.name)
    assert again.rows("outputs-0000") == ROWS[:2]
    assert math.isnan(again.rows()[3].score)
    assert kernel_rows(run.folder) == ROWS[4:5]
    assert kernel_rows(tmp_path) == []
    assert again.scores().methods == ("A",)
    run.store.remove("run")  # scores whose inputs nobody knows are absent
    assert run.begun_with() is None
    run.begin({"data_sha256": "abc"})
    assert run.rows() == []


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


def test_families_weigh_alike_however_many_sets_they_have():
    weights = family_weights(np.array(["a", "a", "a", "b"]))
    np.testing.assert_allclose(weights, [1 / 9, 1 / 9, 1 / 9, 1 / 3])


def test_the_quantile_is_infinite_where_the_families_do_not_reach_it():
    for level, expected in ((0.25, 1.0), (0.26, 2.0), (0.75, 3.0), (0.76, math.inf)):
        assert weighted_quantile(np.array([3.0, 1.0, 2.0]), np.full(3, 0.25), level) == expected


def test_radius_and_probability_by_hand():
    # Nine families of one set each, predicted as they are; start 0, so that residuals are in units of 0.2 + predicted.
    predicted = np.full(9, 0.3)
    errors = 0.3 + 0.5 * np.array([-0.08, -0.06, -0.04, -0.02, 0.0, 0.02, 0.04, 0.06, 0.10])
    found = Residuals(predicted, errors, np.array(list("abcdefghi")), 0.0)
    for at, level, radius in ((0.3, 0.9, 0.05), (0.8, 0.9, 0.10), (0.3, 0.5, 0.02), (0.3, 0.91, math.inf)):
        assert found.radius(np.array(at), level) == pytest.approx(radius)
    # Four of nine residuals are above zero, each of weight a tenth; the family not seen counts half.
    for threshold, probability in ((0.3, 0.4 + 0.05), (0.9, 0.05), (0.0, 0.95)):
        assert found.probability_above(0.3, threshold) == pytest.approx(probability)
    assert found.mae == pytest.approx(np.abs(errors - predicted).mean())


def drawn(rng, families=19, sets=3):
    """Sets whose errors miss a line by something that families share, and by a little of their own."""
    names = np.repeat([f"f{i}" for i in range(families)], sets)
    scores = rng.uniform(0.0, 1.0, families * sets)
    errors = 0.1 + 0.5 * scores + np.repeat(0.03 * rng.standard_normal(families), sets)
    return scores, errors + 0.005 * rng.standard_normal(families * sets), names


def test_a_set_of_a_new_family_is_covered_as_often_as_promised():
    rng = np.random.default_rng(0)
    held, draws = 0, 400
    for _ in range(draws):
        scores, errors, families = drawn(rng, families=20)
        new = families == "f19"
        found = Residuals.of(scores[~new], errors[~new], families[~new], Line.fitted, 0.1)
        predicted = Line.fitted(scores[~new], errors[~new]).predict(scores[new][:1])
        held += abs(predicted[0] - errors[new][0]) <= found.radius(predicted, 0.9)[0]
    # Four standard errors of a share of 400 draws.
    assert held / draws == pytest.approx(0.9, abs=4 * math.sqrt(0.09 / draws))


def test_measured_coverage_is_of_families_left_out():
    scores, errors, families = drawn(np.random.default_rng(1))
    found = coverage(scores, errors, families, Line.fitted, 0.1, 0.9, rng=np.random.default_rng(0))
    assert 0.75 <= found.share.value <= 1.0
    assert found.share.low <= found.share.value <= found.share.high
    assert 0.0 < found.width < 0.5
    # A family that is like no other is not covered, and seen to be not.
    errors[families == "f0"] += 0.4
    broken = coverage(scores, errors, families, Line.fitted, 0.1, 0.5, rng=np.random.default_rng(0))
    assert broken.share.value < found.share.value


@pytest.mark.parametrize("count", [9, 2])
def test_coverage_is_unknown_where_every_interval_would_be_infinite(count):
    """Of nine families eight are left, which do not reach 90 %; one of two cannot be judged by the other."""
    scores, errors, families = drawn(np.random.default_rng(1), families=count)
    found = coverage(scores, errors, families, Line.fitted, 0.1, 0.9, rng=np.random.default_rng(0))
    assert math.isnan(found.share.value)
    with pytest.raises(ValueError, match="there must be two or more"):
        Residuals.of(scores[:3], errors[:3], families[:3], Line.fitted, 0.1)


def test_a_stack_finds_the_weights_of_what_was_made_of_them():
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((50, 3))
    found = Stack.fitted(scores, 0.4 + scores @ [0.1, 0.0, 0.02])
    new = rng.standard_normal((5, 3))
    np.testing.assert_allclose(found.predict(new), 0.4 + new @ [0.1, 0.0, 0.02], atol=1e-12)
    # A negative weight is cut to none.
    assert Stack.fitted(scores, -scores[:, 0]).weights.max() < 0.3
    assert signs(("COT", "MI", "NuclearNorm")).tolist() == [1.0, -1.0, -1.0], "what falls is turned"
