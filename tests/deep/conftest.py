"""The command line, run in an empty folder, and a small run that is finished."""

from __future__ import annotations

import pytest

from deep.experiments.comparison import run_comparison
from projnorm.records import RunContext
from tests.commands import run_cli
from tests.deep.small import SMALL


@pytest.fixture
def projnorm(monkeypatch, tmp_path):
    """Runs the command line, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROJNORM_DATA", raising=False)
    return run_cli


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The context and the record of a small run; a test adds to its folder and changes nothing."""
    context = RunContext(tmp_path_factory.mktemp("finished"))
    return context, run_comparison(SMALL, context)
