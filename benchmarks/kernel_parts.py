"""Parts of `bench_ntk.py` about the engine alone: its self-check, its routes, and picking coordinates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import interleaved_seconds, medians
from benchmarks.kernel_checks import config, exact, require
from benchmarks.kernel_networks import (
    KernelCase,
)
from ntk.features.gradient_features import gradient_features

ENGINE = "engine"
DIRECT_CEILING = 12e9


def self_check(case: KernelCase, n: int) -> dict[str, Any]:
    """The engine without its self-check, and with it."""
    x = case.draw(n)
    jobs = {"without": lambda: exact(case.network, x, self_check=False), "with": lambda: exact(case.network, x)}
    return ratios(jobs, dict.fromkeys(jobs, 15))


def against_forced_routes(case: KernelCase, n: int) -> dict[str, Any]:
    """The engine, the engine all direct, and the paper's 500,000 coordinates."""
    network, x = case.network, case.draw(n)
    jobs = {
        ENGINE: lambda: exact(network, x),
        "every layer direct": lambda: exact(network, x, route="direct", memory=DIRECT_CEILING),
        "500,000 coordinates": lambda: exact(network, x, kind="coordinates"),
    }
    require("every layer direct", jobs["every layer direct"](), jobs[ENGINE](), case)
    return ratios(jobs, {ENGINE: 7, "every layer direct": 3, "500,000 coordinates": 5})


def sampled_features(case: KernelCase, n: int) -> dict[str, Any]:
    """Picking coordinates against forming every gradient."""
    network, x = case.network, case.draw(n)

    def sampled(**options: Any) -> np.ndarray:
        return gradient_features(network, x, config=config(kind="coordinates", **options)).values

    jobs = {"picking": sampled, "forming and indexing": lambda: sampled(route="direct")}
    require("forming and indexing", jobs["forming and indexing"](), jobs["picking"](), case)
    return ratios(jobs, dict.fromkeys(jobs, 5))


def ratios(jobs: dict[str, Callable[[], Any]], repeats: dict[str, int]) -> dict[str, Any]:
    """Median seconds, and how many times the first one's the others take."""
    seconds = interleaved_seconds(jobs, repeats)
    median = medians(seconds)
    first = next(iter(median))
    return {
        "seconds": seconds,
        "median_seconds": median,
        f"times_{first}": {name: median[name] / median[first] for name in median if name != first},
    }
