"""Fails if the tests reach less of a folder than its floor: ``python .ci/coverage_floor.py coverage.json``."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

# Percent of lines and branches, a little under what is reached. What only processes of their own run is not counted.
FLOORS = {
    "projnorm_theory": 95,
    "projnorm/core": 88,
    "projnorm/data": 95,
    "projnorm/outputs": 95,
    "projnorm/models": 93,
    "projnorm/estimators": 95,
    "projnorm/labels": 97,
    "projnorm/estimate": 96,
    "projnorm/monitor": 96,
    "projnorm/cli": 90,
    "simulations": 95,
    "ntk": 95,
    "deep": 95,
    "figures": 92,
}


def main() -> int:
    """Print a line for each folder; 1 if one is under its floor."""
    covered: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for name, file in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["files"].items():
        summary = file["summary"]
        for folder in (folder for folder in FLOORS if name.startswith(f"{folder}/")):
            covered[folder] += summary["covered_lines"] + summary["covered_branches"]
            total[folder] += summary["num_statements"] + summary["num_branches"]
    percent = {folder: 100 * covered[folder] / max(1, total[folder]) for folder in FLOORS}
    for folder, floor in FLOORS.items():
        low = " TOO LOW" if percent[folder] < floor else ""
        sys.stdout.write(f"{folder:20} {percent[folder]:5.1f} % (at least {floor} %){low}\n")
    return int(any(percent[folder] < floor for folder, floor in FLOORS.items()))


if __name__ == "__main__":
    sys.exit(main())
