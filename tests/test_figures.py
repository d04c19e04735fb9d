"""Figures carry their labels, leave global state alone, and escape what goes into the page."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest

from figures import counterexample, report, style, tail_angle
from simulations import TailAngleConfig, counterexample_sweep, tail_angle_sweep


@pytest.fixture(scope="module", params=["counterexample", "tail_angle"])
def figure(request):
    if request.param == "counterexample":
        return counterexample.draw(counterexample_sweep(np.radians(np.linspace(5, 175, 35))))
    return tail_angle.draw(tail_angle_sweep(TailAngleConfig(angles=5, truths=3)))


def test_axes_are_named_and_a_legend_explains_the_colours(figure):
    for axes in figure.axes:
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        assert axes.get_legend() is not None


def test_drawing_leaves_the_settings_of_the_caller_alone(figure):
    before = dict(mpl.rcParams)
    style.rendered(figure, "png")
    assert dict(mpl.rcParams) == before


def test_every_format_is_written_and_reproducible(figure, tmp_path):
    paths = style.save(figure, tmp_path, "figure")
    assert [path.suffix for path in paths] == [".pdf", ".svg", ".png"]
    for path in paths:
        assert path.read_bytes() == style.rendered(figure, path.suffix[1:])


def test_the_page_escapes_text_and_stays_self_contained(figure):
    table = report.Table(("<th>", "b"), [("<script>", "&")])
    section = report.Section("<h>", 'a "quoted" <b>', figure, table, {"key": "<value>"})
    page = report.page("<title>", "<intro>", [section], {"python": "<3>"})
    for raw in ("<script>", "<h>", "<value>", "<intro>", "<3>", "<th><th>", '"quoted"'):
        assert raw not in page
    assert "http" not in page
    assert "prefers-color-scheme: dark" in page
