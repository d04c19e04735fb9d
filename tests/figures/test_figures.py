"""Figures carry their labels, leave global state alone, print well, and escape what goes into the page."""

from __future__ import annotations

import base64
import csv
import dataclasses
import io
import json
import re
import shutil
import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image

from figures import bound, page as html, style, toy
from figures.report import Report, save_figures, save_tables
from figures.table import FORMATS, Number, Table, to_html, to_latex
from figures.theory import theory_page, theory_reports
from projnorm.core.environment import current_environment
from projnorm.core.experiments import experiment
from projnorm.core.records import RunContext
from simulations import (
    BoundConfig,
    CounterexampleConfig,
    IntervalWidthsConfig,
    SpectraConfig,
    TailAngleConfig,
    ToyConfig,
    run_toy,
)
from simulations.bound_check import INTERVALS, draw_instance, save_instance, save_violations
from simulations.bound_summaries import bound_rows, misses_by_dial
from simulations.presets import theory_configs
from simulations.toy_summaries import closed_form_gap, closed_forms, toy_rows

SIZES = {"d1": 40, "d2": 20, "n": 20, "m": 20}
CONFIGS = {
    "toy": ("toy", ToyConfig(**SIZES, trials=3, interval_trials=1)),
    "sibling:spiked": ("toy", ToyConfig("spiked", **SIZES, trials=2, interval_trials=2)),
    "bound": ("bound", BoundConfig(instances=400, large=0)),
    "intervals": ("intervals", IntervalWidthsConfig(n=8, m=6, dim=30, decays=(1.0,), draws=3)),
    "counterexample": ("counterexample", CounterexampleConfig(angles=20)),
    "tail_angle": ("tail-angle", TailAngleConfig(angles=5, truths=3)),
    "spectra": ("spectra", SpectraConfig(n=40, dim=100, k=8, top=20)),
}
FIGURES = ("toy", "blindness", "toy_designs", "bound", "dials", "tightness")
FIGURES += ("intervals", "geometry", "counterexample", "tail_angle", "spectra")


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    context = RunContext(tmp_path_factory.mktemp("runs"))
    return {name: experiment(kind).compute(config, context) for name, (kind, config) in CONFIGS.items()}


@pytest.fixture(scope="module")
def drawings(records):
    return {name: drawing for report in theory_reports(records) for name, drawing in report.figures.items()}


@pytest.fixture(scope="module", params=FIGURES)
def figure(request, drawings):
    return drawings[request.param]()


def test_every_figure_of_the_theory_has_a_title_and_says_what_to_see(drawings):
    assert set(drawings) == set(FIGURES)
    for drawing in drawings.values():
        assert drawing.title
        assert drawing.caption.endswith(".")
        assert ". " in drawing.caption


def test_every_format_is_written_and_reproducible_with_named_axes_and_text_that_stays_text(figure, tmp_path):
    assert any(axes.get_xlabel() for axes in figure.axes)
    assert any(axes.get_ylabel() for axes in figure.axes)
    settings = dict(mpl.rcParams)
    paths = style.save(figure, tmp_path, "figure")
    assert dict(mpl.rcParams) == settings
    assert [path.suffix for path in paths] == [".pdf", ".svg", ".png"]
    for path in paths[:2]:
        assert path.read_bytes() == style.rendered(figure, path.suffix[1:])
    assert b"/Type3" not in paths[0].read_bytes()
    assert b"/FontFile2" in paths[0].read_bytes()
    assert b"<text" in paths[1].read_bytes()


@pytest.mark.parametrize(("width", "inches"), [("column", 3.3), ("page", 6.8), (4.0, 4.0), ("4", 4.0)])
def test_a_width_scales_the_whole_figure(records, tmp_path, width, inches):
    figure = toy.draw(records["toy"])
    height = figure.get_figheight() / figure.get_figwidth() * inches
    pdf, svg, png = style.save(figure, tmp_path, "toy", width=width)
    left, bottom, right, top = map(float, re.search(rb"/MediaBox \[ ([^]]*) \]", pdf.read_bytes())[1].split())
    assert (left, bottom, right, top) == pytest.approx((0, 0, 72 * inches, 72 * height))
    sizes = re.search(rb'<svg [^>]*width="([\d.]+)pt" height="([\d.]+)pt"', svg.read_bytes())
    assert [float(size) for size in sizes.groups()] == pytest.approx([72 * inches, 72 * height], rel=1e-4)
    with Image.open(png) as image:
        assert image.size == pytest.approx((200 * inches, 200 * height), abs=2)
    assert b"/Type3" not in pdf.read_bytes()


