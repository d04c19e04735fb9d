"""Tasks on processes of this machine: in any order, stopped with their caller, one GPU each."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st

from projnorm.backends import ONE_PROCESS, Backend, count_workers, in_order, run_each
from projnorm.device import on_device


def slow_square(folder: Path, item: int) -> int:
    time.sleep(0.1)
    (folder / str(item)).touch()
    return item**2


def own_gpu(item: int) -> tuple[int, int, str]:
    time.sleep(0.1)
    return item, os.getpid(), os.environ["CUDA_VISIBLE_DEVICES"]


def fail_after_one(folder: Path) -> None:
    with run_each(partial(slow_square, folder), range(40), backend=Backend(2)) as running:
        next(running)
        raise RuntimeError("disk full")


@pytest.mark.parametrize("workers", [1, 2])
def test_every_item_comes_back_once_with_its_number(tmp_path, workers):
    with run_each(partial(slow_square, tmp_path), range(3, 8), backend=Backend(workers)) as running:
        assert sorted(running) == [(number, (number + 3) ** 2) for number in range(5)]


@pytest.mark.slow
def test_a_failed_caller_stops_its_tasks_and_no_others(tmp_path):
    """A generator that is left to the garbage collector would stop whatever runs when it is collected."""
    left = tmp_path / "left"
    left.mkdir()
    with pytest.raises(RuntimeError, match="disk full") as caught:
        fail_after_one(left)
    done = len(list(left.iterdir()))
    other = tmp_path / "other"
    other.mkdir()
    with run_each(partial(slow_square, other), range(6), backend=Backend(2)) as running:
        first = next(running)
        del caught  # and with it the last that knew of the first call
        assert len([first, *running]) == 6
    assert len(list(left.iterdir())) <= done + 2


@given(st.permutations(range(8)))
def test_results_are_put_in_order_as_soon_as_they_can_be(order):
    seen: list[int] = []

    def coming():
        for number in order:
            seen.append(number)
            yield number, str(number)

    for position, result in enumerate(in_order(coming())):
        assert result == str(position)
        assert set(range(position + 1)) <= set(seen)
    assert len(seen) == 8


@pytest.mark.slow
def test_every_process_has_a_gpu_of_its_own():
    with run_each(own_gpu, range(8), backend=Backend(2, gpus=("5", "7"))) as running:
        found = {(process, gpu) for _, (_, process, gpu) in running}
    assert {gpu for _, gpu in found} <= {"5", "7"}
    assert len({process for process, _ in found}) == len({gpu for _, gpu in found}) == len(found)


@pytest.mark.parametrize(
    ("device", "asked", "workers", "gpus"),
    [
        ("cpu", 3, 3, ()),
        ("cuda", 8, 4, ("0", "1", "2", "3")),
        ("cuda", 2, 2, ("0", "1", "2", "3")),
        ("cuda", 1, 1, ()),
        ("cuda:1", 8, 1, ()),
        ("mps", 8, 1, ()),
    ],
)
def test_there_are_as_many_processes_as_the_device_has_use_for(monkeypatch, device, asked, workers, gpus):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert on_device(Backend(asked), device) == Backend(workers, gpus=gpus)


def test_only_gpus_that_are_visible_are_given_out(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6,GPU-1f")
    assert on_device(Backend(4), "cuda") == Backend(2, gpus=("6", "GPU-1f"))
    cluster = Backend(4, "tcp://127.0.0.1:8786")
    assert on_device(cluster, "cuda") == cluster


def test_what_nothing_can_run_on_is_refused():
    with pytest.raises(ValueError, match="`workers` must be at least 1; got 0"):
        Backend(0)
    with pytest.raises(ValueError, match="`workers` must be at most 1, one for each GPU; got 2"):
        Backend(2, gpus=("0",))
    assert Backend(5).for_tasks(2) == Backend(2)
    assert Backend(5).for_tasks(0) == ONE_PROCESS
    assert count_workers(Backend(3)) == 3
