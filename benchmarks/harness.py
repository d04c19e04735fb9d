"""What every benchmark shares: interleaved timing, peak memory, and a JSON file with the environment."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from projnorm.core.environment import current_environment


def interleaved_seconds(jobs: Mapping[str, Callable[[], object]], repeats: Mapping[str, int]) -> dict[str, list[float]]:
    """Run the jobs, already warm, in turns, so that a slow minute of the machine hits all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(max(repeats.values())):
        for name, job in jobs.items():
            if turn < repeats[name]:
                start = time.perf_counter()
                job()
                seconds[name].append(time.perf_counter() - start)
    return seconds


def medians(seconds: Mapping[str, list[float]]) -> dict[str, float]:
    """Median of each job's times."""
    return {name: statistics.median(times) for name, times in seconds.items()}


def write_result(path: Path, command: str, result: Mapping[str, Any]) -> None:
    """Write a benchmark's numbers with the command and the environment behind them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"command": command, "environment": current_environment(), **result}
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
