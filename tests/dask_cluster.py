"""A real Dask cluster on loopback: a scheduler and workers, each a process that can be killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_PATIENCE = 60.0


class DaskCluster:
    """`dask scheduler` and `dask worker` as a user starts them."""

    def __init__(self, folder: Path, workers: int, *, settings: Mapping[str, str] | None = None) -> None:
        """Start them; `folder` keeps what they write, `settings` are variables of Dask's."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **(settings or {})}
        file = folder / "scheduler.json"
        self.scheduler = self._start(
            "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)
        )
        deadline = time.monotonic() + _PATIENCE
        while not file.exists() or not file.read_text():
            assert self.scheduler.poll() is None, "the scheduler ended"
            assert time.monotonic() < deadline, "the scheduler did not start"
            time.sleep(0.05)
        self.address: str = json.loads(file.read_text())["address"]
        self.workers: list[subprocess.Popen[bytes]] = []
        for _ in range(workers):
            self.add_worker()

    def add_worker(self) -> None:
        """One more, without a nanny: what is killed stays dead."""
        options = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", str(self._folder))
        self.workers.append(self._start("worker", self.address, *options))

    def close(self) -> None:
        """Kill everything."""
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", *arguments]
        with (self._folder / f"{arguments[0]}-{time.monotonic_ns()}.log").open("wb") as log:
            return subprocess.Popen(command, env=self._environment, stdout=log, stderr=log, cwd=self._folder)
