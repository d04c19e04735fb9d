"""Tasks on a Dask cluster, whose scheduler decides who does what and does again what a lost worker had."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from dask import config as dask_config
from distributed import CancelledError, Client, Future, KilledWorker, wait
from distributed.comm.core import CommClosedError

from projnorm.atomic import write_atomically
from projnorm.errors import ClusterError

T = TypeVar("T")
R = TypeVar("R")

# Seconds to find the scheduler, to wait for a result before the workers are counted, and for a worker to come back.
_CONNECT, _LOOK, _WORKER = 10.0, 5.0, 30.0
# Tasks given out for each worker, so that none is idle and the scheduler holds few.
_AHEAD = 2
# Numbers may depend on these.
_SAME_VERSIONS = ("projnorm", "numpy", "scipy", "torch")
_LOST = (CancelledError, CommClosedError, TimeoutError, OSError)
_SETTINGS = {
    "distributed.comm.timeouts.connect": f"{_CONNECT}s",
    # A network is sent once, as part of a task, and that is meant.
    "distributed.admin.large-graph-warning-threshold": "1TB",
}
_KEPT = "finished tasks are stored, and running the same again resumes from them."


def run_on_cluster(function: Callable[[T], R], items: Iterator[T], scheduler: str) -> Iterator[R]:
    """What `function` makes of each item, as they are finished.

    Raises:
        ClusterError: If the cluster cannot be reached or has other versions, if it is lost, or if a task brings down
            its workers.
    """
    with _connected(scheduler) as client:
        with _naming_loss(scheduler):
            # The function is a task as well: what a worker keeps of it is made again if that worker is lost.
            shared = client.submit(_same, function, key=f"function-{uuid4().hex}")
        running: set[Future] = set()
        while True:
            with _naming_loss(scheduler):
                room = _AHEAD * max(1, len(client.nthreads())) - len(running)
                running.update(
                    client.submit(_call, shared, item, key=f"task-{uuid4().hex}")
                    for item in islice(items, max(0, room))
                )
            if not running:
                return
            with _naming_loss(scheduler):
                done = _some_done(client, running)
                outcomes = [(future.exception(), future) for future in done]
            running -= done
            for error, future in outcomes:
                if isinstance(error, KilledWorker):
                    raise ClusterError(
                        f"a task brought down every worker it was given to, perhaps for want of memory; {_KEPT}"
                    )
                if error is not None:
                    raise error
                with _naming_loss(scheduler):
                    result = future.result()
                yield result


def count_processes(scheduler: str) -> int:
    """Workers of a cluster; each runs one task at a time.

    Raises:
        ClusterError: If it cannot be reached.
    """
    with _connected(scheduler) as client, _naming_loss(scheduler):
        return len(client.nthreads())


def require_seen(folder: Path, scheduler: str) -> None:
    """Check that every worker sees this folder.

    Raises:
        ClusterError: If one does not, or the cluster cannot be reached.
    """
    probe = folder / f".seen-{uuid4().hex}"
    write_atomically(probe, b"")
    try:
        with _connected(scheduler) as client, _naming_loss(scheduler):
            blind = [worker for worker, seen in client.run(_sees, str(probe.absolute())).items() if not seen]
    finally:
        probe.unlink(missing_ok=True)
    if blind:
        raise ClusterError(
            f"the worker {blind[0]} does not see {folder}; this needs a folder on a file system that all workers share."
        )


@contextmanager
def _connected(scheduler: str) -> Iterator[Client]:
    """A client of a cluster with at least one worker, all of them with the versions that are installed here."""
    if scheduler.startswith("tls://") and not dask_config.get("distributed.comm.tls.ca-file", None):
        raise ClusterError(f"{scheduler} needs Dask's settings of TLS, distributed.comm.tls.* in its configuration.")
    with dask_config.set(_SETTINGS), _without_its_log():
        try:
            client = Client(scheduler, timeout=_CONNECT, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            reason = str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__
            raise ClusterError(f"no Dask scheduler answers at {scheduler} ({reason}).") from None
        try:
            with _naming_loss(scheduler):
                _require_workers(client, scheduler)
            yield client
        finally:
            with suppress(*_LOST):
                client.close(timeout=_CONNECT)


@contextmanager
def _naming_loss(scheduler: str) -> Iterator[None]:
    """Around what talks to the scheduler, and around nothing else: errors of tasks and of callers are their own."""
    try:
        yield
    except _LOST:
        raise ClusterError(f"the Dask scheduler at {scheduler} was lost; {_KEPT}") from None


@contextmanager
def _without_its_log() -> Iterator[None]:
    """What the client logs of a lost connection, with its traceback, is said in one line by `ClusterError`."""
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
                    "both must be the same."
                )


def _some_done(client: Client, running: set[Future]) -> set[Future]:
    """Those that are finished, at least one.

    Raises:
        ClusterError: If there is no worker left and none comes back.
    """
    alone_since: float | None = None
    while True:
        try:
            with client.as_current():
                return set(wait(running, timeout=_LOOK, return_when="FIRST_COMPLETED").done)
        except TimeoutError:
            if client.nthreads():
                alone_since = None
            elif alone_since is None:
                alone_since = time.monotonic()
            elif time.monotonic() - alone_since > _WORKER:
                raise ClusterError(f"every worker of the cluster is gone; {_KEPT}") from None


def _same(function: Callable[[T], R]) -> Callable[[T], R]:
    return function


def _call(function: Callable[[T], R], item: T) -> R:
    return function(item)


def _sees(path: str) -> bool:
    return Path(path).exists()


def _versions() -> dict[str, Any]:
    found = dict.fromkeys(_SAME_VERSIONS, "not installed")
    for name in _SAME_VERSIONS:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
