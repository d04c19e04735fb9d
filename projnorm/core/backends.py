"""Independent tasks, run by processes on this machine (joblib) or on a Dask cluster, through one function.

A task is a function of one argument that depends on nothing else, so it may run anywhere, in any order, or twice. Each
task has one BLAS thread, and a process runs one task at a time.
"""

from __future__ import annotations

import os
import re
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from filelock import FileLock, Timeout
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from projnorm.core.errors import InputError

T = TypeVar("T")
R = TypeVar("R")

_VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
_ADDRESS = re.compile(r"((tcp|tls)://)?([^\s/:\[\]]+|\[[0-9a-fA-F:.]+\]):\d{1,5}")
_POLL_SECONDS = 0.1
_one_at_a_time = threading.RLock()
# Locks on GPUs, held until the process ends.
_gpu_locks: list[FileLock] = []


@dataclass(frozen=True, slots=True)
class Backend:
    """Where tasks run; results do not depend on it.

    Attributes:
        workers: Number of processes on this machine; ignored on a cluster.
        scheduler: Address of a Dask scheduler, such as tcp://127.0.0.1:8786; empty to run on this machine.
        gpus: Names of the GPUs of this machine, each used by one process; empty to use none.

    Examples:
        >>> import projnorm as pn
        >>> pn.Backend(workers=4).for_tasks(3).workers
        3
    """

    workers: int = 1
    scheduler: str = ""
    gpus: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the number of workers and the address."""
        if self.workers < 1:
            raise InputError(f"`workers` must be at least 1; got {self.workers}.")
        if self.gpus and self.workers > len(self.gpus):
            raise InputError(f"`workers` must be at most {len(self.gpus)}, one for each GPU; got {self.workers}.")
        if self.scheduler and not _ADDRESS.fullmatch(self.scheduler):
            raise InputError(f"`scheduler` must be an address such as tcp://127.0.0.1:8786; got {self.scheduler!r}.")

    def for_tasks(self, count: int) -> Backend:
        """The same backend with at most `count` processes, for that number of tasks."""
        return replace(self, workers=max(1, min(self.workers, count)))


ONE_PROCESS = Backend()


@contextmanager
def run_each(function: Callable[[T], R], items: Iterable[T], *, backend: Backend) -> Iterator[Iterator[tuple[int, R]]]:
    """Iterate over (index, result) of `function` for every item, in the order in which they finish.

    The function and the items must be picklable; items are taken one by one as workers become free. Tasks that are
    still running when the context ends are stopped.
    """
    # Closed here: when it is garbage collected, joblib would stop whatever runs at that time.
    with closing(_results(partial(_numbered, function), enumerate(items), backend)) as results:
        yield results


def in_order(numbered: Iterable[tuple[int, R]]) -> Iterator[R]:
    """Results in the order of their items, each as soon as all earlier ones are available."""
    waiting: dict[int, R] = {}
    next_number = 0
    for number, result in numbered:
        waiting[number] = result
        while next_number in waiting:
            yield waiting.pop(next_number)
            next_number += 1


def count_workers(backend: Backend) -> int:
    """Number of tasks that can run at once now."""
    if not backend.scheduler:
        return backend.workers
    from projnorm.core.cluster import count_processes

    return count_processes(backend.scheduler)


def require_shared(folder: Path, backend: Backend) -> None:
    """Check that every worker of a cluster can see this folder; does nothing on this machine."""
    if backend.scheduler:
        from projnorm.core.cluster import require_seen

        require_seen(folder, backend.scheduler)


def _results(
    task: Callable[[tuple[int, T]], tuple[int, R]], items: Iterator[tuple[int, T]], backend: Backend
) -> Generator[tuple[int, R], None, None]:
    if backend.scheduler:
        from projnorm.core.cluster import run_on_cluster  # needs the extra `cluster`

        yield from run_on_cluster(task, items, backend.scheduler)
        return
    options: dict[str, Any] = {"n_jobs": backend.workers, "return_as": "generator_unordered", "max_nbytes": None}
    lock_folder = TemporaryDirectory(prefix="projnorm-gpus-") if backend.gpus else nullcontext("")
    with lock_folder as folder, warnings.catch_warnings():
        # A process that has leaked memory is replaced, and its remaining tasks go to another one.
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given to the executor")
        # A caller that fails drops the remaining tasks on purpose.
        warnings.filterwarnings("ignore", message=r"\d+ tasks (have been|which were still)")
        if backend.gpus:
            options |= {"initializer": _take_gpu, "initargs": (Path(folder), backend.gpus)}
        yield from Parallel(**options)(delayed(task)(item) for item in items)


def _numbered(function: Callable[[T], R], item: tuple[int, T]) -> tuple[int, R]:
    with _one_at_a_time, threadpool_limits(1):
        return item[0], function(item[1])


def _take_gpu(folder: Path, gpus: tuple[str, ...]) -> None:
    """Reserve a GPU for this process until it ends; runs before CUDA is initialised."""
    while True:
        for gpu in gpus:
            lock = FileLock(folder / f"gpu-{gpu}", is_singleton=True)
            with suppress(Timeout):
                lock.acquire(timeout=0)
                os.environ[_VISIBLE_GPUS] = gpu
                _gpu_locks.append(lock)
                return
        time.sleep(_POLL_SECONDS)
