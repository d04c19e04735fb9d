"""Tasks on a real Dask cluster: a scheduler and three workers, which are killed with SIGKILL in the middle of a job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from deep.comparison.comparison import run_comparison
from ntk.kernel_config import KernelConfig
from ntk.tiles.gram import gram
from projnorm.core import cluster
from projnorm.core.backends import Backend, require_shared, run_each
from projnorm.core.errors import ClusterError
from projnorm.core.records import RunContext
from projnorm.core.store import Store
from projnorm.core.tasks import run_tasks
from simulations.bound_check import BoundConfig, run_bound_check
from simulations.toy import ToyConfig, run_toy
from tests.dask_cluster import DaskCluster
from tests.ntk.networks import images, plain_network
from tests.small import SMALL

pytestmark = pytest.mark.slow
TOY = ToyConfig(d1=40, d2=20, n=20, m=20, trials=7, interval_trials=2)
LONG = ToyConfig(d1=200, d2=100, n=100, m=100, trials=30, interval_trials=30)


@pytest.fixture(scope="module")
def dask(tmp_path_factory) -> Iterator[DaskCluster]:
    with closing(DaskCluster(tmp_path_factory.mktemp("dask"), workers=3)) as found:
        yield found


@pytest.fixture(scope="module")
def backend(dask) -> Backend:
    return Backend(scheduler=dask.address)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory) -> dict[str, bytes]:
    """The arrays of the long job with nobody killed."""
    root = tmp_path_factory.mktemp("quiet")
    run_toy(LONG, RunContext(root))
    return arrays_of(root)


def arrays_of(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.glob("*/record-*.npz")}


def test_trials_and_batches_are_the_same_bytes_as_on_this_machine(backend, tmp_path):
    for name, where in (("local", Backend(1)), ("dask", backend)):
        run_toy(TOY, RunContext(tmp_path / name, where))
        run_bound_check(BoundConfig(instances=600, large=0), RunContext(tmp_path / name, where))
    assert len(arrays_of(tmp_path / "local")) == 2
    assert arrays_of(tmp_path / "dask") == arrays_of(tmp_path / "local")


def test_tiles_are_the_same_bits_as_on_this_machine_and_no_worker_needs_the_folder(backend, tmp_path, monkeypatch):
    model, train, targets = plain_network().float(), images(20).float(), {"a": images(9, seed=1).float()}
    config = KernelConfig(panel=4, batch=3, device="cpu")
    here = gram(model, train, targets, config=config, backend=Backend(1))
    monkeypatch.chdir(tmp_path)
    there = gram(model, train, targets, config=config, backend=backend, folder=Path("tiles"))
    assert there.computed == len(there.plan.tiles) > 15
    np.testing.assert_array_equal(there.train, here.train)
    np.testing.assert_array_equal(there.ood_train("a"), here.ood_train("a"))
    assert len(list((tmp_path / "tiles").glob("*/[0-9]*.npz"))) == there.computed


def test_a_task_that_fails_is_its_own_error(backend, tmp_path):
    with pytest.raises(ZeroDivisionError):
        run_tasks(_inverse, [1, 0], store=Store(tmp_path), backend=backend, description="test")
    with pytest.raises(FileNotFoundError):
        run_tasks(_read, ["nowhere"], store=Store(tmp_path / "other"), backend=backend, description="test")


def test_a_folder_that_workers_do_not_see_is_refused_before_anything_is_computed(backend, tmp_path, monkeypatch):
    require_shared(tmp_path, backend)
    monkeypatch.setattr(cluster, "_sees", lambda _: False)
    with pytest.raises(ClusterError, match=r"does not see .*a file system that all"):
        run_comparison(SMALL, RunContext(tmp_path, backend))
    assert not list(tmp_path.rglob("*.npz"))
    assert not list(tmp_path.glob("**/.seen*"))


def test_other_versions_are_refused(backend, monkeypatch):
    monkeypatch.setattr(cluster, "_versions", lambda: {"numpy": str(os.getpid())})
    with pytest.raises(ClusterError, match=r"the worker tcp://.* has numpy \d+, here it is \d+; numbers may depend"):
        _squares(backend)


def test_a_cluster_that_is_not_there_is_one_line(monkeypatch):
    monkeypatch.setattr(cluster, "_CONNECT", 0.5)
    with pytest.raises(ClusterError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1 \("):
        _squares(Backend(scheduler="tcp://127.0.0.1:1"))
    with pytest.raises(ClusterError, match=r"needs Dask's settings of TLS"):
        _squares(Backend(scheduler="tls://127.0.0.1:1"))
    assert Backend(scheduler="tcp://[::1]:8786").scheduler
    for address in ("nonsense", "tcp://", "tcp://host", "a b:1", "tcp://host:port", "http://host:1", "inproc://a:1"):
        with pytest.raises(ValueError, match="`scheduler` must be an address such as"):
            Backend(scheduler=address)


def test_a_worker_killed_in_the_middle_loses_nothing_and_the_job_finishes(dask, quiet, tmp_path):
    command, tasks = _long_job(tmp_path, dask.address)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    _wait_for(lambda: len(list(tasks())) >= 3)
    victim = dask.workers.pop()
    victim.kill()
    victim.wait()
    done = len(list(tasks()))
    _, error = process.communicate(timeout=120)
    dask.add_worker()
    assert process.returncode == 0, error
    assert done < LONG.trials, "killed in the middle"
    assert arrays_of(tmp_path / "job" / "runs") == quiet


def test_a_scheduler_that_dies_is_one_line_and_what_was_finished_is_gone_on_from(quiet, tmp_path):
    with closing(DaskCluster(tmp_path / "dask", workers=1)) as own:
        command, tasks = _long_job(tmp_path, own.address)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        _wait_for(lambda: len(list(tasks())) >= 3)
        os.kill(own.scheduler.pid, signal.SIGKILL)
        output, error = process.communicate(timeout=120)
    assert (process.returncode, output) == (2, "")
    assert error.count("\n") == 1
    assert f"the Dask scheduler at {own.address} was lost; finished tasks are stored" in error
    kept = {path: path.stat().st_mtime_ns for path in tasks()}
    assert 3 <= len(kept) < LONG.trials
    resumed = subprocess.Popen([*command[:-4], "--workers", "1"], stdout=subprocess.DEVNULL)
    _wait_for(lambda: len(list(tasks())) > len(kept) or resumed.poll() is not None)
    assert kept.items() <= {path: path.stat().st_mtime_ns for path in tasks()}.items()
    assert resumed.wait(timeout=120) == 0
    assert arrays_of(tmp_path / "job" / "runs") == quiet


def test_a_task_that_kills_its_worker_and_a_cluster_without_workers_are_told(tmp_path, monkeypatch):
    settings = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
    with closing(DaskCluster(tmp_path, workers=1, settings=settings)) as own:
        with pytest.raises(ClusterError, match="a task brought down every worker it was given to"):
            run_tasks(_suicide, [1], store=Store(tmp_path), backend=Backend(scheduler=own.address), description="test")
        monkeypatch.setattr(cluster, "_WORKER", 0.5)
        with pytest.raises(ClusterError, match=r"has no worker; start some with `dask worker tcp://.* --nthreads 1`"):
            _squares(Backend(scheduler=own.address))


def _long_job(root: Path, address: str) -> tuple[list[str], Callable[[], Iterator[Path]]]:
    """The command of the long job, and the results of its tasks so far."""
    names = ("d1", "d2", "n", "m", "trials", "interval_trials")
    sizes = [part for name in names for part in (f"--{name.replace('_', '-')}", str(getattr(LONG, name)))]
    command = [sys.executable, "-m", "projnorm", "toy", *sizes, "--json", "--out", str(root / "job")]
    return [*command, "--backend", "dask", "--scheduler", address], lambda: (root / "job").glob("runs/*/tasks-*/*.npz")


def _wait_for(reached) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _squares(backend: Backend) -> list[int]:
    with run_each(_square, range(3), backend=backend) as running:
        return sorted(result for _, result in running)


def _square(item: int) -> int:
    return item**2


def _inverse(item: int) -> dict[str, np.ndarray]:
    return {"inverse": np.array(1 // item)}


def _read(item: str) -> dict[str, np.ndarray]:
    return {"data": np.frombuffer(Path(item).read_bytes())}


def _suicide(_: int) -> dict[str, np.ndarray]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}
