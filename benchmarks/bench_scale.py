"""The same job on one process, on two, and on a Dask cluster of two workers on loopback.

The peer of every ratio is one process of the same run. Times are of whole jobs, with everything a user waits for:
processes are started, and libraries imported, in every one of them but the first.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.harness import interleaved_seconds, medians, write_result
from deep.comparison.comparison import run_comparison
from deep.comparison.config import DeepConfig
from deep.comparison.presets import IMAGE_PRESETS
from ntk.experiments.config import GramConfig, NtkImages
from ntk.experiments.experiment import run_gram
from projnorm.core.backends import Backend
from projnorm.core.records import Record, RunContext
from projnorm.data.image_settings import PROBE_FAMILIES
from simulations.bound_check import BoundConfig, run_bound_check
from simulations.toy import ToyConfig, run_toy
from tests.dask_cluster import DaskCluster

RESULT = Path(__file__).resolve().parent.parent / "results" / "bench_scale.json"
WORKERS = 2
_DIGITS: DeepConfig = IMAGE_PRESETS["digits"].updated(
    {"data": {"families": list(PROBE_FAMILIES)}, "finetune": {"epochs": 10}}
)
JOBS: dict[str, Callable[[RunContext], Record]] = {
    "toy, the paper's sizes, 8 trials": partial(run_toy, ToyConfig(trials=8, interval_trials=2)),
    "bound, 4,000 designs": partial(run_bound_check, BoundConfig(instances=4_000, large=0)),
    "kernels of ResNet18, 400 images": partial(run_gram, GramConfig(NtkImages(n=100, m=60, severities=(5,)))),
    "deep run digits, 13 targets": partial(run_comparison, _DIGITS),
}


def main() -> None:
    """Check agreement, time in turns, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="jobs with this in their name; what is recorded of the others stays")
    asked = parser.parse_args()
    repeats = asked.repeats
    with TemporaryDirectory(prefix="projnorm-scale-") as name:
        folder = Path(name)
        cluster = DaskCluster(folder / "dask", workers=WORKERS)
        backends = {
            "one process": Backend(1),
            "two processes": Backend(WORKERS),
            "Dask, two workers": Backend(scheduler=cluster.address),
        }
        rows = {}
        if asked.only:
            rows = {row["job"]: row for row in json.loads(RESULT.read_text(encoding="utf-8"))["rows"]}
        try:
            for job, run in JOBS.items():
                if asked.only not in job:
                    continue
                records = {where: _timed(run, folder, backend) for where, backend in backends.items()}
                first = next(iter(records.values()))
                for record in records.values():
                    for array in first.arrays:
                        np.testing.assert_array_equal(record.arrays[array], first.arrays[array])
                timed = {where: partial(_timed, run, folder, backend) for where, backend in backends.items()}
                seconds = interleaved_seconds(timed, dict.fromkeys(backends, repeats))
                middle = medians(seconds)
                peer = middle["one process"]
                ratio = {where: peer / middle[where] for where in backends}
                rows[job] = {"job": job, "seconds": seconds, "ratio": ratio}
                print(job, {where: f"{middle[where]:.1f} s, {peer / middle[where]:.2f}x" for where in backends})
        finally:
            cluster.close()
    write_result(RESULT, "python -m benchmarks.bench_scale", {"workers": WORKERS, "rows": list(rows.values())})


def _timed(run: Callable[[RunContext], Record], folder: Path, backend: Backend) -> Record:
    with TemporaryDirectory(dir=folder) as root:
        return run(RunContext(Path(root), backend, memory=3e9))


if __name__ == "__main__":
    main()
