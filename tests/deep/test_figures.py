"""Tables and figures of the comparison: what they say is what is in the ledger."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_hex

from deep.calibration import Interval
from deep.estimate import CalibrationSummary, ErrorEstimate, MethodResult
from deep.estimate.conformal import Coverage
from deep.scores import Row, Scores
from figures import corruption_gallery, deep_scatter, deep_table, error_card, projnorm_cost, severity
from figures.families import looks
from figures.projnorm_cost import Form
from figures.table import FORMATS, Table
from projnorm.vision import FAMILIES, PAPER_FAMILIES


def scores(families=PAPER_FAMILIES) -> Scores:
    rng = np.random.default_rng(0)
    rows = []
    for method, scale in (("ATC", 1.0), ("ProjNorm", 5.0)):
        rows.append(Row("clean", "clean", 0, "clean", 100, 0.1, method, 0.1 * scale))
        for number, family in enumerate(families):
            for level in (1, 3, 5):
                error = 0.1 + 0.1 * level + 0.01 * number - 0.3 * (family == "fog" and level == 5)
                score = scale * (error + 0.02 * rng.standard_normal())
                rows.append(Row(f"{family}-{level}", family, level, "generated", 100, error, method, score))
    return Scores.of(rows)


def test_every_family_has_a_look_of_its_own():
    seen = {(to_hex(look["color"]), look["marker"]) for look in looks(list(FAMILIES)).values()}
    assert len(seen) == len(FAMILIES) + 1


def test_a_panel_a_method_with_every_target_in_it():
    figure = deep_scatter.draw(scores(), heading="what was run")
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title().split(":")[0] for axes in panels] == ["ATC", "ProjNorm"]
    for axes in panels:
        assert sum(len(points.get_offsets()) for points in axes.collections) == 55
    assert len(figure.legends[0].get_texts()) == 19
    assert figure.get_supylabel() == "true error (%)"
    assert severity.draw(scores()).axes[0].get_xlabel() == "severity"


def test_the_table_names_the_numbers_and_their_intervals():
    table = deep_table.build(scores())
    assert [row[0] for row in table.rows] == ["ATC", "ProjNorm"]
    assert table.rows[0][1].count(",") == 1
    assert deep_table.not_rising(scores()) == {"fog": pytest.approx([0.24, 0.44, 0.34])}
    by_target = deep_table.targets(scores())
    assert by_target.rows[0][:3] == ("clean", "clean", "10.0 %")
    assert len(by_target.rows) == 55


def test_a_table_in_every_form():
    table = Table(("a", "R^2 & more"), [("x|y", "50 %"), ('say "z"', "1,5")])
    assert table.markdown().splitlines() == [
        "| a | R^2 & more |",
        "| --- | --- |",
        "| x\\|y | 50 % |",
        '| say "z" | 1,5 |',
    ]
    assert "R\\textasciicircum{}2 \\& more \\\\" in table.latex()
    assert "x|y & 50 \\% \\\\" in table.latex()
    assert list(csv.reader(io.StringIO(table.csv()))) == [list(table.header), *map(list, table.rows)]
    assert set(FORMATS) == {"text", "markdown", "latex", "csv"}


def test_the_gallery_shows_every_family():
    figure = corruption_gallery.draw()
    shown = {axes.get_title(loc="left") for axes in figure.axes} - {""}
    assert shown == {family.replace("_", " ") for family in FAMILIES}


def estimate(calibration: CalibrationSummary | None) -> ErrorEstimate:
    results = (
        MethodResult("COT", 0.3, 0.31, 0.02, ""),
        MethodResult("ProjNorm", math.nan, math.nan, math.nan, "not run: needs the network and its initial weights"),
    )
    return ErrorEstimate("new", 50, 0.3, 0.2, 0.4, 0.9, ("COT",), 0.1, 80, results, 0.06, ("be careful",), calibration)


CALIBRATION = CalibrationSummary(
    "given",
    ("fog-1", "snow-1"),
    np.array(["fog", "snow"]),
    np.array([0.2, 0.5]),
    np.array([0.25, 0.45]),
    0.05,
    Coverage(Interval(0.9, 0.8, 1.0), 0.2),
)


def test_a_card_shows_the_estimate_its_methods_and_its_calibration():
    shown = error_card.show(estimate(CALIBRATION))
    assert shown.title == "Error on new: 30.0 %, 90 % interval 20.0 % to 40.0 %"
    answer, warning, table = shown.blocks
    assert "calibrated on 2 labelled sets of 2 families (given)" in answer
    assert warning == "Warning: be careful"
    methods, calibration = shown.figures["error_card"].draw().axes
    assert [text.get_text() for text in methods.get_yticklabels()] == ["COT"]
    assert len(calibration.collections[0].get_offsets()) == 2
    assert table.rows[1][-1] == "not run: needs the network and its initial weights"
    assert [str(cell) for cell in table.rows[0]] == ["COT", "0.3", "31.0", "2.0", "in the estimate"]
    assert len(error_card.draw(estimate(None)).axes) == 1
    known = error_card.draw(replace(estimate(None), truth=0.35)).axes[0]
    assert "true error" in {line.get_label() for line in known.lines}


def test_the_numbers_of_a_card():
    document = error_card.values(estimate(CALIBRATION), 0.25)
    assert document["probability_above"] == 0.5  # one of two families misses upward, and the one not seen counts half
    assert document["calibration"]["coverage"] == [0.9, 0.8, 1.0]
    assert error_card.values(estimate(None), None)["covers"].startswith("sampling noise only")


def test_cheaper_forms_are_points_with_intervals():
    forms = [Form("all layers", 1.0, (0.9, 0.8, 0.95)), Form("head", 0.2, (0.8, 0.7, 0.9))]
    axes = projnorm_cost.draw(forms).axes[0]
    assert {text.get_text() for text in axes.texts} == {"all layers", "head"}
