"""A few labels: which samples to label, files to fill in, and what labels say of the error of a target."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from projnorm.core.errors import InputError
from projnorm.core.statistics import Interval
from projnorm.estimate.choose_labels import choose_labels, chosen_samples
from projnorm.estimate.error_estimator import ErrorEstimator
from projnorm.estimate.estimate import estimate_error
from projnorm.labels.labelled import Labelled, labelled_error, power_tuned_interval
from projnorm.labels.plan import LabelPlan
from projnorm.labels.sequence import anytime_interval
from projnorm.labels.stratified_intervals import guaranteed_interval, stratified_interval
from tests.small import gaussian_outputs


def rng_of(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


PLAN = LabelPlan(
    np.array([5, 0, 7, 2]), np.array([0, 1, 1, 0]), np.array([30, 10]), np.array([1 / 3, 0.7]), ("a, b", '"q"', "", "ü")
)


@pytest.mark.parametrize("rows", [(), [f"id {n}" for n in range(40)]])
def test_a_plan_comes_back_from_its_file(tmp_path, rows):
    PLAN.write(tmp_path / "plan.csv", rows=rows)
    found = LabelPlan.read(str(tmp_path / "plan.csv"))
    for name in ("samples", "strata", "sizes", "expected"):
        np.testing.assert_array_equal(getattr(found, name), getattr(PLAN, name))
    assert (found.labels, len(found), found.is_labelled.tolist()) == (PLAN.labels, 4, [True, True, False, True])
    table = pd.read_csv(tmp_path / "plan.csv")
    np.testing.assert_allclose(table["probability"], [2 / 30, 2 / 10, 2 / 10, 2 / 30], rtol=1e-5)
    assert ("row" in table) == bool(rows)
    assert found.with_labels({7: 3}).labels == ("a, b", '"q"', "3", "ü")


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({7: 3, 8: "not chosen"}, "must be of chosen rows, which are `plan.samples`; row 8 is not among them"),
        (dict(enumerate("abcd")), "row 1 is not among them"),
        (np.array([1, 0, 1, 1]), "must be a mapping from rows of the target to labels.*got ndarray"),
        (["a", "b", "c", "d"], "must be a mapping .* got list"),
    ],
)
def test_labels_that_do_not_name_their_rows_are_refused(labels, words):
    """In the order of the plan they would become labels of other samples."""
    with pytest.raises(InputError, match=words):
        PLAN.with_labels(labels)


def test_labels_of_all_rows_of_the_target_serve():
    assert PLAN.with_labels(dict(enumerate("abcdefgh"))).labels == ("f", "a", "h", "c")


HEADER = "sample,stratum,stratum_size,expected_error,probability,label\n"


def test_a_plan_that_a_spreadsheet_saved_is_read(tmp_path):
    text = "\ufeff" + HEADER.strip() + ",note\n3,0,5,0.1,0.4, cat ,x\n1,0,5,0.1,0.4,,\n"
    (tmp_path / "plan.csv").write_bytes(text.replace("\n", "\r\n").encode())
    found = LabelPlan.read(tmp_path / "plan.csv")
    assert (found.samples.tolist(), found.labels) == ([3, 1], ("cat", ""))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it has no row"),
        (HEADER, "it has no row"),
        (HEADER.replace("stratum_size,", "") + "1,0,0.1,0.5,\n", "it has no column stratum_size"),
        (HEADER + "x,0,5,0.1,0.5,\n", "'x' is no whole number"),
        (HEADER + "1\n", "None is no whole number"),
        (HEADER + "1,0,5,0.1,0.5,\n1,0,5,0.1,0.5,\n", "a sample is there twice, or negative"),
        (HEADER + "-1,0,5,0.1,0.5,\n", "a sample is there twice, or negative"),
        (HEADER + "1,1,5,0.1,0.5,\n", "strata are not numbered from 0"),
        (HEADER + "1,-1,5,0.1,0.5,\n2,0,5,0.1,0.5,\n", "strata are not numbered from 0"),
        (HEADER + f"1,{2**62},5,0.1,0.5,\n", "strata are not numbered from 0"),
        (HEADER + "1,0,5,0.1,0.5,\n2,0,6,0.1,0.5,\n", "sizes of strata do not fit together"),
        (HEADER + "1,0,1,0.1,0.5,\n2,0,1,0.1,0.5,\n", "sizes of strata do not fit together"),
        (HEADER + "1,0,5,nan,0.5,\n", "sizes of strata do not fit together"),
        (HEADER + f"{10**30},0,5,0.1,0.5,\n", "too large"),
        (HEADER + "1,0,5,0.1,0.5," + "x" * 200_000 + "\n", "field larger than field limit"),
        ("\x00\xff", "can't decode|it has no"),
    ],
)
def test_a_file_that_is_no_plan_is_refused_in_a_line(tmp_path, text, reason):
    path = tmp_path / "plan.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=rf"plan\.csv: is no file of samples to label \(.*({reason})") as caught:
        LabelPlan.read(path)
    assert "\n" not in str(caught.value)


SOURCE = gaussian_outputs(300, [1, 1, 1], rng_of(0))
TARGET = replace(gaussian_outputs(200, [1, 1, 1], rng_of(1), noise=0.5), name="target")
NAMES = ("cat", "dog", "owl")


@pytest.fixture(scope="module")
def estimator():
    return ErrorEstimator.fit(None, SOURCE)


@pytest.fixture(scope="module")
def plan(estimator):
    return chosen_samples(estimator, TARGET, 40)


def filled(plan, labels=TARGET.labels, count=None):
    """The plan with the first labels filled in."""
    return plan.with_labels({sample: labels[sample] for sample in plan.samples[:count].tolist()})


def test_chosen_samples_expect_the_error_that_is_estimated_without_labels(estimator, plan):
    np.testing.assert_array_equal(choose_labels(None, SOURCE, TARGET, 40).samples, plan.samples)
    assert len(plan) == len(set(plan.samples.tolist())) == 40
    assert not plan.is_labelled.any()
    assert plan.sizes @ plan.expected / 200 == pytest.approx(estimator.estimate(TARGET).error, abs=1e-6)
    assert (np.diff(plan.expected) > 0).all()
    assert len(chosen_samples(estimator, TARGET, 1000)) == 200
    assert choose_labels(None, SOURCE, TARGET, 40, seed=1).samples.tolist() != plan.samples.tolist()


def test_more_samples_continue_a_plan_that_is_partly_labelled(estimator, plan):
    before = filled(plan, count=15)
    more = chosen_samples(estimator, TARGET, 60, more=before)
    assert len(more) == len(set(more.samples.tolist())) == 100
    np.testing.assert_array_equal(more.samples[:40], plan.samples)
    np.testing.assert_array_equal(more.sizes, plan.sizes)
    assert more.labels == before.labels + ("",) * 60
    np.testing.assert_array_equal(more.probabilities, (np.bincount(more.strata) / more.sizes)[more.strata])


@pytest.mark.parametrize(
    ("source", "target", "budget", "more", "options", "message"),
    [
        (SOURCE, TARGET, 0, None, {}, "`budget` must be 1 or more; got 0"),
        (SOURCE, TARGET, 5, {}, {"seed": 1}, "`more` was chosen from another source or target, or with another seed"),
        (SOURCE, TARGET.take(np.arange(150)), 5, {}, {}, "`more` was chosen from another source or target"),
        (SOURCE.take(np.arange(150)), TARGET, 5, {}, {}, "`more` was chosen from another source or target"),
        (SOURCE, TARGET, 5, {"sizes": np.array([100, 100])}, {}, "`more` was chosen from another source or target"),
        (SOURCE, TARGET, 5, 200, {}, "`more` already has all 200 samples of the target"),
        (SOURCE, replace(TARGET, logits=TARGET.logits[:, :2]), 5, None, {}, "must come from one model"),
    ],
)
def test_what_cannot_be_chosen_is_said(estimator, plan, source, target, budget, more, options, message):
    more = replace(plan, **more) if isinstance(more, dict) else more and chosen_samples(estimator, TARGET, more)
    with pytest.raises(InputError, match=message):
        choose_labels(None, source, target, budget, more=more, **options)


FREE = Interval(0.1, 0.05, 0.15)
UNIFORM = np.arange(0, 200, 5)
LABELS = TARGET.labels[UNIFORM]


def said_of(given, outputs=TARGET, **options):
    rows = np.exp(outputs.logits - outputs.logits.max(axis=1, keepdims=True))
    return labelled_error(Labelled.from_input(given), outputs, rows / rows.sum(axis=1, keepdims=True), FREE, **options)


def table(labels, samples=UNIFORM):
    return {"sample": samples, "label": labels}


FORMS = {
    "numbers": table(LABELS),
    "lists": table(LABELS.tolist(), UNIFORM.tolist()),
    "texts": table([str(label) for label in LABELS]),
    "floats with missing ones": table([*LABELS, np.nan], [*UNIFORM, 3]),
    "objects with missing ones": table([None, *LABELS.tolist()], [3, *UNIFORM]),
    "a DataFrame": pd.DataFrame(table(LABELS)),
    "a DataFrame with missing ones": pd.DataFrame(table(pd.array([*LABELS, None], dtype="Int64"), [*UNIFORM, 3])),
}


@pytest.mark.parametrize("form", FORMS)
def test_labels_of_a_uniform_draw_may_be_a_table_in_any_form(form):
    found = said_of(FORMS[form])
    is_whole = "missing" not in form  # else labelling is under way
    assert (found.labels, found.design, found.interval) == (40, "uniform", "fixed" if is_whole else "anytime")
    assert found.counts.wrong.sum() == np.sum(TARGET.predicted[UNIFORM] != LABELS)
    assert (len(found.counts.sizes), found.counts.total) == (2 if is_whole else 1, 200)
    assert found.counts.labelled.min() >= 5
    assert found.error == found.counts.estimate


def test_a_uniform_draw_of_few_labels_has_one_stratum():
    found = said_of(table(LABELS[:9], UNIFORM[:9]))
    assert (found.counts.sizes.tolist(), found.counts.labelled.tolist()) == ([200], [9])


@pytest.mark.parametrize("count", [40, 20])
def test_a_plan_and_its_file_give_the_estimate_of_its_strata(tmp_path, plan, count):
    partly = filled(plan, count=count)
    partly.write(tmp_path / "plan.csv")
    strata, wrong = plan.strata[:count], (TARGET.predicted != TARGET.labels)[plan.samples[:count]]
    rates = [wrong[strata == h].mean() for h in range(len(plan.sizes))]
    for form in (partly, tmp_path / "plan.csv", str(tmp_path / "plan.csv")):
        found = said_of(form)
        assert (found.design, found.interval) == ("stratified", "fixed" if count == 40 else "anytime")
        assert found.error == pytest.approx(plan.sizes @ rates / 200)
        np.testing.assert_array_equal(found.expected, plan.expected)
    for name, wanted in (
        ("fixed", stratified_interval(found.counts, 0.8)),
        ("anytime", anytime_interval(found.counts, plan.expected, 0.8)),
        ("guaranteed", guaranteed_interval(found.counts, 0.8)),
    ):
        found = said_of(partly, interval=name, level=0.8)
        assert (found.interval, found.low, found.high) == (name, wanted.low, wanted.high)


def test_labels_may_be_names_of_classes(plan):
    named, names = replace(TARGET, class_names=NAMES), np.array(NAMES)[TARGET.labels]
    assert said_of(filled(plan, names), named).to_dict() == said_of(filled(plan)).to_dict()
    assert said_of(table(names[UNIFORM]), named).to_dict() == said_of(table(LABELS)).to_dict()
    with pytest.raises(InputError, match=r"`labels` has '\d', which is not among `classes`"):
        said_of(filled(plan), named)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (7, "`labelled` must be a LabelPlan, a file or a table; got int"),
        (replace(PLAN, labels=("",) * 4), "`labelled` has no label yet; fill in the column `label`"),
        ({"sample": [1]}, "`labelled` must have `sample` and `label`; it has no `label`"),
        (pd.DataFrame({"label": [1]}), "`labelled` must have `sample` and `label`; it has no `sample`"),
        (table([0, 1], [1]), "`labelled` must have a row of the target, a whole number, and a label"),
        (table([0, 1], [1.0, 2.0]), "`labelled` must have a row of the target, a whole number, and a label"),
        (table([None, np.nan], [1, 2]), "`labelled` must have a row of the target, a whole number, and a label"),
        (table([0, 1], [-1, 5]), "must name different rows of the target, 0 to 199; got 2 rows from -1 to 5, 2 of"),
        (table([0, 1], [0, 200]), "must name different rows of the target, 0 to 199; got 2 rows from 0 to 200"),
        (table([0, 0], [5, 5]), "must name different rows .* got 2 rows from 5 to 5, 1 of them different"),
        (table([0, 3], [5, 6]), "`labelled`: `labels` must be column numbers of the outputs, 0 to 2; got 3"),
        (table(["0", "cat"], [5, 6]), "`labelled`: `labels` must be whole numbers from 0 to 2.*'0', 'cat'"),
        (table(["0", "nan"], [5, 6]), "`labelled`: `labels` must be whole numbers from 0 to 2"),
        (replace(PLAN, labels=("0",) * 4), "`labelled` was chosen from 40 samples; the target has 200"),
        (
            replace(PLAN, sizes=np.array([150, 50]), labels=("0", "", "", "1")),
            "`labelled` needs a label in each of the 2 strata; label the first rows first",
        ),
    ],
)
def test_labels_that_do_not_fit_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        said_of(given)


def test_an_interval_of_no_kind_is_refused(plan):
    with pytest.raises(InputError, match="`interval` must be one of auto, fixed, anytime, guaranteed; got 'normal'"):
        said_of(filled(plan), interval="normal")


def plain_power_tuned(y, f, samples, strata, sizes, level):
    """The definition, stratum by stratum: the estimated variance is minimised over a grid of powers from 0 to 1."""
    total, variances, values = sizes.sum(), [], []
    powers = np.linspace(0, 1, 2001)
    for power in powers:
        variance = value = 0.0
        for h, size in enumerate(sizes):
            inside = strata == h
            rest, n = y[inside] - power * f[samples[inside]], inside.sum()
            value += size / total * rest.mean()
            variance += (size / total) ** 2 * (1 - n / size) / n * np.var(rest, ddof=1)
        values.append(value + power * f.mean())
        variances.append(variance)
    best = int(np.argmin(variances))
    reach = norm.ppf(0.5 + level / 2) * np.sqrt(variances[best])
    return np.clip([values[best], values[best] - reach, values[best] + reach], 0, 1), powers[best]


@pytest.mark.parametrize("slope", [0.0, 0.7, 1.0, -1.0])
def test_the_power_tuned_interval_is_that_of_the_definition(slope):
    rng, sizes = rng_of(2), np.array([300, 200])
    f = np.concatenate([rng.beta(1, 5, 300), rng.beta(2, 2, 200)])
    samples = np.concatenate([rng.choice(300, 40, replace=False), 300 + rng.choice(200, 60, replace=False)])
    strata = np.repeat([0, 1], [40, 60])
    y = rng.random(100) < 0.3 + slope * (f[samples] - 0.3)
    found = power_tuned_interval(y, f, samples, strata, sizes, 0.9)
    plain, power = plain_power_tuned(y, f, samples, strata, sizes, 0.9)
    assert power == 0 if slope < 0 else power > 0.5 * (slope == 1)
    np.testing.assert_allclose([found.value, found.low, found.high], plain, atol=2e-4)


def test_a_perfect_prediction_leaves_no_noise_and_a_constant_one_the_stratified_mean():
    y, samples, strata, sizes = np.arange(20) % 4 == 0, np.arange(20), np.arange(20) % 2, np.array([50, 50])
    f = np.where(np.arange(100) % 5 == 0, 1.0, 0.0)
    f[:20] = y
    exact = power_tuned_interval(y, f, samples, strata, sizes, 0.9)
    np.testing.assert_allclose([exact.value, exact.low, exact.high], f.mean(), atol=1e-9)
    assert power_tuned_interval(y, np.full(100, 0.1), samples, strata, sizes, 0.9).value == pytest.approx(0.25)


def test_labels_replace_the_estimate_and_refute_it_where_they_contradict_it(plan):
    free = estimate_error(None, SOURCE, TARGET)
    found = estimate_error(None, SOURCE, TARGET, labelled=filled(plan), metrics=True)
    one = found.labelled
    assert (found.error, found.low, found.high) == (one.error, one.low, one.high)
    assert (one.label_free.value, one.label_free.low, one.label_free.high) == (free.error, free.low, free.high)
    assert (found.based_on, found.truth, found.warnings) == (("labels",), TARGET.error, ())
    assert found.low <= TARGET.error <= found.high
    assert (found.metrics[0].name, found.metrics[0].value) == ("accuracy", pytest.approx(1 - found.error))
    assert "90 % interval" in str(found)
    assert "of 40 labelled samples are wrong. The interval holds whatever the shift is" in found.sentence
    assert "the labels do not refute it, move it by" in found.sentence
    read = json.loads(json.dumps(found.to_dict()))
    assert [stratum["size"] for stratum in read["labelled"]["strata"]] == plan.sizes.tolist()
    assert (read["labelled"]["labels"], read["labelled"]["refutes_label_free"]) == (40, False)
    assert read["covers"] == "the draw of the labels, whatever the shift"
    # Classes have changed their meaning, which no output shows.
    moved = (TARGET.labels + 1) % 3
    refuted = estimate_error(None, SOURCE, TARGET, labelled=filled(plan, moved))
    assert refuted.low > free.high
    assert refuted.low <= np.mean(TARGET.predicted != moved) <= refuted.high
    assert refuted.warnings[0].startswith("The labels refute the estimate without labels")
    assert "the labels refute it, move it by +" in refuted.sentence


def test_labels_with_gaps_are_warned_of(plan):
    gaps = replace(filled(plan), labels=("", *filled(plan).labels[1:]))
    found = estimate_error(None, SOURCE, TARGET, labelled=gaps)
    assert [warning[:45] for warning in found.warnings] == ["The labelled samples are not the first that w"]
    assert found.labelled.interval == "anytime"
    assert estimate_error(None, SOURCE, TARGET, labelled=filled(plan, count=30)).warnings == ()


def test_more_samples_are_remembered_as_such_and_their_interval_allows_for_a_look_at_the_labels(tmp_path):
    outputs = gaussian_outputs(400, [1, 1, 1], rng_of(0))
    plan = choose_labels(None, outputs, outputs.without_labels(), 20)
    whole = plan.with_labels(dict(enumerate(outputs.labels)))
    assert labelled_interval(outputs, whole) == "fixed"
    more = choose_labels(None, outputs, outputs.without_labels(), 20, more=whole)
    more = choose_labels(None, outputs, outputs.without_labels(), 5, more=more)
    more.with_labels(dict(enumerate(outputs.labels))).write(tmp_path / "more.csv")
    found = LabelPlan.read(tmp_path / "more.csv")
    assert (found.at_first, found.is_one_draw, len(found)) == (20, False, 45)
    assert labelled_interval(outputs, tmp_path / "more.csv") == "anytime"


def labelled_interval(outputs, labelled):
    return estimate_error(None, outputs, outputs.without_labels(), labelled=labelled).labelled.interval


def test_a_file_of_a_uniform_draw_needs_two_columns(tmp_path):
    outputs = gaussian_outputs(400, [1, 1, 1], rng_of(0))
    rows = [f"{n},{outputs.labels[n]}" for n in range(0, 400, 10)]
    (tmp_path / "uniform.csv").write_text("\n".join(["sample,label", *rows]) + "\n")
    found = estimate_error(None, outputs, outputs.without_labels(), labelled=tmp_path / "uniform.csv")
    assert (found.labelled.labels, found.labelled.design, found.labelled.interval) == (40, "uniform", "fixed")
    (tmp_path / "uniform.csv").write_text("\n".join(["sample,label", *rows, "3,"]) + "\n")
    found = estimate_error(None, outputs, outputs.without_labels(), labelled=tmp_path / "uniform.csv")
    assert (found.labelled.labels, found.labelled.interval) == (40, "anytime")
    assert len(found.labelled.counts.sizes) == 1
