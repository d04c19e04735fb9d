"""Figures carry their labels, leave global state alone, and escape what goes into the page."""

from __future__ import annotations

import dataclasses

import matplotlib as mpl
import numpy as np
import pytest

from figures import bound_table, report, style, toy, toy_table, tracking_table
from figures.dials import violated_by_dial
from figures.table import Table
from figures.theory import THEORY_FIGURES, theory_page
from projnorm.runs import Backend, current_environment
from simulations import (
    BoundConfig,
    CounterexampleConfig,
    SpectraConfig,
    TailAngleConfig,
    ToyConfig,
    run_toy,
)
from simulations.presets import TheoryRuns, theory_records, theory_runs

SIZES = {"d1": 40, "d2": 20, "n": 20, "m": 20}


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    runs = TheoryRuns(
        toy=ToyConfig(**SIZES, trials=3, interval_trials=1),
        siblings=(ToyConfig("spiked", **SIZES, trials=2, interval_trials=2),),
        bound=BoundConfig(instances=400, large=0),
        counterexample=CounterexampleConfig(angles=20),
        tail_angle=TailAngleConfig(angles=5, truths=3),
        spectra=SpectraConfig(n=40, dim=100, k=8, top=20),
    )
    told: list[str] = []
    found = theory_records(runs, root=tmp_path_factory.mktemp("runs"), backend=Backend(1), announce=told.append)
    assert len(told) == len(found) == 6
    return found


@pytest.fixture(scope="module", params=THEORY_FIGURES, ids=lambda figure: figure.name)
def figure(request, records):
    return request.param.draw(records[request.param.record])


def test_axes_are_named(figure):
    named = [axes for axes in figure.axes if axes.get_xlabel()]
    assert named
    assert any(axes.get_ylabel() for axes in figure.axes)


def test_drawing_leaves_the_settings_of_the_caller_alone(figure):
    before = dict(mpl.rcParams)
    style.rendered(figure, "png")
    assert dict(mpl.rcParams) == before


def test_every_format_is_written_and_reproducible(figure, tmp_path):
    paths = style.save(figure, tmp_path, "figure")
    assert [path.suffix for path in paths] == [".pdf", ".svg", ".png"]
    for path in paths:
        assert path.read_bytes() == style.rendered(figure, path.suffix[1:])


def test_every_caption_says_what_to_see():
    for entry in THEORY_FIGURES:
        assert entry.caption.endswith(".")
        assert entry.caption.count(". ") >= 1
    assert len({entry.name for entry in THEORY_FIGURES}) == len(THEORY_FIGURES)


def test_the_report_holds_every_figure_table_and_configuration(records):
    page = theory_page(records, dataclasses.asdict(current_environment()), full=False)
    assert page.count("<img ") == len(THEORY_FIGURES)
    for record in records.values():
        assert record.id in page
    assert "http" not in page
    assert "prefers-color-scheme: dark" in page


def test_the_page_escapes_what_it_is_given():
    table = Table(("<th>", "b"), [("<script>", "&")])
    section = report.Section("<h>", 'a "quoted" <b>', None, table, "<note>", {"key": "<value>"})
    page = report.page("<title>", "<intro>", [section], {"python": "<3>"})
    for raw in ("<script>", "<h>", "<value>", "<intro>", "<3>", "<note>", "<th><th>"):
        assert raw not in page


def test_a_table_prints_aligned():
    lines = Table(("a", "long name"), [("value", "1"), ("x", "")]).text().splitlines()
    assert lines == ["a      long name", "-" * 16, "value  1", "x"]


def test_the_toy_table_has_means_errors_and_closed_forms(records):
    row = toy_table.values(records["toy"])[0]
    sample = records["toy"].arrays["test_error"][:, 0]
    assert row["test_error"]["mean"] == pytest.approx(sample.mean())
    assert row["test_error"]["standard_error"] == pytest.approx(sample.std(ddof=1) / np.sqrt(3))
    assert row["test_error"]["closed_form"] == pytest.approx(float(toy.closed_forms(records["toy"]).test_error[0]))
    assert len(toy_table.build(records["toy"]).rows) == 11


