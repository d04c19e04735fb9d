"""Tables: outputs in CSV and Parquet files and DataFrames, and inputs as numbers."""

from __future__ import annotations

import datetime
import gzip
import sys

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax

from projnorm.core.errors import InputError, MissingExtraError
from projnorm.data.tables import read_table, stem
from projnorm.outputs.dataframes import is_table, take_rows
from projnorm.outputs.output_tables import arrays_of_table
from projnorm.outputs.outputs import Outputs, read_outputs
from projnorm.outputs.table_encoder import TableEncoder

RNG = np.random.default_rng(0)
CLASSES = ["cat", "dog", "owl"]
PROBABILITIES = softmax(RNG.standard_normal((30, 3)), axis=1)
LABELS = RNG.integers(3, size=30)
TABLE = pd.DataFrame({f"prob_{name}": PROBABILITIES[:, i] for i, name in enumerate(CLASSES)}).assign(
    label=np.array(CLASSES)[LABELS], id=np.arange(30), feature_0=1.5
)


def write(table: pd.DataFrame, path):
    if path.suffix == ".parquet":
        pytest.importorskip("pyarrow")
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet"])
def test_a_table_of_outputs_is_read(tmp_path, name):
    shuffled = TABLE[["feature_0", "prob_owl", "label", "prob_cat", "id", "prob_dog"]]
    found = read_outputs(write(shuffled, tmp_path / name))
    np.testing.assert_allclose(np.exp(found.logits), PROBABILITIES)
    np.testing.assert_array_equal(found.known_labels, LABELS)
    assert found.known_features.tolist() == [[1.5]] * 30
    assert stem(tmp_path / name) == "a"


def test_classes_that_are_numbers_are_in_their_order():
    logits = RNG.standard_normal((5, 11))
    table = pd.DataFrame(logits, columns=[f"logit_{i}" for i in range(11)]).assign(y=10.0, prediction=9)
    found = Outputs.from_arrays(arrays_of_table(table, "set"))
    np.testing.assert_allclose(found.logits, logits)
    assert found.known_labels.tolist() == [10] * 5
    assert found.predicted.tolist() == [9] * 5


@pytest.mark.parametrize(
    ("column", "labels", "error"),
    [
        ("probability", [1, 0, 1, 0], 0.75),
        ("probability", [True, False, True, True], 0.5),
        ("prob_yes", ["yes", "no", "yes", "no"], 0.75),
        ("prob_1", ["1", "0", "1", "0"], 0.75),
        ("logit", [1, 0, 1, 0], 0.5),
    ],
)
def test_a_binary_model_needs_one_column(column, labels, error):
    table = pd.DataFrame({column: [0.9, 0.8, 0.4, 0.7], "target": labels})
    table[column] -= 0.75 if column == "logit" else 0.0
    assert Outputs.from_arrays(arrays_of_table(table, "set")).error == error


def test_the_column_of_the_labels_may_be_named_and_empty_labels_are_none():
    named = TABLE.rename(columns={"label": "species"})
    assert "labels" not in arrays_of_table(named, "set")
    assert arrays_of_table(named, "set", label_column="species")["labels"].tolist() == TABLE["label"].tolist()
    assert "labels" not in arrays_of_table(TABLE.assign(label=None), "set")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (TABLE[["id", "label"]], "needs a column prob_NAME or logit_NAME for each class, .*; it has id, label"),
        (TABLE.assign(logit_cat=1.0), "needs a column prob_NAME or logit_NAME"),
        (TABLE.assign(prob_cat="high"), "the column `prob_cat` must be numbers; got "),
        (
            TABLE.assign(label=["cat", None] * 15),
            "`label` must have a label in every row, or in none; 15 rows have none",
        ),
        (TABLE.assign(prob_cat=np.nan), "`probabilities` must be finite; 30 rows"),
        (TABLE.assign(label="emu"), "`labels` has 'emu', which is not among `classes`"),
        (TABLE[["prob_cat", "label"]], "has a column for the class 'cat' alone, and the classes dog, owl besides"),
    ],
)
def test_what_is_wrong_with_a_table_of_outputs_is_said(table, message):
    with pytest.raises(InputError, match=message):
        Outputs.from_arrays(arrays_of_table(table, "set"), "set")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", r"a.csv: not a CSV file of one row per sample \(No columns"),
        ("a.csv", b"x,y\n", "a.csv: holds no row"),
        ("a.csv", b"x,y\n1,2\n1,2,3,4\n", r"a.csv: not a CSV file .*Expected 2 fields in line 3"),
        ("a.csv", b"PK\x03\x04\0\0", "a.csv: not a CSV file .*zero bytes"),
        ("a.csv.gz", b"x,y\n1,2\n", "a.csv.gz: not a whole gzip file"),
        ("a.csv.gz", gzip.compress(b"x,y\n1,2\n" * 99, mtime=0)[:-9], "a.csv.gz: not a whole gzip file"),
        ("a.parquet", b"PAR1 and no more", "a.parquet: not a whole Parquet file"),
    ],
)
def test_a_damaged_table_is_one_line(tmp_path, name, content, message):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as problem:
        read_table(tmp_path / name)
    assert "\n" not in str(problem.value)


