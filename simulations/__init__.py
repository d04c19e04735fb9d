"""Drawn designs whose structure is known, and experiments on them."""

from simulations.bound_check import BoundConfig, run_bound_check
from simulations.counterexample import CounterexampleConfig, counterexample, run_counterexample
from simulations.designs import Design, draw_truth, flat_tail_design, haar, spectral_design
from simulations.interval_widths import IntervalWidthsConfig, run_interval_widths
from simulations.spectra_example import SpectraConfig, run_spectra_example
from simulations.tail_angle import TailAngleConfig, run_tail_angle
from simulations.toy import ToyConfig, run_toy

__all__ = [
    "BoundConfig",
    "CounterexampleConfig",
    "Design",
    "IntervalWidthsConfig",
    "SpectraConfig",
    "TailAngleConfig",
    "ToyConfig",
    "counterexample",
    "draw_truth",
    "flat_tail_design",
    "haar",
    "run_bound_check",
    "run_counterexample",
    "run_interval_widths",
    "run_spectra_example",
    "run_tail_angle",
    "run_toy",
    "spectral_design",
]
