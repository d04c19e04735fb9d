"""Every reader takes any input: it gives a result or refuses in one line, soon, in little memory, and does no more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reliability import coverage_guided
from tests.reliability.examination import Examined, examine, measure_readers
from tests.reliability.readers import READERS

INPUTS = 30
_ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def examined(tmp_path_factory) -> dict[str, Examined]:
    kept = tmp_path_factory.mktemp("kept")
    return {one.reader: one for one in examine(list(READERS), INPUTS, 0, kept)}


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_gives_a_result_or_refuses_in_one_line(examined, reader):
    assert examined[reader].failures == ()
    assert examined[reader].inputs >= INPUTS


def test_any_command_line_ends_in_a_result_or_one_line():
    ended = subprocess.run(
        [sys.executable, "-m", "tests.reliability.command_line", str(2 * INPUTS), "0"],
        capture_output=True,
        text=True,
        cwd=_ROOT,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["failures"] == []
    assert found["inputs"] >= 2 * INPUTS


@pytest.mark.slow
def test_a_coverage_guided_fuzzer_finds_nothing_in_a_short_time():
    reader = next(name for name, reader in READERS.items() if reader.modules)
    if not coverage_guided.is_installed():
        pytest.skip("atheris is not installed; it is in the extra `fuzz`")
    found = coverage_guided.fuzz(reader, 2.0, 0)
    assert found is not None
    assert found.failures == ()
    assert found.executions > 0


@pytest.mark.slow
def test_the_table_has_a_row_for_every_reader():
    rows = measure_readers(inputs=1, seconds=0.0, seed=1)
    assert [row["reader"] for row in rows] == list(READERS)
    assert all(row["failures"] == 0 and row["inputs"] for row in rows)
