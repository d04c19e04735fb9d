"""Drawn designs whose structure is known, and experiments on them."""

from simulations.counterexample import CounterexampleSweep, counterexample, counterexample_sweep
from simulations.designs import Design, draw_truth, haar, spectral_design
from simulations.tail_angle import TailAngleConfig, TailAngleSweep, tail_angle_sweep

__all__ = [
    "CounterexampleSweep",
    "Design",
    "TailAngleConfig",
    "TailAngleSweep",
    "counterexample",
    "counterexample_sweep",
    "draw_truth",
    "haar",
    "spectral_design",
    "tail_angle_sweep",
]
