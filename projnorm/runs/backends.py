"""Where independent tasks run: processes of this machine through joblib, or a Dask cluster. One function for both.

A task is a function of one argument that depends on nothing else, so it may run anywhere, in any order, and twice. Each
has one thread of BLAS, and a process runs one at a time.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue

T = TypeVar("T")
R = TypeVar("R")

_VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
_ADDRESS = re.compile(r"(\w+://)?[^\s/:]+(:[^\s/:]+)*:\d{1,5}")
_one_at_a_time = threading.Lock()


@dataclass(frozen=True, slots=True)
class Backend:
    """Where tasks run; the numbers do not depend on it.

    Attributes:
        workers: Processes of this machine; of a cluster, its scheduler knows how many.
        scheduler: Address of a Dask scheduler, such as tcp://127.0.0.1:8786; empty for this machine.
        gpus: Names of the GPUs of this machine, one for each process, which then sees no other; empty without.
    """

    workers: int = 1
    scheduler: str = ""
    gpus: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what nothing can run on."""
        if self.workers < 1:
            raise ValueError(f"`workers` must be at least 1; got {self.workers}.")
        if self.gpus and self.workers > len(self.gpus):
            raise ValueError(f"`workers` must be at most {len(self.gpus)}, one for each GPU; got {self.workers}.")
        if self.scheduler and not _ADDRESS.fullmatch(self.scheduler):
            raise ValueError(f"`scheduler` must be an address such as tcp://127.0.0.1:8786; got {self.scheduler!r}.")

    def for_tasks(self, count: int) -> Backend:
        """No more processes than there are tasks."""
        return replace(self, workers=max(1, min(self.workers, count)))


ONE_PROCESS = Backend()


def run_each(function: Callable[[T], R], items: Iterable[T], *, backend: Backend) -> Iterator[tuple[int, R]]:
    """The number of each item and what `function` makes of it, as they are finished.

    Args:
        function: Of one item and of nothing else; it and the items can be pickled.
        items: Taken one by one as workers become free.
        backend: Where.

    Raises:
        ClusterError: If the cluster cannot be reached, or is lost. What was given out before is the caller's.
    """
    task = partial(_numbered, function)
    if backend.scheduler:
        from projnorm.runs.cluster import run_on_cluster  # the extra `cluster`, only where it is asked for

        yield from run_on_cluster(task, enumerate(items), backend.scheduler)
        return
    options: dict[str, Any] = {}
    if backend.gpus:
        options = {"initializer": _take_gpu, "initargs": (_queue_of(backend.gpus),)}
    yield from Parallel(n_jobs=backend.workers, return_as="generator_unordered", max_nbytes=None, **options)(
        delayed(task)(numbered) for numbered in enumerate(items)
    )


def in_order(numbered: Iterable[tuple[int, R]]) -> Iterator[R]:
    """Results in the order of their items, each as soon as all before it are there."""
    waiting: dict[int, R] = {}
    following = 0
    for number, result in numbered:
        waiting[number] = result
        while following in waiting:
            yield waiting.pop(following)
            following += 1


def count_workers(backend: Backend) -> int:
    """How many tasks can run at once now.

    Raises:
        ClusterError: If the cluster cannot be reached.
    """
    if not backend.scheduler:
        return backend.workers
    from projnorm.runs.cluster import count_processes

    return count_processes(backend.scheduler)


def require_shared(folder: Path, backend: Backend) -> None:
    """Check that every worker of a cluster sees this folder; on this machine there is nothing to check.

    Raises:
        ClusterError: If one does not.
    """
    if backend.scheduler:
        from projnorm.runs.cluster import require_seen

        require_seen(folder, backend.scheduler)


def _numbered(function: Callable[[T], R], item: tuple[int, T]) -> tuple[int, R]:
    with _one_at_a_time, threadpool_limits(1):
        return item[0], function(item[1])


def _queue_of(gpus: tuple[str, ...]) -> SimpleQueue[str]:
    from joblib.externals.loky.backend import get_context

    queue: SimpleQueue[str] = get_context("loky").SimpleQueue()
    for gpu in gpus:
        queue.put(gpu)
    return queue


def _take_gpu(queue: SimpleQueue[str]) -> None:
    """Once in every process, before CUDA is started in it."""
    os.environ[_VISIBLE_GPUS] = queue.get()
