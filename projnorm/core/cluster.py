"""Tasks on a Dask cluster, whose scheduler distributes them and reruns those of a lost worker.

A cluster that cannot be reached, is lost or has other library versions, and a task that kills its workers, raise
`ClusterError`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from operator import call
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from dask import config as dask_config
from distributed import CancelledError, Client, Future, KilledWorker, wait
from distributed.comm.core import CommClosedError

from projnorm.core.atomic import write_atomically
from projnorm.core.errors import ClusterError
from projnorm.core.files import reason
from projnorm.core.lazy import version_of

T = TypeVar("T")
R = TypeVar("R")

# Seconds to connect to the scheduler, between two checks that there are workers, and for a worker to appear.
_CONNECT, _CHECK, _WORKER = 10.0, 5.0, 30.0
# Tasks submitted per worker, so that no worker is idle and the scheduler holds few tasks.
_TASKS_PER_WORKER = 2
# Results may depend on the versions of these.
_SAME_VERSIONS = ("projnorm", "numpy", "scipy", "torch")
_LOST = (CancelledError, CommClosedError, TimeoutError, OSError)
_SETTINGS = {
    "distributed.comm.timeouts.connect": f"{_CONNECT}s",
    # Networks are sent as part of a task on purpose.
    "distributed.admin.large-graph-warning-threshold": "1TB",
}
_RESUMABLE = "finished tasks are stored, and running the same again resumes from them."


def run_on_cluster(function: Callable[[T], R], items: Iterator[T], scheduler: str) -> Iterator[R]:
    """Results of `function` for the items, in the order in which they finish."""
    with _connected(scheduler) as client:
        with _naming_loss(scheduler):
            # As the result of a task, the function is restored if the worker that holds it is lost.
            shared = client.submit(_identity, function, key=f"function-{uuid4().hex}")
        running: set[Future] = set()
        while True:
            with _naming_loss(scheduler):
                n_free = _TASKS_PER_WORKER * max(1, len(client.nthreads())) - len(running)
                running.update(
                    client.submit(call, shared, item, key=f"task-{uuid4().hex}")
                    for item in islice(items, max(0, n_free))
                )
                if not running:
                    return
                done = _some_done(client, running)
                outcomes = [(future.exception(), future) for future in done]
            running -= done
            for error, future in outcomes:
                if isinstance(error, KilledWorker):
                    raise ClusterError(
                        f"a task brought down every worker it was given to, perhaps for lack of memory; {_RESUMABLE}"
                    )
                if error is not None:
                    raise error
                with _naming_loss(scheduler):
                    result = future.result()
                yield result


def count_processes(scheduler: str) -> int:
    """Number of workers of a cluster; each runs one task at a time."""
    with _connected(scheduler) as client, _naming_loss(scheduler):
        return len(client.nthreads())


def require_seen(folder: Path, scheduler: str) -> None:
    """Check that every worker can see this folder."""
    probe = folder / f".seen-{uuid4().hex}"
    write_atomically(probe, b"")
    try:
        with _connected(scheduler) as client, _naming_loss(scheduler):
            blind = [worker for worker, seen in client.run(_sees, str(probe.absolute())).items() if not seen]
    finally:
        probe.unlink(missing_ok=True)
    if blind:
        raise ClusterError(
            f"the worker {blind[0]} does not see {folder}; pass a folder on a file system that all workers share."
        )


@contextmanager
def _connected(scheduler: str) -> Iterator[Client]:
    """Client of a cluster that has at least one worker, all with the library versions of this process."""
    if scheduler.startswith("tls://") and not dask_config.get("distributed.comm.tls.ca-file", None):
        raise ClusterError(
            f"{scheduler} needs Dask's settings of TLS; set distributed.comm.tls.* in the configuration of Dask."
        )
    with dask_config.set(_SETTINGS), _quiet():
        try:
            client = Client(scheduler, timeout=_CONNECT, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise ClusterError(f"no Dask scheduler answers at {scheduler} ({reason(error)}).") from None
        try:
            with _naming_loss(scheduler):
                _require_workers(client, scheduler)
            yield client
        finally:
            with suppress(*_LOST):
                client.close(timeout=_CONNECT)


@contextmanager
def _naming_loss(scheduler: str) -> Iterator[None]:
    """Turn a lost connection into a `ClusterError`; used only around calls to the scheduler, never around tasks."""
    try:
        yield
    except _LOST:
        raise ClusterError(f"the Dask scheduler at {scheduler} was lost; {_RESUMABLE}") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the client's log of a lost connection, which `ClusterError` reports in one line."""
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client", "distributed.comm")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _require_workers(client: Client, scheduler: str) -> None:
    try:
        client.wait_for_workers(1, timeout=_WORKER)
    except TimeoutError:
        raise ClusterError(
            f"the Dask scheduler at {scheduler} has no worker; start some with `dask worker {scheduler} --nthreads 1`."
        ) from None
    here = _versions()
    for worker, there in client.run(_versions, on_error="return").items():
        if isinstance(there, BaseException):
            raise ClusterError(f"the worker {worker} cannot run projnorm ({type(there).__name__}: {there}).")
        for name, version in here.items():
            if there[name] != version:
                raise ClusterError(
                    f"the worker {worker} has {name} {there[name]}, here it is {version}; numbers may depend on it, so "
                    "install the same version."
                )


def _some_done(client: Client, running: set[Future]) -> set[Future]:
    """Wait until at least one future is finished; returns those that are."""
    without_workers_since: float | None = None
    while True:
        try:
            with client.as_current():
                return set(wait(running, timeout=_CHECK, return_when="FIRST_COMPLETED").done)
        except TimeoutError:
            if client.nthreads():
                without_workers_since = None
            elif without_workers_since is None:
                without_workers_since = time.monotonic()
            elif time.monotonic() - without_workers_since > _WORKER:
                raise ClusterError(f"every worker of the cluster is gone; {_RESUMABLE}") from None


def _identity(function: Callable[[T], R]) -> Callable[[T], R]:
    return function


def _sees(path: str) -> bool:
    return Path(path).exists()


def _versions() -> dict[str, str]:
    return {name: version_of(name) or "not installed" for name in _SAME_VERSIONS}
