"""A year of hourly batches through a monitor with its journal on disk, for `bench_monitor.py`."""

from __future__ import annotations

import os
import resource
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from projnorm.estimate.error_estimator import ErrorEstimator
from projnorm.monitor.monitor import Monitor
from projnorm.outputs.outputs import Outputs

HOURS, ROWS, SOURCE = 8_760, 1_000, 5_000
_WARM = 1_000
_SEED = 0
_MEGABYTE = 1e6


def speed(folder: Path, hours: int = HOURS) -> dict[str, Any]:
    """Seconds and memory of all updates, and of opening the folder again; drawing the batches is not counted."""
    rng, load = np.random.default_rng(_SEED), os.getloadavg()[0]
    estimator = ErrorEstimator.fit(None, _drawn(SOURCE, rng))
    folder.mkdir(parents=True, exist_ok=True)
    wall, cpu, warm = np.zeros(hours), 0.0, 0
    with TemporaryDirectory(dir=folder) as state:
        monitor = Monitor(estimator, Path(state))
        for hour in range(hours):
            batch = _drawn(ROWS, rng).without_labels()
            at = f"{datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=hour):%Y-%m-%d %H:00}"
            started, cpu_started = time.perf_counter(), time.process_time()
            monitor.update(batch, name=at, time=at)
            wall[hour] = time.perf_counter() - started
            cpu += time.process_time() - cpu_started
            if hour + 1 == min(_WARM, hours):
                warm = _peak()
        peak = _peak()
        started = time.perf_counter()
        reports = Monitor(estimator, Path(state)).reports
        opened = time.perf_counter() - started
        assert len(reports) == hours
        size = sum(path.stat().st_size for path in Path(state).rglob("*") if path.is_file())
    thousand = min(_WARM, hours)
    return {
        "batches": hours,
        "rows": ROWS,
        "seconds": float(wall.sum()),
        "cpu_seconds": cpu,
        "milliseconds_per_batch": {
            "median": 1e3 * float(np.median(wall)),
            "first_1000": 1e3 * float(wall[:thousand].mean()),
            "last_1000": 1e3 * float(wall[-thousand:].mean()),
        },
        "seconds_to_open_again": opened,
        "megabytes_of_journal": size / _MEGABYTE,
        "megabytes_peak": peak / _MEGABYTE,
        "megabytes_grown_since_batch_1000": (peak - warm) / _MEGABYTE,
        "load_average_at_start": load,
        "alarm": any(report.is_alarm for report in reports),
    }


def _drawn(m: int, rng: np.random.Generator) -> Outputs:
    """Outputs of two classes whose probabilities are right, with labels."""
    logits = rng.normal(0.0, 2.0, (m, 2))
    labels = (rng.random(m) < 1.0 / (1.0 + np.exp(logits[:, 0] - logits[:, 1]))).astype(np.int64)
    return Outputs(logits, labels=labels, name="drawn")


def _peak() -> int:
    """The most memory that this process has held so far, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
