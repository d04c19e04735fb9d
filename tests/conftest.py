"""Hypothesis profiles, one thread for each pytest worker, and what `slow` covers.

Property tests are reproducible by default; ``HYPOTHESIS_PROFILE=thorough`` is a long random search.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# Before numpy and torch are imported, and for the processes that tests start: workers of pytest share the cores.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")


_QUIET = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("quick", max_examples=30, derandomize=True, **_QUIET)
settings.register_profile("thorough", max_examples=2000, derandomize=False, print_blob=True, **_QUIET)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What opens a browser is slow, too."""
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def projnorm(monkeypatch, tmp_path):
    """Runs the command line, in an empty folder."""
    from tests.commands import run_cli

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROJNORM_DATA", raising=False)
    return run_cli


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The context and the record of a small run; a test adds to its folder and changes nothing."""
    from deep.comparison.comparison import run_comparison
    from projnorm.core.records import RunContext
    from tests.small import SMALL

    context = RunContext(tmp_path_factory.mktemp("finished"))
    return context, run_comparison(SMALL, context)
