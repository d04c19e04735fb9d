"""The command ``python -m benchmarks.shifts``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks.shifts.experiment import EXPERIMENT
from projnorm.cli.app import run_alone


def main(argv: Sequence[str]) -> int:
    """Run the benchmark with the options of a command line; returns the exit code."""
    return run_alone(EXPERIMENT, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