@pytest.mark.parametrize("config", [ToyConfig("spiked", **SIZES, trials=1), ToyConfig(**{**SIZES, "n": 39}, trials=1)])
def test_there_is_no_closed_form_where_it_does_not_hold(config, tmp_path):
    record = run_toy(config, root=tmp_path)
    assert toy.closed_forms(record) is None
    assert toy_table.values(record)[0]["test_error"] == {
        "mean": pytest.approx(record.arrays["test_error"][0, 0]),
        "standard_error": None,
        "closed_form": None,
    }
    assert toy.draw(record) is not None


def test_the_bound_table_counts_misses(records):
    rows = {(row["family"], row["interval"]): row for row in bound_table.values(records["bound"])}
    assert rows["exact", "paper"]["missed"] == 0.0
    assert rows["exact", "paper"]["must_hold"]
    assert rows["flat", "paper"]["missed"] == 1.0
    assert not rows["flat", "paper"]["must_hold"]
    assert rows["tilt", "sharp"]["missed"] == 0.0
    assert "0.00% *" in bound_table.build(records["bound"]).text()
    assert len(bound_table.by_dial(records["bound"]).rows) == 15


def test_tables_of_a_verification_made_by_hand(records):
    n = 10
    arrays = {
        "family": np.full(n, 1),
        "dial": np.linspace(1.0, 0.1, n),
        "loss": np.ones(n),
        "projnorm_linear": np.ones(n),
        "deficient": np.zeros(n, dtype=int),
        # The paper's interval misses wherever the dial is above 0.5; half the loss to twice the loss elsewhere.
        "paper": np.array([(0.5, 0.8) if dial > 0.5 else (0.5, 2.0) for dial in np.linspace(1.0, 0.1, n)]),
        **{name: np.tile([0.25, 4.0], (n, 1)) for name in bound_table.INTERVALS if name != "paper"},
    }
    by_hand = dataclasses.replace(records["bound"], arrays=arrays)
    rows = {row["interval"]: row for row in bound_table.values(by_hand)}
    assert rows["paper"]["missed"] == 0.5
    assert rows["paper"]["worst_slack"] == pytest.approx(-0.2)
    assert rows["sharp"]["worst_slack"] == pytest.approx(0.75)
    assert rows["sharp"]["median_width"] == pytest.approx(16.0)
    dials, missed = violated_by_dial(by_hand, "phi", "paper", bins=2)
    np.testing.assert_allclose(dials, [0.3, 0.8])
    np.testing.assert_allclose(missed, [0.0, 1.0])


def test_the_tracking_table_has_a_row_a_design(records):
    table = tracking_table.build([records["sibling:spiked"]])
    assert [row[0] for row in table.rows] == ["spiked"]
    assert table.rows[0][-1] == "100%"


def test_presets_are_the_papers_sizes_when_full():
    full, quick = theory_runs(full=True), theory_runs(full=False)
    assert (full.toy.d1, full.toy.d2, full.toy.n, full.toy.m, full.toy.trials) == (1000, 500, 500, 500, 20)
    assert full.bound.instances == 100_000
    assert quick.bound.instances < full.bound.instances


def test_every_run_is_told_where_with_how_many_workers_and_whether_afresh(monkeypatch, tmp_path):
    told = []

    def run(_config, **how):
        told.append(how)

    for name in ("run_toy", "run_bound_check", "run_counterexample", "run_tail_angle", "run_spectra_example"):
        monkeypatch.setattr(f"simulations.presets.{name}", run)
    theory_records(theory_runs(full=False), root=tmp_path, backend=Backend(3), announce=lambda _: None, fresh=True)
    assert told == [{"root": tmp_path, "backend": Backend(3), "fresh": True}] * 10
