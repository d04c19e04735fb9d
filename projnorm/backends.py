"""Where independent tasks run: processes of this machine through joblib, or a Dask cluster. One function for both.

A task is a function of one argument that depends on nothing else, so it may run anywhere, in any order, and twice. Each
has one thread of BLAS, and a process runs one at a time.
"""

from __future__ import annotations

import os
import re
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from filelock import FileLock, Timeout
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from projnorm.errors import InputError

T = TypeVar("T")
R = TypeVar("R")

_VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
_ADDRESS = re.compile(r"((tcp|tls)://)?([^\s/:\[\]]+|\[[0-9a-fA-F:.]+\]):\d{1,5}")
_LOOK_AGAIN = 0.1
_one_at_a_time = threading.RLock()
# Held until the process ends.
_taken: list[FileLock] = []


@dataclass(frozen=True, slots=True)
class Backend:
    """Where tasks run; the numbers do not depend on it.

    Attributes:
        workers: Number of processes on this machine; a cluster's scheduler knows its own.
        scheduler: Address of a Dask scheduler, such as tcp://127.0.0.1:8786; empty for this machine.
        gpus: Names of the GPUs of this machine, one for each process, which then sees no other; empty without GPUs.
    """

    workers: int = 1
    scheduler: str = ""
    gpus: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what nothing can run on."""
        if self.workers < 1:
            raise InputError(f"`workers` must be at least 1; got {self.workers}.")
        if self.gpus and self.workers > len(self.gpus):
            raise InputError(f"`workers` must be at most {len(self.gpus)}, one for each GPU; got {self.workers}.")
        if self.scheduler and not _ADDRESS.fullmatch(self.scheduler):
            raise InputError(f"`scheduler` must be an address such as tcp://127.0.0.1:8786; got {self.scheduler!r}.")

    def for_tasks(self, count: int) -> Backend:
        """No more processes than there are tasks."""
        return replace(self, workers=max(1, min(self.workers, count)))


ONE_PROCESS = Backend()


@contextmanager
def run_each(function: Callable[[T], R], items: Iterable[T], *, backend: Backend) -> Iterator[Iterator[tuple[int, R]]]:
    """The number of each item and what `function` makes of it, as they are finished; at the end the rest is stopped.

    Args:
        function: Function of one item that depends on nothing else; it and the items can be pickled.
        items: Items, taken one by one as workers become free.
        backend: Processes or cluster that the tasks run on.

    Raises:
        ClusterError: If the cluster cannot be reached, or is lost. What was given out before is the caller's.
    """
    # Closed here, not when it is collected: joblib would then stop whatever runs at that time.
    with closing(_results(partial(_numbered, function), enumerate(items), backend)) as results:
        yield results


def in_order(numbered: Iterable[tuple[int, R]]) -> Iterator[R]:
    """Results in the order of their items, each as soon as all before it are there."""
    waiting: dict[int, R] = {}
    next_number = 0
    for number, result in numbered:
        waiting[number] = result
        while next_number in waiting:
            yield waiting.pop(next_number)
            next_number += 1


def count_workers(backend: Backend) -> int:
    """How many tasks can run at once now.

    Raises:
        ClusterError: If the cluster cannot be reached.
    """
    if not backend.scheduler:
        return backend.workers
    from projnorm.cluster import count_processes

    return count_processes(backend.scheduler)


def require_shared(folder: Path, backend: Backend) -> None:
    """Check that every worker of a cluster sees this folder; on this machine there is nothing to check.

    Raises:
        ClusterError: If one does not.
    """
    if backend.scheduler:
        from projnorm.cluster import require_seen

        require_seen(folder, backend.scheduler)


def _results(
    task: Callable[[tuple[int, T]], tuple[int, R]], items: Iterator[tuple[int, T]], backend: Backend
) -> Generator[tuple[int, R], None, None]:
    if backend.scheduler:
        from projnorm.cluster import run_on_cluster  # the extra `cluster`, only where it is asked for

        yield from run_on_cluster(task, items, backend.scheduler)
        return
    options: dict[str, Any] = {"n_jobs": backend.workers, "return_as": "generator_unordered", "max_nbytes": None}
    with _folder_of_locks(backend) as folder, warnings.catch_warnings():
        # A process that holds more memory than at first is replaced, and what it had not done is done by another.
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given to the executor")
        # That a caller who fails wants no more of them is meant.
        warnings.filterwarnings("ignore", message=r"\d+ tasks (have been|which were still)")
        if backend.gpus:
            options |= {"initializer": _take_gpu, "initargs": (folder, backend.gpus)}
        yield from Parallel(**options)(delayed(task)(item) for item in items)


@contextmanager
def _folder_of_locks(backend: Backend) -> Iterator[Path]:
    if not backend.gpus:
        yield Path()
        return
    with TemporaryDirectory(prefix="projnorm-gpus-") as folder:
        yield Path(folder)


def _numbered(function: Callable[[T], R], item: tuple[int, T]) -> tuple[int, R]:
    with _one_at_a_time, threadpool_limits(1):
        return item[0], function(item[1])


def _take_gpu(folder: Path, gpus: tuple[str, ...]) -> None:
    """Once in every process, before CUDA is started in it: one that no other has, until this process ends."""
    while True:
        for gpu in gpus:
            lock = FileLock(folder / f"gpu-{gpu}", is_singleton=True)
            with suppress(Timeout):
                lock.acquire(timeout=0)
                os.environ[_VISIBLE_GPUS] = gpu
                _taken.append(lock)
                return
        time.sleep(_LOOK_AGAIN)
