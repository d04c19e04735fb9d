"""The report in a real browser: nothing from the network, nothing cut, readable on a phone, light and dark."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from figures.theory import theory_page
from projnorm.environment import current_environment
from projnorm.experiments import experiment
from projnorm.records import RunContext
from tests.test_figures import CONFIGS as SMALL_THEORY

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)

pytestmark = pytest.mark.browser

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


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    if CHROMIUM is None:
        pytest.fail("needs Chromium (Debian: apt-get install chromium); deselect with -m 'not browser'")
    folder = tmp_path_factory.mktemp("report")
    context = RunContext(folder / "runs")
    records = {name: experiment(kind).compute(config, context) for name, (kind, config) in SMALL_THEORY.items()}
    path = folder / "report.html"
    html = theory_page(records, current_environment(), full=False, folder=folder / "figures")
    path.write_text(html, encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [390, 1280], ids=["phone", "desktop"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_shows_whole(page, tmp_path, width, scheme):
    copy = tmp_path / "page.html"
    copy.write_text(page.read_text(encoding="utf-8").replace("</body>", PROBE + "</body>"), encoding="utf-8")
    dark = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    dom = subprocess.run(
        [
            *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
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
    assert int(images) == int(loaded) == 8
    assert int(too_wide) == 0
    assert int(overflow) <= 0
    assert int(fetched) == 0
    assert background == ("rgb(22, 24, 26)" if scheme == "dark" else "rgb(255, 255, 255)")
