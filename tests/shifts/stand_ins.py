"""What the tests of the benchmark share: the command in this process, empty places, and estimates that cost nothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from benchmarks.shifts.__main__ import main
from benchmarks.shifts.problems import Places
from tests.commands import Result, run_cli


def benchmark(*arguments: str) -> Result:
    """The command in this process."""
    return run_cli(*arguments, program=main)


def places(folder: Path) -> Places:
    return Places(folder, str(folder / "site-packages"), "cifar10", "imagenet", folder / "cache")


def stub_estimates(monkeypatch, calls: list) -> None:
    """The default costs seconds for each target; here it says 0.2 with an interval, and warns of the first target."""

    def estimates(model, _source, targets, **_):
        calls.append(model)
        return {
            name: SimpleNamespace(error=0.2, low=0.1, high=0.3, warnings=("careful",) if number == 0 else ())
            for number, name in enumerate(targets)
        }

    monkeypatch.setattr("benchmarks.shifts.evaluate.estimate_errors", estimates)
