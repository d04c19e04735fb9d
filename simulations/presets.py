"""Which runs the theory figures and the report need, quick or at publication quality."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from projnorm.runs import Backend, Record
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


def theory_records(
    runs: TheoryRuns, *, root: Path, backend: Backend, announce: Callable[[str], None], fresh: bool = False
) -> dict[str, Record]:
    """Every record of the theory, by name; `announce` is told the name of what comes next."""
    jobs: dict[str, Callable[..., Record]] = {
        "toy": partial(run_toy, runs.toy),
        "bound": partial(run_bound_check, runs.bound),
        "counterexample": partial(run_counterexample, runs.counterexample),
        "tail_angle": partial(run_tail_angle, runs.tail_angle),
        "spectra": partial(run_spectra_example, runs.spectra),
        **{f"sibling:{config.design}": partial(run_toy, config) for config in runs.siblings},
    }
    records = {}
    for name, job in jobs.items():
        announce(name)
        records[name] = job(root=root, backend=backend, fresh=fresh)
    return records
