"""Metrics against scikit-learn, enumeration and simulation; tempered probabilities; intervals and what they cover."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.special import ndtri
from sklearn import metrics as golden

from projnorm.core.errors import InputError
from projnorm.labels import metrics as module
from projnorm.labels.metrics import (
    MetricEstimate,
    estimated_metrics,
    labelled_metrics,
    metric_names,
    tempered,
)

SEEDS = st.integers(0, 10_000)
CLASSES = st.integers(2, 5)
ROWS = np.array([[0.7, 0.3], [0.4, 0.6], [0.9, 0.1]])
PREDICTED = np.array([0, 1, 0])
LABELS = np.array([0, 1, 1])


def rng_of(seed=0):
    return np.random.default_rng(seed)


def metrics_of(labels, predicted, rows, weights=None):
    """The metrics of labelled samples, with sampling weights: what estimates are compared with."""
    rows = module._rows(rows)
    predicted = module._columns(predicted, "predicted", rows)
    soft = np.eye(rows.shape[1])[module._columns(labels, "labels", rows)]
    if weights is not None:
        soft = soft * np.asarray(weights, dtype=float)[:, None]
    return dict(zip(metric_names(rows.shape[1]), module._metrics(soft, predicted, rows[:, 1]).tolist(), strict=True))


def expected_metrics(rows, predicted, scores=None):
    """The metrics without labels, if the label of each sample is drawn from its row: ratios of expected counts."""
    rows = module._rows(rows)
    values = module._metrics(rows, module._columns(predicted, "predicted", rows), module._scores(scores, rows))
    return dict(zip(metric_names(rows.shape[1]), values.tolist(), strict=True))


def draw_labels(rows, rng):
    return (rng.random((len(rows), 1)) >= rows.cumsum(axis=1)[:, :-1]).sum(axis=1)


def sample(m, classes, seed, sharpness=0.5):
    """Calibrated rows with ties, predictions that are mostly the likeliest class, and labels drawn from the rows."""
    rng = rng_of(seed)
    rows = np.round(rng.dirichlet(np.full(classes, sharpness), m), 1) + 0.01
    rows /= rows.sum(axis=1, keepdims=True)
    predicted = np.where(rng.random(m) < 0.9, rows.argmax(axis=1), rng.integers(0, classes, m))
    return rows, predicted, draw_labels(rows, rng)


def golden_metrics(labels, predicted, rows, weights):
    classes = rows.shape[1]
    each = {"labels": range(classes), "average": None, "zero_division": np.nan, "sample_weight": weights}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of classes without samples
        found = {
            "accuracy": golden.accuracy_score(labels, predicted, sample_weight=weights),
            "balanced accuracy": golden.balanced_accuracy_score(labels, predicted, sample_weight=weights),
            "macro F1": golden.f1_score(labels, predicted, average="macro", zero_division=0, sample_weight=weights),
        }
        for k in range(classes):
            found[f"recall of class {k}"] = golden.recall_score(labels, predicted, **each)[k]
            found[f"precision of class {k}"] = golden.precision_score(labels, predicted, **each)[k]
    if classes == 2:
        second, both = rows[:, 1], len(set(labels)) == 2
        found["AUROC"] = golden.roc_auc_score(labels, second, sample_weight=weights) if both else np.nan
        found["Brier score"] = golden.brier_score_loss(labels, second, sample_weight=weights, pos_label=1)
    return found


def assert_alike(found, wanted, tolerance=1e-12):
    assert list(found) == list(wanted)
    np.testing.assert_allclose(list(found.values()), list(wanted.values()), rtol=0, atol=tolerance)


def by_name(estimates):
    return {estimate.name: estimate for estimate in estimates}


def test_two_classes_have_a_ranking_and_a_brier_score_and_more_have_not():
    names = ("accuracy", "balanced accuracy", "macro F1", "recall of class 0", "precision of class 0")
    two = (*names, "recall of class 1", "precision of class 1")
    assert metric_names(2) == (*two, "AUROC", "Brier score")
    assert metric_names(3) == (*two, "recall of class 2", "precision of class 2")


@given(m=st.integers(1, 40), classes=CLASSES, is_weighted=st.booleans(), seed=SEEDS)
def test_metrics_of_labelled_samples_are_those_of_scikit_learn(m, classes, is_weighted, seed):
    rows, predicted, labels = sample(m, classes, seed)  # a few samples leave classes out; rounded rows tie
    weights = rng_of(seed + 1).uniform(0.1, 5.0, m) if is_weighted else None
    assert_alike(metrics_of(labels, predicted, rows, weights), golden_metrics(labels, predicted, rows, weights))


def test_metrics_by_hand_with_an_absent_class_and_a_class_that_is_never_predicted():
    rows = np.full((4, 4), 0.25)
    found = metrics_of(np.array([0, 0, 1, 3]), np.array([0, 2, 2, 0]), rows)
    assert found["accuracy"] == 0.25
    assert [found[f"recall of class {k}"] for k in (0, 1, 3)] == [0.5, 0.0, 0.0]
    assert math.isnan(found["recall of class 2"])
    assert math.isnan(found["precision of class 1"])
    assert found["precision of class 2"] == 0.0
    assert found["balanced accuracy"] == pytest.approx(0.5 / 3)
    assert found["macro F1"] == pytest.approx(0.5 / 4)


def test_a_weight_is_a_number_of_copies_and_a_weight_of_zero_leaves_a_sample_out():
    rows, predicted, labels = sample(30, 2, 3)
    copies = rng_of(1).integers(0, 3, 30)
    repeated = [np.repeat(part, copies, axis=0) for part in (labels, predicted, rows)]
    assert_alike(metrics_of(labels, predicted, rows, copies), metrics_of(*repeated))


@given(m=st.integers(1, 20), classes=CLASSES, seed=SEEDS)
def test_expected_metrics_of_one_hot_rows_are_those_of_the_labels(m, classes, seed):
    rows, predicted, labels = sample(m, classes, seed)
    scores = rows[:, 1] if classes == 2 else None
    assert_alike(expected_metrics(np.eye(classes)[labels], predicted, scores), metrics_of(labels, predicted, rows))


@pytest.mark.parametrize("classes", [2, 3])
def test_expected_accuracy_and_brier_score_are_exact_means_over_all_labelings(classes):
    rows, predicted, _ = sample(5, classes, 1)
    own = rows + 0.2 / classes
    own /= own.sum(axis=1, keepdims=True)
    total = dict.fromkeys(metric_names(classes), 0.0)
    for labeling in itertools.product(range(classes), repeat=5):
        chance = np.prod(rows[np.arange(5), labeling])
        for name, value in metrics_of(np.array(labeling), predicted, own).items():
            total[name] += chance * value
    found = expected_metrics(rows, predicted, own[:, 1])
    for name in {"accuracy", "Brier score"} & set(total):
        assert found[name] == pytest.approx(total[name], abs=1e-13), name


def test_expected_auroc_is_the_ratio_of_expected_pairs_of_different_samples():
    rows, predicted, _ = sample(25, 2, 2)
    scores = np.round(rng_of(5).random(25), 1)  # with ties
    right = pairs = 0.0
    for i, j in itertools.permutations(range(25), 2):
        weight = rows[i, 1] * rows[j, 0]
        pairs += weight
        right += weight * (scores[i] > scores[j]) + 0.5 * weight * (scores[i] == scores[j])
    assert expected_metrics(rows, predicted, scores)["AUROC"] == pytest.approx(right / pairs, abs=1e-13)
    one = expected_metrics(ROWS[:1], PREDICTED[:1])
    assert math.isnan(one["AUROC"])


@pytest.mark.parametrize("classes", [2, 4])
def test_expected_metrics_are_the_means_over_drawn_labels(classes):
    m, draws, rng = 2000, 200, rng_of(7)
    rows, predicted, _ = sample(m, classes, 4)
    scores = np.sqrt(rows[:, 1])
    own = np.column_stack([1 - scores, scores]) if classes == 2 else rows
    drawn = np.array([list(metrics_of(draw_labels(rows, rng), predicted, own).values()) for _ in range(draws)])
    deviation = drawn.std(axis=0, ddof=1)
    # Four standard errors, and the bias of a ratio of expectations, which is of the order of the variance.
    tolerance = 4 * deviation / math.sqrt(draws) + 2 * deviation**2
    found = np.array(list(expected_metrics(rows, predicted, scores).values()))
    assert (np.abs(found - drawn.mean(axis=0)) <= tolerance).all()


@given(m=st.integers(1, 50), classes=CLASSES, part=st.floats(0.0, 1.0), seed=SEEDS)
def test_tempered_rows_expect_the_error_that_is_asked_for(m, classes, part, seed):
    rows = rng_of(seed).dirichlet(np.full(classes, 0.7), m)
    predicted = rows.argmax(axis=1)
    error = 0.001 + 0.998 * part * (1 - 1 / classes)  # likeliest classes err between never and as often as by chance
    found = tempered(rows, predicted, error)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-12)
    assert 1 - found[np.arange(m), predicted].mean() == pytest.approx(error, abs=1e-9)
    # A power changes no order of probabilities, up to rounding of equal ones.
    assert (found[np.arange(m), predicted] >= found.max(axis=1) - 1e-12).all()


def test_the_tempered_probabilities_are_powers():
    found = tempered(ROWS, PREDICTED, 0.4)
    powers = np.log(found[:, 0] / found[:, 1]) / np.log(ROWS[:, 0] / ROWS[:, 1])
    assert powers[0] < 1
    np.testing.assert_allclose(powers, powers[0], rtol=1e-9)


@given(m=st.integers(1, 50), classes=CLASSES, follows=st.booleans(), seed=SEEDS)
def test_the_present_error_leaves_rows_as_they_are(m, classes, follows, seed):
    rows, predicted, _ = sample(m, classes, seed)
    predicted = rows.argmax(axis=1) if follows else predicted
    present = 1 - rows[np.arange(m), predicted].mean()
    np.testing.assert_allclose(tempered(rows, predicted, present), rows, atol=1e-8)


def test_zero_probabilities_stay_zero_at_the_present_error():
    rows = np.array([[0.0, 0.6, 0.4], [0.0, 0.2, 0.8]])
    assert (tempered(rows, np.array([1, 2]), 0.3)[:, 0] == 0.0).all()


def test_errors_beyond_reach_give_certain_or_uniform_rows():
    np.testing.assert_allclose(tempered(ROWS, PREDICTED, 0.0), np.eye(2)[PREDICTED], atol=1e-9)
    np.testing.assert_allclose(tempered(ROWS, PREDICTED, 0.9), np.full((3, 2), 0.5), atol=1e-9)
    np.testing.assert_allclose(tempered(np.full((2, 4), 0.25), np.array([0, 1]), 0.1), np.full((2, 4), 0.25))


def test_where_predictions_are_not_the_likeliest_the_closest_reachable_error_is_taken():
    rows = np.array([[0.6, 0.3, 0.1], [0.6, 0.3, 0.1]])
    predicted = np.array([1, 1])  # its probability vanishes when cold and is a third when hot, with a maximum between
    powers = rows[0] ** np.linspace(0.0, 3.0, 300_001)[:, None]
    least = 1 - (powers[:, 1] / powers.sum(axis=1)).max()
    assert least < 2 / 3 - 1e-4
    assert 1 - tempered(rows, predicted, 0.2)[0, 1] == pytest.approx(least, abs=1e-9)
    assert 1 - tempered(rows, predicted, 0.9)[0, 1] == pytest.approx(0.9, abs=1e-9)
    assert 1 - tempered(rows, predicted, 1.0)[0, 1] == pytest.approx(1.0, abs=1e-9)


@given(m=st.integers(1, 60), classes=CLASSES, ends=st.tuples(*[st.floats(0.0, 1.0)] * 3), seed=SEEDS)
def test_estimated_intervals_contain_the_value_and_those_of_the_accuracy_are_the_ones_given(m, classes, ends, seed):
    rows, predicted, _ = sample(m, classes, seed)
    low, error, high = sorted(ends)
    found = estimated_metrics(rows, predicted, error, low, high, rng=rng_of(seed))
    assert tuple(one.name for one in found) == metric_names(classes)
    assert found[0] == MetricEstimate("accuracy", 1 - error, 1 - high, 1 - low)
    for one in found:
        assert 0 <= one.low <= one.value <= one.high <= 1 or np.isnan([one.low, one.value, one.high]).all()
    never = set(range(classes)) - set(predicted.tolist())
    assert all(math.isnan(by_name(found)[f"precision of class {k}"].value) for k in never)


def test_estimated_values_are_expected_ones_and_ends_join_the_error_with_the_noise_of_labels():
    rows, predicted, _ = sample(300, 2, 6)
    scores, (error, low, high) = rows[:, 1], (0.2, 0.15, 0.3)
    found = by_name(estimated_metrics(rows, predicted, error, low, high, level=0.8, rng=rng_of()))
    middle = tempered(rows, predicted, error)
    wanted, *others = (expected_metrics(tempered(rows, predicted, e), predicted, scores) for e in (error, low, high))
    rng = rng_of(1)
    drawn = [metrics_of(draw_labels(middle, rng), predicted, np.column_stack([1 - scores, scores])) for _ in range(300)]
    for name in metric_names(2)[1:]:
        assert found[name].value == pytest.approx(wanted[name], abs=1e-9)
        noise = ndtri(0.9) * np.std([one[name] for one in drawn])
        values = [wanted[name], *(one[name] for one in others)]
        for end, distance in ((found[name].high, max(values) - values[0]), (found[name].low, values[0] - min(values))):
            length = math.hypot(distance, noise)
            # The noise of 60 draws is known to 1 / sqrt(120) of itself; three and a half of these, and their effect.
            assert abs(end - values[0]) == pytest.approx(length, abs=0.32 * noise**2 / length)


def test_an_end_of_the_error_at_which_a_metric_is_undefined_leaves_its_interval_defined():
    rows, predicted = np.tile([[0.6, 0.3, 0.1], [0.3, 0.6, 0.1]], (25, 1)), np.arange(50) % 2
    # Class 2 is never the likeliest, and does not occur where there is no error.
    found = by_name(estimated_metrics(rows, predicted, 0.4, 0.0, 0.5, rng=rng_of()))
    assert math.isnan(expected_metrics(tempered(rows, predicted, 0.0), predicted)["recall of class 2"])
    assert found["recall of class 2"] == MetricEstimate("recall of class 2", 0.0, 0.0, 0.0)


def test_metrics_of_drawn_targets_are_mostly_in_the_estimated_intervals():
    rows, predicted, _ = sample(400, 2, 8)
    error = 1 - rows[np.arange(400), predicted].mean()
    found = estimated_metrics(rows, predicted, error, error, error, rng=rng_of())
    rng, draws = rng_of(2), 200
    drawn = np.array([list(metrics_of(draw_labels(rows, rng), predicted, rows).values()) for _ in range(draws)])
    low, high = (np.array([getattr(one, end) for one in found[1:]]) for end in ("low", "high"))
    covered = ((drawn[:, 1:] >= low) & (drawn[:, 1:] <= high)).mean(axis=0)
    # 0.9, less or more 4 standard errors and what an error of 20 percent in the width changes.
    np.testing.assert_allclose(covered, 0.9, atol=4 * math.sqrt(0.09 / draws) + 0.06)


def test_a_class_that_hardly_occurs_has_a_recall_of_unknown_size():
    rows = np.tile([0.5, 0.4999, 0.0001], (50, 1))
    found = by_name(estimated_metrics(rows, np.zeros(50, dtype=int), 0.5, 0.4, 0.6, rng=rng_of()))
    assert (found["recall of class 2"].low, found["recall of class 2"].high) == (0.0, 1.0)


def test_draws_do_not_depend_on_how_many_fit_into_memory(monkeypatch):
    rows, predicted, labels = sample(50, 3, 9)
    strata, sizes = np.arange(50) % 2, np.array([400, 600])
    once = estimated_metrics(rows, predicted, 0.3, 0.2, 0.4, rng=rng_of())
    monkeypatch.setattr(module, "_MOST_ENTRIES", 7 * rows.size)
    assert estimated_metrics(rows, predicted, 0.3, 0.2, 0.4, rng=rng_of()) == once
    assert len(labelled_metrics(labels, predicted, rows, strata, sizes, rng=rng_of())) == len(metric_names(3))


@given(m=st.integers(1, 40), classes=CLASSES, seed=SEEDS)
def test_all_labels_of_all_strata_give_the_metrics_of_the_target_without_noise(m, classes, seed):
    rows, predicted, labels = sample(m, classes, seed)
    strata = rng_of(seed).integers(0, 3, m)
    found = labelled_metrics(labels, predicted, rows, strata, np.bincount(strata, minlength=3), rng=rng_of(seed))
    for end in ("value", "low", "high"):
        assert_alike({one.name: getattr(one, end) for one in found}, metrics_of(labels, predicted, rows))


def test_labelled_values_weigh_each_stratum_by_its_size():
    strata, sizes = np.array([0, 0, 1]), np.array([10, 90])
    found = labelled_metrics(LABELS, PREDICTED, ROWS, strata, sizes, rng=rng_of())
    wanted = metrics_of(LABELS, PREDICTED, ROWS, np.array([5.0, 5.0, 90.0]))
    assert_alike({one.name: one.value for one in found}, wanted)
    assert found[0].value == pytest.approx(0.1)


@pytest.mark.parametrize(("sizes", "counts"), [([3000, 500, 200], [100, 60, 80]), ([50, 30, 20] * 40, [2] * 120)])
def test_the_width_for_the_accuracy_is_that_of_the_unbiased_variance_of_a_stratified_mean(sizes, counts):
    sizes, counts, rng = np.array(sizes), np.array(counts), rng_of(3)
    strata = np.repeat(np.arange(len(counts)), counts)
    labels, predicted = (rng.random(240) < 0.3 + 0.1 * (strata % 3)).astype(int), np.zeros(240, dtype=int)
    found = labelled_metrics(labels, predicted, np.full((240, 2), 0.5), strata, sizes, level=0.68, rng=rng_of())[0]
    variances = np.array([np.var(labels[strata == h], ddof=1) for h in range(len(counts))])
    shares = sizes / sizes.sum()
    deviation = math.sqrt(np.sum(shares**2 * (1 - counts / sizes) * variances / counts))
    # The width from 400 draws has a standard error of about 5 percent.
    assert (found.high - found.low) / (2 * ndtri(0.84)) == pytest.approx(deviation, rel=0.15)


def test_labelled_intervals_cover_the_metrics_of_the_target():
    rows, predicted, labels = sample(3000, 2, 10)
    strata = (rows.max(axis=1) > 0.75).astype(int)
    truth, sizes = metrics_of(labels, predicted, rows), np.bincount(strata)
    rng, covered, draws = rng_of(4), dict.fromkeys(metric_names(2), 0), 100
    for _ in range(draws):
        chosen = np.concatenate([rng.choice(np.flatnonzero(strata == h), 75, replace=False) for h in (0, 1)])
        drawn = (part[chosen] for part in (labels, predicted, rows, strata))
        for one in labelled_metrics(*drawn, sizes, rng=rng):
            covered[one.name] += one.low <= truth[one.name] <= one.high
    # 0.9 less 4 binomial standard errors.
    assert min(covered.values()) >= draws * (0.9 - 4 * math.sqrt(0.09 / draws)), covered


def test_a_metric_without_a_mistake_in_the_sample_gets_the_end_of_an_exact_interval():
    labels = np.array([0] * 20 + [1] * 5)
    rows = np.where(labels[:, None] == [0, 1], 0.9, 0.1)
    found = by_name(labelled_metrics(labels, labels, rows, np.zeros(25, dtype=int), np.array([10**9]), rng=rng_of()))
    for name, count in [("accuracy", 25), ("recall of class 0", 20), ("recall of class 1", 5), ("macro F1", 5)]:
        assert found[name].low == pytest.approx(0.05 ** (1 / count), abs=1e-6), name
        assert found[name].high == 1.0
    wrong = by_name(labelled_metrics(1 - labels, labels, rows, labels * 0, np.array([10**9]), rng=rng_of()))
    assert wrong["accuracy"].high == pytest.approx(1 - 0.05 ** (1 / 25), abs=1e-6)


def test_a_single_label_and_absent_classes_leave_metrics_undefined():
    one = labelled_metrics(LABELS[:1], PREDICTED[:1], ROWS[:1], np.array([0]), np.array([50]), rng=rng_of())
    found = by_name(one)
    assert found["accuracy"].value == found["recall of class 0"].value == 1.0
    for name in ("recall of class 1", "precision of class 1", "AUROC"):
        assert np.isnan([found[name].value, found[name].low, found[name].high]).all()


STRATA, SIZES = np.array([0, 1, 1]), np.array([10, 20])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metric_names(1), "`classes` must be 2 or more; got 1"),
        (lambda: metrics_of(LABELS, PREDICTED, ROWS[:, :1]), r"`rows` must be probabilities .* got float64 of shape"),
        (lambda: metrics_of(LABELS, PREDICTED, 2 * ROWS), r"`rows` .* add up to 1 in every row; got .* 0.2 to 1.8"),
        (lambda: expected_metrics(np.full((3, 2), np.nan), PREDICTED), r"`rows` .* nan to nan"),
        (lambda: expected_metrics(ROWS[:0], PREDICTED[:0]), r"`rows` .* got float64 of shape \(0, 2\)"),
        (lambda: expected_metrics(np.array([["a", "b"]]), PREDICTED[:1]), r"`rows` .* got <U1"),
        (lambda: metrics_of(LABELS[:2], PREDICTED, ROWS), r"`labels` must be 3 whole numbers, from 0 to 1; got .*2,"),
        (lambda: metrics_of(LABELS + 1, PREDICTED, ROWS), r"`labels` must be 3 whole .* from 0 to 1; got .* 1 to 2"),
        (lambda: metrics_of(LABELS, PREDICTED / 2, ROWS), r"`predicted` must be 3 whole numbers.* got float64"),
        (lambda: expected_metrics(ROWS, PREDICTED, 2 * ROWS[:, 1]), r"`scores` must be 3 finite .* from 0 to 1; got"),
        (lambda: tempered(ROWS, PREDICTED, 1.2), "`error` must be from 0 to 1; got 1.2"),
        (lambda: tempered(ROWS, PREDICTED, math.nan), "`error` must be from 0 to 1; got nan"),
        (lambda: estimated_metrics(ROWS, PREDICTED, 0.2, -0.1, 0.3, rng=rng_of()), "`low` must be from 0 to 1; got"),
        (lambda: estimated_metrics(ROWS, PREDICTED, 0.2, 0.1, 1.3, rng=rng_of()), "`high` must be from 0 to 1; got"),
        (
            lambda: estimated_metrics(ROWS, PREDICTED, 0.2, 0.3, 0.4, rng=rng_of()),
            "`error` must be from `low` to `high`; got 0.2, and 0.3 to 0.4",
        ),
        (
            lambda: estimated_metrics(ROWS, PREDICTED, 0.2, 0.1, 0.3, level=1.0, rng=rng_of()),
            "`level` must be between 0 and 1; got 1",
        ),
        (
            lambda: labelled_metrics(LABELS, PREDICTED, ROWS, STRATA, SIZES, level=0.0, rng=rng_of()),
            "`level` must be between 0 and 1; got 0",
        ),
        (
            lambda: labelled_metrics(LABELS, PREDICTED, ROWS, STRATA + 1, SIZES, rng=rng_of()),
            "`strata` must be 3 whole numbers, from 0 to 1; got int64 of shape .* 1 to 2",
        ),
        (
            lambda: labelled_metrics(LABELS, PREDICTED, ROWS, STRATA, SIZES[:0], rng=rng_of()),
            r"`sizes` must be 1 finite numbers, 0 or more; got int64 of shape \(0,\)",
        ),
        (
            lambda: labelled_metrics(LABELS, PREDICTED, ROWS, STRATA, np.array([10, 1]), rng=rng_of()),
            "`sizes` must be at least the labelled samples of each stratum.* stratum 1 has size 1 and 2 labelled",
        ),
        (
            lambda: labelled_metrics(LABELS, PREDICTED, ROWS, STRATA, np.array([10, 20, 5]), rng=rng_of()),
            "each stratum needs one; stratum 2 has size 5 and 0 labelled",
        ),
    ],
)
def test_bad_input_is_one_line_that_names_the_argument(call, message):
    with pytest.raises(InputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
