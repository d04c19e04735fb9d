"""Drawn designs whose structure is known, and experiments on them.

`designs` draws inputs and a ground truth with given spectra, angles and norms; `toy` is the paper's experiment and
`toy_designs` its siblings; `bound_check` verifies every interval on many designs, `interval_widths` compares how wide
they are (with `two_ratios`, both ratios known); `counterexample`, `tail_angle` and `spectra_example` are one figure
each. `toy_summaries` and `bound_summaries` say what a record means in numbers; `presets` are the runs of the report.

Every ``run_...`` works without arguments: it then computes its default configuration and leaves no files.
"""

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
