"""The runs that the theory figures and the report need, in quick form or at publication quality."""

from __future__ import annotations

from collections.abc import Mapping

from projnorm.core.config import Config
from simulations.bound_check import BoundConfig
from simulations.counterexample import CounterexampleConfig
from simulations.interval_widths import IntervalWidthsConfig
from simulations.spectra_example import SpectraConfig
from simulations.tail_angle import TailAngleConfig
from simulations.toy import ToyConfig
from simulations.toy_designs import DESIGNS

# Prefix of the names of the toy experiment on every design, at smaller sizes.
SIBLING = "sibling:"


def theory_configs(*, full: bool, seed: int = 0) -> Mapping[str, tuple[str, Config]]:
    """Experiment and configuration of every record behind the theory figures, by name.

    Quick: about a minute on two cores. Full: the paper's sizes with 20 trials and 100,000 designs.
    """
    unit, trials = (200, 20) if full else (100, 10)
    siblings = {
        f"{SIBLING}{name}": (
            "toy",
            ToyConfig(name, 2 * unit, unit, unit, unit, trials=trials, interval_trials=trials, seed=seed),
        )
        for name in DESIGNS
    }
    bound = BoundConfig(seed=seed) if full else BoundConfig(instances=10_000, large=20, seed=seed)
    return {
        "toy": ("toy", ToyConfig(trials=trials, interval_trials=5 if full else 1, seed=seed)),
        "bound": ("bound", bound),
        "intervals": ("intervals", IntervalWidthsConfig(draws=50 if full else 3, seed=seed)),
        "counterexample": ("counterexample", CounterexampleConfig()),
        "tail_angle": ("tail-angle", TailAngleConfig(seed=seed)),
        "spectra": ("spectra", SpectraConfig(seed=seed)),
        **siblings,
    }
