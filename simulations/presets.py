"""Which runs the theory figures and the report need, quick or at publication quality."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from projnorm.runs import Record
from simulations.bound_check import BoundConfig, run_bound_check
from simulations.counterexample import CounterexampleConfig, run_counterexample
from simulations.spectra_example import SpectraConfig, run_spectra_example
from simulations.tail_angle import TailAngleConfig, run_tail_angle
from simulations.toy import ToyConfig, run_toy
from simulations.toy_designs import DESIGNS


@dataclass(frozen=True, slots=True)
class TheoryRuns:
    """The configurations behind the theory figures."""

    toy: ToyConfig
    siblings: tuple[ToyConfig, ...]
    bound: BoundConfig
    counterexample: CounterexampleConfig
    tail_angle: TailAngleConfig
    spectra: SpectraConfig


def theory_runs(*, full: bool, seed: int = 0) -> TheoryRuns:
    """Quick: about a minute on two cores. Full: the paper's sizes with 20 trials and 100,000 designs."""
    unit = 200 if full else 100
    trials = 20 if full else 10
    return TheoryRuns(
        toy=ToyConfig(trials=trials, interval_trials=5 if full else 1, seed=seed),
        siblings=tuple(
            ToyConfig(name, 2 * unit, unit, unit, unit, trials=trials, interval_trials=trials, seed=seed)
            for name in DESIGNS
        ),
        bound=BoundConfig(seed=seed) if full else BoundConfig(instances=10_000, large=20, seed=seed),
        counterexample=CounterexampleConfig(),
        tail_angle=TailAngleConfig(seed=seed),
        spectra=SpectraConfig(seed=seed),
    )


def theory_records(runs: TheoryRuns, *, root: Path, workers: int, announce: Callable[[str], None]) -> dict[str, Record]:
    """Every record of the theory, by name; `announce` is told what comes next."""
    records = {}
    jobs: dict[str, tuple[str, Callable[[], Record]]] = {
        "toy": ("toy experiment", lambda: run_toy(runs.toy, root=root, workers=workers)),
        "bound": ("bound check", lambda: run_bound_check(runs.bound, root=root, workers=workers)),
        "counterexample": ("counterexample", lambda: run_counterexample(runs.counterexample, root=root)),
        "tail_angle": ("tail angles", lambda: run_tail_angle(runs.tail_angle, root=root, workers=workers)),
        "spectra": ("spectra", lambda: run_spectra_example(runs.spectra, root=root)),
    }
    for config in runs.siblings:
        jobs[f"sibling:{config.design}"] = (
            f"design {config.design}",
            lambda config=config: run_toy(config, root=root, workers=workers),  # type: ignore[misc]
        )
    for name, (description, job) in jobs.items():
        announce(description)
        records[name] = job()
    return records
