"""Tables and figures of the comparison: what they say is what is in the ledger."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from deep.comparison.score_quality import qualities
from deep.comparison.scores import Scores, TargetScores, not_rising
from figures import comparison, corruption_gallery, deep_table, deep_targets, error_card
from figures.families import severity_panels, styles
from projnorm.core.errors import InputError
from projnorm.core.statistics import Interval
from projnorm.data.corruptions.families import FAMILIES
from projnorm.data.image_settings import PAPER_FAMILIES
from projnorm.estimate.result import CalibrationSummary, Coverage, ErrorEstimate, MethodResult


def scores(families=PAPER_FAMILIES) -> Scores:
    rng = np.random.default_rng(0)
    parts = []
    for method, scale in (("ATC", 1.0), ("ProjNorm", 5.0)):
        parts.append(TargetScores("clean", "clean", 0, "clean", 100, 0.1, {method: 0.1 * scale}))
        for number, family in enumerate(families):
            for level in (1, 3, 5):
                error = 0.1 + 0.1 * level + 0.01 * number - 0.3 * (family == "fog" and level == 5)
                score = scale * (error + 0.02 * rng.standard_normal())
                parts.append(TargetScores(f"{family}-{level}", family, level, "generated", 100, error, {method: score}))
    return Scores.from_targets(parts)


def test_every_family_has_a_look_of_its_own():
    seen = {(to_hex(style["color"]), style["marker"]) for style in styles(list(FAMILIES)).values()}
    assert len(seen) == len(FAMILIES) + 1


def test_a_panel_a_method_with_every_target_in_it():
    figure = deep_targets.draw_scatter(scores(), "what was run")
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title().split("\n")[0] for axes in panels] == ["ATC", "ProjNorm"]
    for axes in panels:
        assert sum(len(points.get_offsets()) for points in axes.collections) == 55
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(legend) == 19 + 2
    assert legend[-2:] == ["severity 1", "severity 5"]
    assert figure.get_supylabel() == "true error (%)"


def test_severities_are_told_and_the_clean_set_is_named():
    figure = deep_targets.draw_severity(scores())
    assert figure.axes[0].get_xlabel() == "severity"
    assert figure.legends[0].get_texts()[0].get_text() == "clean test set"
    arrays = {"families": np.array(["clean", "fog", "fog"]), "severities": np.array([0, 1, 3])}
    figure = Figure()
    panels = list(severity_panels(figure, arrays, ["fog"], size=(2, 2), margin=(1, 0), dashed="training set"))
    assert [[target for target, _ in members] for _, _, members in panels] == [[1, 2]]
    keys = [text.get_text() for text in figure.legends[0].get_texts()]
    assert keys == ["severity 1", "severity 3", "training set"]


def test_the_table_names_the_numbers_and_their_intervals():
    table = deep_table.of_qualities(qualities(scores()))
    assert [row[0] for row in table.rows] == ["ATC", "ProjNorm"]
    assert "$R^2$ & $r_s$ & MAE (points)" in table.latex()
    header, first, *_ = csv.reader(io.StringIO(table.csv()))
    assert header[1:4] == ["R^2", "R^2 low", "R^2 high"]
    value, low, high = map(float, first[1:4])
    assert low <= value <= high
    assert not_rising(scores()) == {"fog": pytest.approx([0.24, 0.44, 0.34])}
    by_target = deep_table.targets(scores())
    assert [str(cell) for cell in by_target.rows[0][:3]] == ["clean", "clean", "10.0"]
    assert len(by_target.rows) == 55


def test_a_run_is_shown_with_its_best_method_first_of_all():
    network = {"architecture": "small-cnn", "weights": "random", "size": 32}
    config = {"data": {"data": "digits", "m": 100}, "network": network, "projnorm": {"steps": 7}}
    report = comparison.show_scores(config, scores())
    assert report.blocks[0] == "small-cnn, random weights, 32 px\ndigits, m = 100, T = 7, 55 targets, shifts generated"
    assert set(report.figures) == {"scatter", "severity"}
    assert set(report.tables) == {"table", "targets"}
    assert report.verdict.startswith("Of 2 methods, ")
    assert [row["method"] for row in json.loads(json.dumps(report.values))["rows"]] == ["ATC", "ProjNorm"]
    assert "does not rise with every severity of fog" in report.text()
    together = comparison.show_ensembles(scores())
    assert [row["method"] for row in together.values["methods"]][-1] == "stacked"
    residuals = comparison.show_residuals(config, scores())
    assert residuals.figures["residuals"]().axes
    with pytest.raises(InputError, match="the run has ATC only"):
        comparison.show_residuals(config, scores().only(["ATC"]))


def test_the_gallery_shows_every_family():
    figure = corruption_gallery.draw()
    shown = {axes.get_title(loc="left") for axes in figure.axes} - {""}
    assert shown == {family.replace("_", " ") for family in FAMILIES}


def estimate(calibration: CalibrationSummary | None) -> ErrorEstimate:
    results = (
        MethodResult("COT", 0.3, 0.31, 0.02, ""),
        MethodResult("ProjNorm", math.nan, math.nan, math.nan, "not run: needs the network and its initial weights"),
    )
    return ErrorEstimate(
        target="new",
        m=50,
        error=0.3,
        low=0.2,
        high=0.4,
        level=0.9,
        based_on=("COT",),
        source_error=0.1,
        n_source=80,
        methods=results,
        sampling_noise=0.06,
        warnings=("be careful",),
        calibration=calibration,
    )


PREDICTED, TRUE = np.array([0.2, 0.5]), np.array([0.25, 0.45])
COVERAGE = Coverage(Interval(0.9, 0.8, 1.0), 0.2)
NAMES = ("fog-1", "snow-1")
CALIBRATION = CalibrationSummary("given", NAMES, np.array(["fog", "snow"]), PREDICTED, TRUE, 0.05, COVERAGE)


def test_a_card_answers_in_its_title_and_shows_methods_and_calibration():
    report = error_card.show(estimate(CALIBRATION))
    assert report.title == "Error on new: 30.0 %, 90 % interval 20.0 % to 40.0 %"
    assert "calibrated on 2 labelled sets of 2 families (given)" in report.blocks[0]
    assert report.blocks[1] == "Warning: be careful"
    methods, calibration = report.figures["error_card"]().axes
    assert methods.get_title() == "30.0 %, 90 % interval 20.0 % to 40.0 %"
    assert [text.get_text() for text in methods.get_yticklabels()] == ["COT"]
    assert len(calibration.collections[0].get_offsets()) == 2
    table = report.blocks[-1]
    assert table.rows[1][-1] == "not run: needs the network and its initial weights"
    assert [str(cell) for cell in table.rows[0]] == ["COT", "0.3", "31.0", "2.0", "in the estimate"]
    assert len(error_card.draw(estimate(None)).axes) == 1
    known = error_card.draw(replace(estimate(None), truth=0.35)).axes[0]
    assert "true error" in {line.get_label() for line in known.lines}


def test_a_card_says_when_how_and_from_what_it_was_made():
    names = {"source": "val.npz", "targets": "new.npz"}
    estimates = [estimate(CALIBRATION), estimate(None)]
    page = error_card.card(estimates, command="projnorm estimate <x>", model="net.py:build", data=names)
    assert "<title>Estimated error on new: 30.0 %, 90 % interval 20.0 % to 40.0 %; new: " in page
    assert page.count("<img ") == 2
    provenance = page.partition('<h2 id="provenance">')[2]
    for name in ("date", "projnorm estimate &lt;x&gt;", "net.py:build", "val.npz", "new.npz", "libraries.numpy"):
        assert name in provenance
    assert " UTC<" in provenance
