"""Outputs from files and arrays: what is read, and one clear line for everything that cannot be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logit, softmax

from projnorm.core.arrays import to_npz
from projnorm.outputs.outputs import Outputs, read_outputs, require_alike, require_valid

RNG = np.random.default_rng(0)
LOGITS = RNG.standard_normal((30, 3))
LABELS = RNG.integers(3, size=30)


def saved(path, **arrays):
    path.write_bytes(to_npz(arrays))
    return path


def test_a_file_gives_logits_features_labels_and_other_models(tmp_path):
    more = {"features": np.ones((30, 2)), "labels": LABELS, "other_logits": np.stack([LOGITS] * 2)}
    found = read_outputs(saved(tmp_path / "a.npz", logits=LOGITS, **more))
    np.testing.assert_array_equal(found.logits, LOGITS)
    np.testing.assert_array_equal(found.known_labels, LABELS)
    assert (found.features.shape, len(found.others)) == ((30, 2), 2)
    assert found.error == pytest.approx(np.mean(LOGITS.argmax(axis=1) != LABELS))


def test_probabilities_and_plain_arrays_are_read_too(tmp_path):
    rows = softmax(LOGITS, axis=1)
    found = read_outputs(saved(tmp_path / "p.npz", probabilities=rows))
    np.testing.assert_allclose(np.exp(found.logits), rows)
    np.save(tmp_path / "z.npy", LOGITS)
    plain = read_outputs(tmp_path / "z.npy")
    assert (plain.labels, plain.features) == (None, None)


def test_labels_may_be_names_or_other_numbers_if_the_columns_are_named(tmp_path):
    for classes in (np.array(["cat", "dog", "owl"]), np.array([3, 7, 12])):
        found = read_outputs(saved(tmp_path / "n.npz", logits=LOGITS, labels=classes[LABELS], classes=classes))
        np.testing.assert_array_equal(found.known_labels, LABELS)


@pytest.mark.parametrize("shape", [(30,), (30, 1)])
def test_one_column_is_that_of_class_one_of_two(tmp_path, shape):
    p = softmax(LOGITS[:, :2], axis=1)[:, 1]
    truth = LABELS.clip(max=1)
    found = read_outputs(saved(tmp_path / "p.npz", probabilities=p.reshape(shape), labels=truth))
    np.testing.assert_allclose(softmax(found.logits, axis=1), np.stack([1 - p, p], axis=1))
    from_logit = read_outputs(saved(tmp_path / "z.npz", logits=logit(p).reshape(shape), labels=truth))
    np.testing.assert_allclose(softmax(from_logit.logits, axis=1)[:, 1], p)
    assert found.error == from_logit.error == np.mean((p > 0.5) != truth)
    named = Outputs.from_arrays(
        {"probabilities": p, "labels": np.array(["no", "yes"])[truth], "classes": ["no", "yes"]}
    )
    assert named.error == found.error


def test_predictions_of_the_models_own_decide_what_is_an_error(tmp_path):
    classes, own = np.array(["cat", "dog", "owl"]), (LABELS + (np.arange(30) < 6)) % 3
    arrays = {"logits": LOGITS, "labels": classes[LABELS], "predictions": classes[own], "classes": classes}
    found = read_outputs(saved(tmp_path / "t.npz", **arrays))
    assert found.error == pytest.approx(0.2)
    np.testing.assert_array_equal(found.predicted, own)
    part = found.take(np.array([3, 7])).without_labels()
    np.testing.assert_array_equal(part.predicted, own[[3, 7]])
    with pytest.raises(ValueError, match="`predictions` must be column numbers"):
        require_valid(replace(found, predictions=own + 7), "target", with_labels=False)


def test_a_file_of_another_form_says_which(tmp_path):
    (tmp_path / "text.npz").write_text("label,prob_a,prob_b\na,0.9,0.1\n")
    with pytest.raises(
        ValueError, match=r"text.npz: must be an .npz file, but has the content of a .csv file; rename it"
    ):
        read_outputs(tmp_path / "text.npz")
    np.save(tmp_path / "z.npy", LOGITS)
    (tmp_path / "z.npy").rename(tmp_path / "z.npz")
    with pytest.raises(ValueError, match=r"has the content of a .npy file"):
        read_outputs(tmp_path / "z.npz")
    np.savez(tmp_path / "o.npz", logits=LOGITS, labels=np.array(["cat"] * 30, dtype=object))
    with pytest.raises(
        ValueError, match=r"o.npz: .*`labels` holds Python objects.*: save it as .* text with astype\(str\)"
    ):
        read_outputs(tmp_path / "o.npz")


WITH_NAN = LOGITS.copy()
WITH_NAN[4, 1] = np.nan


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "needs one of the arrays `logits` and `probabilities`.* it has none"),
        ({"logits": LOGITS, "probabilities": LOGITS}, "needs one of the arrays"),
        ({"logits": WITH_NAN}, "`logits` must be finite; 1 rows are not, the first is row 4"),
        ({"logits": LOGITS[:0]}, "`logits` holds no sample"),
        ({"logits": LOGITS[:, :0]}, "two classes or more; got \\(30, 0\\)"),
        ({"logits": LOGITS[None]}, "shape \\(samples, classes\\) with two classes or more; got \\(1, 30, 3\\)"),
        ({"logits": LOGITS[:, 0], "labels": LABELS}, "one column of outputs is that of class 1 of two.* has 3 classes"),
        ({"probabilities": np.ones(30), "labels": LABELS}, "give a column for each class, shape \\(samples, classes"),
        ({"probabilities": LOGITS[:, 0]}, "must be those of class 1, from 0 to 1; got .* call them `logits`"),
        ({"probabilities": np.full(30, np.nan)}, "`probabilities` must be finite; 30 rows are not"),
        ({"logits": LOGITS, "labels": np.eye(3)[LABELS]}, "`labels` look one-hot; pass labels.argmax\\(axis=1\\); got"),
        ({"logits": LOGITS, "labels": np.ones((30, 2))}, "`labels` must hold one per sample; got shape \\(30, 2\\)"),
        (
            {"logits": LOGITS, "predictions": LABELS + 1},
            "`predictions` must be column numbers of the outputs, 0 to 2; got 3",
        ),
        (
            {"logits": LOGITS, "predictions": LABELS[1:]},
            "`predictions` must hold one for each of the 30 samples; got 29",
        ),
        ({"logits": np.full((2, 2), "a")}, "must be numbers; got <U1"),
        ({"probabilities": LOGITS}, "`probabilities` must be at least 0 and add up to 1"),
        ({"logits": LOGITS, "labels": LABELS[:-1]}, "`labels` must hold one for each of the 30 samples; got 29"),
        ({"logits": LOGITS, "labels": LABELS + 1}, "0 to 2; got 3. If they are numbered otherwise, add .*`classes`"),
        ({"logits": LOGITS, "labels": LABELS - 1}, "0 to 2; got -1"),
        ({"logits": LOGITS, "labels": np.full(30, "cat")}, "such as 'cat'. Add an array `classes`"),
        ({"logits": LOGITS, "labels": LABELS + 0.5}, "must be whole numbers from 0 to 2"),
        (
            {"logits": LOGITS, "labels": np.full(30, "emu"), "classes": np.array(["cat", "dog", "owl"])},
            "`labels` has 'emu', which is not among `classes` \\(cat, dog, owl\\)",
        ),
        ({"logits": LOGITS, "labels": LABELS, "classes": np.array(["a", "b"])}, "each of the 3 columns once"),
        ({"logits": LOGITS, "features": np.ones((29, 2))}, "`features` must have one row for each of the 30"),
        ({"logits": LOGITS, "features": np.full((30, 1), np.inf)}, "`features` must be finite; 30 rows"),
        ({"logits": LOGITS, "other_logits": LOGITS[:, :2]}, "`other_logits` must have the shape \\(30, 3\\)"),
        ({"logits": LOGITS, "other_logits": LOGITS[0]}, "shape \\(models, samples, classes\\)"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_a_line(tmp_path, arrays, message):
    with pytest.raises(ValueError, match=message) as problem:
        read_outputs(saved(tmp_path / "bad.npz", **arrays))
    assert "bad.npz" in str(problem.value)


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (Outputs.from_logits(LOGITS[:, :2], name="other"), "3 classes and other 2"),
        (Outputs.from_logits(LOGITS, features=np.ones((30, 4)), name="other"), "0 features a sample and other 4"),
        (Outputs.from_logits(LOGITS, others=(LOGITS,), name="other"), "0 other models and other 1"),
        (
            Outputs.from_logits(LOGITS, predictions=LABELS, name="other"),
            "other has `predictions` and source has none; give them",
        ),
    ],
)
def test_sets_of_different_models_are_refused(other, what):
    with pytest.raises(ValueError, match=what):
        require_alike(Outputs.from_logits(LOGITS, name="source"), other)
