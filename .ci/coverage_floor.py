"""Fails if the tests reach less of a package than its floor: ``python .ci/coverage_floor.py coverage.json``."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

# Percent of lines and branches, a little under what is reached. What only processes of their own run is not counted.
FLOORS = {"projnorm_theory": 95, "projnorm": 90, "simulations": 95, "ntk": 95, "deep": 94, "figures": 92}


def main() -> int:
    """Print a line for each package; 1 if one is under its floor."""
    covered: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for name, file in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["files"].items():
        summary = file["summary"]
        covered[Path(name).parts[0]] += summary["covered_lines"] + summary["covered_branches"]
        total[Path(name).parts[0]] += summary["num_statements"] + summary["num_branches"]
    percent = {package: 100 * covered[package] / max(1, total[package]) for package in FLOORS}
    for package, floor in FLOORS.items():
        low = " TOO LOW" if percent[package] < floor else ""
        sys.stdout.write(f"{package:16} {percent[package]:5.1f} % (at least {floor} %){low}\n")
    return int(any(percent[package] < floor for package, floor in FLOORS.items()))


if __name__ == "__main__":
    sys.exit(main())