@pytest.mark.parametrize("options", [{"width": "wide"}, {"width": 0.1}, {"width": float("nan")}, {"formats": ("gif",)}])
def test_an_unknown_width_or_format_is_refused(records, tmp_path, options):
    with pytest.raises(ValueError, match=r"`(width|formats)` must be"):
        style.save(toy.draw(records["toy"]), tmp_path, "toy", **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_what_is_printed_needs_no_matplotlib():
    script = (
        "import sys, figures.comparison, figures.ntk_experiment, figures.stress, figures.sweep, "
        "figures.theory; sys.exit('matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_figures_are_drawn_again_only_if_the_numbers_or_the_width_change(tmp_path):
    drawn = []
    draw = style.plot("A line", "It rises.", 2.0, 2.0)(drawn.append)
    report = Report([], {"line": draw.later()}, {"number": 1.0})

    def times_drawn(changed: Report = report, **options) -> int:
        drawn.clear()
        paths = save_figures(changed, tmp_path, **options)
        assert [path.name for path in paths] == ["line.pdf", "line.svg", "line.png"]
        return len(drawn)

    assert (times_drawn(), times_drawn()) == (1, 0)
    (tmp_path / "line.pdf").unlink()
    assert (times_drawn(), times_drawn()) == (1, 0)
    assert times_drawn(dataclasses.replace(report, values={"number": 2.0})) == 1
    assert (times_drawn(width="column"), times_drawn(width="column", fresh=True)) == (1, 1)
    (tmp_path / "figures.json").write_bytes(b"[")
    assert times_drawn(width="column") == 1


@pytest.mark.slow
def test_the_report_answers_first_and_embeds_the_figures_that_it_saves(records, tmp_path, monkeypatch):
    monkeypatch.setattr("figures.style.rendered", lambda _, extension, **__: f"a figure as {extension}".encode())
    folder = tmp_path / "figures"
    more = [html.section(Report(["None `yet`."], title="Networks"))]
    page = theory_page(records, current_environment(), full=False, folder=folder, more=more)
    assert page.count(base64.b64encode(b"a figure as svg").decode()) == len(FIGURES) == len(list(folder.glob("*.png")))
    assert "No interval was broken where it must hold, over 400 designs." in page.partition("<nav>")[0]
    assert re.search(r"The toy experiment at n = \d+ agrees with its closed forms", page.partition("<nav>")[0])
    contents = page.partition("<nav>")[2].partition("</nav>")[0]
    assert contents.count("<li>") == page.count("<h2")
    for record in records.values():
        assert record.id in page or record.config.get("design") == "spiked"
    for absent in ("http", "`", "generalised_0", "R^2", "<script"):
        assert absent not in page
    assert "None <code>yet</code>." in page
    assert '<td class="number">' in page
    assert "prefers-color-scheme: dark" in page


# Appended to a copy of the page: writes what the browser sees into the document, where --dump-dom prints it.
PROBE = """<script>addEventListener('load', () => {
  const images = [...document.images];
  const cut = [...document.querySelectorAll('body *')].filter(
    e => !e.closest('.scroll') && e.getBoundingClientRect().right > innerWidth + 1);
  document.body.dataset.probe = [
    images.length,
    images.filter(i => i.complete && i.naturalWidth > 0).length,
    cut.length,
    document.documentElement.scrollWidth - innerWidth,
    getComputedStyle(document.body).backgroundColor,
    performance.getEntriesByType('resource').filter(r => !r.name.startsWith('data:')).length,
  ].join('|');
});</script>"""


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1280], ids=["phone", "desktop"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_shows_whole_in_a_real_browser(records, tmp_path, width, scheme):
    """Nothing from the network, nothing cut, readable on a phone, light and dark."""
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next((path for name in names if (path := shutil.which(name))), None)
    assert chromium, "needs Chromium (Debian: apt-get install chromium); deselect with -m 'not browser'"
    page = theory_page(records, current_environment(), full=False, folder=tmp_path / "figures")
    copy = tmp_path / "page.html"
    copy.write_text(page.replace("</body>", PROBE + "</body>"), encoding="utf-8")
    dark = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    dom = subprocess.run(
        [
            *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
            *("--disable-component-update", "--disable-sync", "--no-first-run", *dark, f"--window-size={width},900"),
            *(f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=5000", "--dump-dom", copy.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    found = re.search(r'data-probe="([^"]*)"', dom)
    assert found, "the page never finished loading"
    images, loaded, too_wide, overflow, background, fetched = found.group(1).split("|")
    assert int(images) == int(loaded) == len(FIGURES)
    assert (too_wide, fetched) == ("0", "0")
    assert int(overflow) <= 0
    assert background == ("rgb(22, 24, 26)" if scheme == "dark" else "rgb(255, 255, 255)")


def test_the_page_escapes_what_it_is_given():
    table = Table(("<th>", "b"), [("<script>", "&")])
    drawing = style.plot("<h3 title>", 'a "quoted" <b>', 1.0, 1.0)(lambda figure: None)  # noqa: ARG005
    figures = {"a": drawing.later(), "b": drawing.later()}
    report = Report(["<note>", table], figures, title="<h>", verdict="<verdict>")
    page = html.page("<title>", "<intro>", [html.section(report)], {"python": "<3>", "n": {"m": [1, 2]}})
    for raw in ("<script>", "<h>", "<intro>", "<3>", "<note>", "<th><th>", "<b>", "<verdict>", "<h3 title>"):
        assert raw not in page
    assert "<td>n.m</td><td>1, 2</td>" in page


def test_text_becomes_html_and_latex():
    assert to_html("R^2 < 1 of `rho` at rho = 1") == "R<sup>2</sup> &lt; 1 of <code>rho</code> at &rho; = 1"
    assert to_latex("R^2 & rho_1, 50 %") == r"$R^2$ \& rho\_1, 50 \%"
    assert to_latex("rho, sigma, r_s") == r"$\rho$, $\sigma$, $r_s$"


def test_a_table_prints_aligned():
    lines = Table(("a", "long name", "n"), [("value", "x", "1"), ("x", "", "1,000")]).text().splitlines()
    assert lines == ["a      long name      n", "-" * 23, "value  x              1", "x                 1,000"]


def test_a_table_in_every_form():
    table = Table(
        ("a|b", "R^2", "n (%)"), [("x_y", Number.interval(0.5, 0.25, 0.75), Number(1234, ",d")), ("z", "", "")]
    )
    assert table.markdown().splitlines() == [
        "| a\\|b | R^2 | n (%) |",
        "| --- | ---: | ---: |",
        "| x_y | 0.500 [0.250, 0.750] | 1,234 |",
        "| z |  |  |",
    ]
    assert "\\begin{tabular}{lrr}" in table.latex()
    assert "a|b & $R^2$ & n (\\%) \\\\" in table.latex()
    assert list(csv.reader(io.StringIO(table.csv()))) == [
        ["a|b", "R^2", "R^2 low", "R^2 high", "n (%)"],
        ["x_y", "0.5", "0.25", "0.75", "1234"],
        ["z", "", "", "", ""],
    ]
    assert Table(("a", "b"), []).csv() == "a,b"
    assert str(Number(float("nan"))) == "-"
    assert set(FORMATS) == {"text", "markdown", "latex", "csv"}


def test_named_tables_are_saved_in_every_form(tmp_path):
    table = Table(("a", "b"), [("x", Number(0.5))])
    paths = save_tables(Report([table], tables={"table": table}), tmp_path)
    assert [path.name for path in paths] == ["table.txt", "table.md", "table.tex", "table.csv"]
    assert paths[-1].read_text() == "a,b\nx,0.5\n"


def test_tables_of_the_theory_are_saved_under_names_of_their_own(records):
    names = [name for part in theory_reports(records) for name in part.tables]
    assert names == [
        *("toy_table", "toy_scores", "toy_designs_table"),
        *("bound_table", "bound_dials", "intervals_table", "intervals_settings"),
    ]


def test_the_toy_table_has_means_errors_and_closed_forms(records):
    record = records["toy"]
    row = toy_rows(record)[0]
    sample = record.arrays["test_error"][:, 0]
    assert row["test_error"]["mean"] == pytest.approx(sample.mean())
    assert row["test_error"]["standard_error"] == pytest.approx(sample.std(ddof=1) / np.sqrt(3))
    assert row["test_error"]["closed_form"] == pytest.approx(float(closed_forms(record).test_error[0]))
    header, first, *_ = csv.reader(io.StringIO(toy.table(record).csv()))
    assert header[:4] == ["sigma", "test error", "test error standard error", "test error closed form"]
    assert [float(cell) for cell in first[1:4]] == list(row["test_error"].values())
    report = toy.show(record, None)
    assert json.loads(json.dumps(report.values))["rows"][0] == row
    assert set(report.values) == {"rows", "scores", "intervals"}
    (tracked,) = toy.tracking([records["sibling:spiked"]]).rows
    assert (tracked[0], str(tracked[-1])) == ("spiked", "100")


def test_means_far_from_their_closed_forms_do_not_agree(records):
    record = records["toy"]
    far = record.arrays | {"squared_loss": record.arrays["squared_loss"] + 100.0}
    assert closed_form_gap(record).agrees
    assert not closed_form_gap(dataclasses.replace(record, arrays=far)).agrees
    assert "does not agree" in toy.show(dataclasses.replace(record, arrays=far), None).verdict


@pytest.mark.parametrize("design", ["gaussian", "spiked"])
def test_there_is_no_closed_form_where_it_does_not_hold(design, tmp_path):
    record = run_toy(ToyConfig(design, **{**SIZES, "n": 39}, trials=1), RunContext(tmp_path))
    assert closed_forms(record) is None
    assert closed_form_gap(record) is None
    mean = pytest.approx(record.arrays["test_error"][0, 0])
    assert toy_rows(record)[0]["test_error"] == {"mean": mean, "standard_error": None, "closed_form": None}
    assert toy.show(record, None).verdict == ""
    assert toy.draw(record) is not None
    assert toy.show_designs([record]).figures["toy_designs"]() is not None


@pytest.mark.parametrize(
    ("outputs", "reading"), [("sign", "one output on labels ±1"), ("one-hot", "two outputs on one-")]
)
def test_the_toy_says_how_its_labels_were_read(outputs, reading, tmp_path):
    report = toy.show(run_toy(ToyConfig(**SIZES, outputs=outputs, trials=1), RunContext(tmp_path)), None)
    drawing = report.figures["toy"]
    assert reading in report.text()
    assert reading in drawing.caption
    assert drawing().axes[3].get_ylabel() == f"squared loss, {'±1' if outputs == 'sign' else outputs} labels"


def test_the_bound_table_counts_misses(records):
    rows = {(row["family"], row["interval"]): row for row in bound_rows(records["bound"])}
    assert (rows["exact", "paper"]["missed"], rows["exact", "paper"]["must_hold"]) == (0.0, True)
    assert (rows["flat", "paper"]["missed"], rows["flat", "paper"]["must_hold"]) == (1.0, False)
    assert rows["tilt", "sharp"]["missed"] == 0.0
    assert "generalised, k = 0, rho = 1" in bound.table(records["bound"]).text()
    assert len(bound.by_dial(records["bound"]).rows) == 15


def test_a_broken_interval_is_not_ok_and_its_design_is_saved(records, tmp_path):
    record = records["bound"]
    ends = record.arrays["sharp"].copy()
    ends[7] = (0.0, 0.0)
    changed = dataclasses.replace(record, arrays=record.arrays | {"sharp": ends})
    save_violations(changed, tmp_path)
    broken = bound.show(changed, tmp_path)
    assert broken.values["saved"] == [str(tmp_path / "violation-7.npz")]
    assert not broken.ok
    assert broken.values["violations"] == {"7": ("sharp",)}
    assert "1 designs break an interval that must hold" in broken.verdict
    again = bound.show_instance(tmp_path / "violation-7.npz")
    assert again.ok
    assert [row["interval"] for row in again.values["rows"]] == list(INTERVALS)
    assert bound.show(record, tmp_path / "none").ok
    assert not (tmp_path / "none").exists()


def test_a_saved_design_shows_which_intervals_hold(tmp_path):
    save_instance(draw_instance(BoundConfig(instances=8, large=0), 7), tmp_path / "flat.npz")
    report = bound.show_instance(tmp_path / "flat.npz")
    assert "flat tails lean" in report.text()
    assert not report.values["rows"][0]["holds"]
    assert report.ok


def test_tables_of_a_verification_made_by_hand(records):
    n = 10
    arrays = {
        "family": np.full(n, 1),
        "dial": np.linspace(1.0, 0.1, n),
        "loss": np.ones(n),
        "projnorm_linear": np.ones(n),
        "deficient": np.zeros(n, dtype=int),
        "probability": np.linspace(0.001, 0.901, n),
        # The paper's interval misses wherever the dial is above 0.5; half the loss to twice the loss elsewhere.
        "paper": np.array([(0.5, 0.8) if dial > 0.5 else (0.5, 2.0) for dial in np.linspace(1.0, 0.1, n)]),
        **{name: np.tile([0.25, 4.0], (n, 1)) for name in INTERVALS if name != "paper"},
    }
    by_hand = dataclasses.replace(records["bound"], arrays=arrays)
    rows = {row["interval"]: row for row in bound_rows(by_hand)}
    assert rows["spherical"]["missed"] == 0.1  # the one below 0.05
    assert rows["paper"]["missed"] == 0.5
    assert rows["paper"]["worst_slack"] == pytest.approx(-0.2)
    assert rows["sharp"]["worst_slack"] == pytest.approx(0.75)
    assert rows["sharp"]["median_width"] == pytest.approx(16.0)
    dials, missed = misses_by_dial(by_hand, "phi", "paper", bins=2)
    np.testing.assert_allclose(dials, [0.3, 0.8])
    np.testing.assert_allclose(missed, [0.0, 1.0])


def test_presets_are_the_papers_sizes_when_full():
    full, quick = (theory_configs(full=wanted) for wanted in (True, False))
    paper = full["toy"][1]
    assert (paper.d1, paper.d2, paper.n, paper.m, paper.trials) == (1000, 500, 500, 500, 20)
    assert full["bound"][1].instances == 100_000
    assert quick["bound"][1].instances < full["bound"][1].instances