def test_a_packed_table_may_not_unpack_to_more_than_is_read(tmp_path, monkeypatch):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"x\n" + b"1\n" * 100_000))
    monkeypatch.setenv("PROJNORM_MAX_READ_GB", "1e-5")
    with pytest.raises(InputError, match="it unpacks to more than 10,000 bytes"):
        read_table(tmp_path / "a.csv.gz")


@pytest.mark.parametrize(("library", "name"), [("pandas", "a.csv"), ("pyarrow", "a.parquet")])
def test_a_missing_library_is_said_with_its_extra(tmp_path, monkeypatch, library, name):
    (tmp_path / name).write_bytes(b"PAR1")
    for module in [one for one in sys.modules if one.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=rf"needs {library}.* pip install '\.\[tables\]'"):
        read_table(tmp_path / name)


def mixed(**changes) -> pd.DataFrame:
    columns = {
        "age": [30, 40, 50],
        "pay": [1.5, None, 2.5],
        "city": pd.Categorical(["Rome", "Bonn", None]),
        "job": ["cook", "actor", "cook"],
        "is_new": [True, False, True],
        "since": pd.to_datetime(["1970-01-02", None, "1970-01-01"]),
        "count": pd.array([1, None, 3], dtype="Int64"),
        "seen": [datetime.date(1970, 1, 2)] * 3,
    }
    return pd.DataFrame(columns | changes, index=[7, 7, 9])


def test_a_table_becomes_numbers_that_mean_the_same_in_every_set():
    encoder = TableEncoder.fit(mixed())
    assert encoder is not None
    day, nan = 86_400.0, np.nan
    expected = np.array(
        [
            [30, 1.5, 1, 1, 1, day, 1, 719164 * day],
            [40, nan, 0, 0, 0, nan, nan, 719164 * day],
            [50, 2.5, nan, 1, 1, 0, 3, 719164 * day],
        ]
    )
    np.testing.assert_allclose(encoder.transform(mixed()), expected)
    target = mixed(city=["Bonn", "Oslo", "Rome"], job=["cook", "cook", None])[list(encoder.columns)[::-1]]
    found = encoder.transform(target)
    np.testing.assert_array_equal(found[:, 2], [0, 2, 1])
    np.testing.assert_array_equal(found[:, 3], [1, 1, nan])
    np.testing.assert_array_equal(encoder.transform(take_rows(mixed(), np.array([2]))), expected[[2]])
    with pytest.raises(InputError, match="the column 'age' must be numbers, as in the source; got"):
        encoder.transform(mixed(age=["old"] * 3))
    with pytest.raises(InputError, match="must have the columns of the source; 'job' is missing"):
        encoder.transform(mixed().drop(columns="job"))


def test_a_matrix_is_a_table_and_images_and_texts_are_none():
    X = np.array([[1, 2], [3, 4]], dtype=np.uint8)
    encoder = TableEncoder.fit(X)
    assert encoder is not None
    np.testing.assert_array_equal(encoder.transform(X), [[1.0, 2.0], [3.0, 4.0]])
    objects = np.array([["a", 1], ["b", None]], dtype=object)
    encoder = TableEncoder.fit(objects)
    assert encoder is not None
    np.testing.assert_array_equal(encoder.transform(objects), [[0.0, 1.0], [1.0, np.nan]])
    assert TableEncoder.fit(np.zeros((2, 4, 4, 3))) is None
    assert TableEncoder.fit(np.array(["a", "b"], dtype=object)) is None
    assert TableEncoder.fit(None) is None


def test_tables_of_polars_are_tables_too():
    pl = pytest.importorskip("polars")
    table = pl.DataFrame(
        {"x": [1.0, None, 3.0], "city": ["Rome", None, "Bonn"], "day": [datetime.date(1970, 1, 2)] * 3}
    )
    assert is_table(table)
    encoder = TableEncoder.fit(table)
    assert encoder is not None
    nan = np.nan
    np.testing.assert_array_equal(encoder.transform(table), [[1, 1, 86400], [nan, nan, 86400], [3, 0, 86400]])
    outputs = Outputs(np.eye(3), inputs=table).take(np.array([2, 0]))
    assert outputs.inputs["x"].to_list() == [3.0, 1.0]
    binary = pl.DataFrame({"probability": [0.9, 0.2], "label": [1, 1]})
    assert Outputs.from_arrays(arrays_of_table(binary, "set")).error == 0.5


def test_a_file_of_samples_to_label_is_not_read_as_outputs():
    """Its `probability` is that of drawing a sample, not that of a class."""
    table = pd.DataFrame({"sample": [3, 1], "stratum": [0, 0], "probability": [0.4, 0.4], "label": ["a", "b"]})
    with pytest.raises(InputError, match="is a file of samples to label, not of outputs"):
        arrays_of_table(table, "the set")
