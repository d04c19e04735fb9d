"""Runs are found again, resume where they stopped, and say what they are; tasks run on processes of this machine."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from threadpoolctl import threadpool_info

from projnorm.core.backends import ONE_PROCESS, Backend, count_workers, in_order, run_each
from projnorm.core.config import Config, setting
from projnorm.core.device import on_device
from projnorm.core.errors import ChangedInputError, InputError
from projnorm.core.records import RunContext, find_record, list_runs, load_record, match_run, record_id, recorded
from projnorm.core.store import Store
from projnorm.core.tasks import run_tasks


@dataclass(frozen=True)
class SquareConfig(Config):
    """Numbers to square."""

    numbers: tuple[int, ...] = setting((1, 2), "Numbers.")
    unit: str = setting("m", "Unit.")


def square(item: int) -> dict[str, np.ndarray]:
    return {"value": np.array(item**2), "threads": np.array([pool["num_threads"] for pool in threadpool_info()])}


def counting_square(counter: Path, item: int) -> dict[str, np.ndarray]:
    with counter.open("a") as file:
        file.write(f"{item}\n")
    return square(item)


def values(results) -> dict[str, np.ndarray]:
    return {"value": np.array([result["value"] for result in results])}


def run_squares(context: RunContext, config: SquareConfig | None = None, work=square, **options):
    config, options = config or SquareConfig(), {"meanings": {"value": "squares"}, **options}
    return recorded("squares", config, context, items=config.numbers, work=work, assemble=values, **options)


def test_a_record_comes_back_as_it_was(tmp_path):
    record = run_squares(RunContext(tmp_path), facts={"device": "cpu"})
    back = load_record(tmp_path, record.id)
    assert back.to_dict() == record.to_dict()
    assert back.facts == {"device": "cpu"}
    assert back.arrays["value"].tolist() == [1, 4]
    assert find_record(tmp_path, "squares", SquareConfig()).created == record.created
    assert find_record(tmp_path, "squares", SquareConfig((3,))) is None
    assert (tmp_path / record.id / "config.toml").read_text() == 'numbers = [1, 2]\nunit = "m"\n'


def test_the_name_of_a_run_depends_on_its_configuration_kind_and_version(monkeypatch):
    names = {record_id("toy", SquareConfig()), record_id("bound", SquareConfig()), record_id("toy", SquareConfig((3,)))}
    monkeypatch.setattr("projnorm.core.records.__version__", "99.0")
    assert len({*names, record_id("toy", SquareConfig())}) == 4


def test_every_array_needs_a_meaning_and_a_context_memory(tmp_path):
    with pytest.raises(AssertionError, match="must describe every array; these differ: value"):
        run_squares(RunContext(tmp_path), meanings={})
    with pytest.raises(InputError, match="`memory` must be a positive number of bytes; got 0"):
        RunContext(tmp_path, memory=0)


def test_a_finished_run_is_read_not_computed(tmp_path):
    counter = tmp_path / "count"
    work, context = partial(counting_square, counter), RunContext(tmp_path / "runs")
    first = run_squares(context, work=work)
    assert run_squares(context, work=work).created == first.created
    assert counter.read_text() == "1\n2\n"
    run_squares(replace(context, fresh=True), work=work)
    assert counter.read_text() == "1\n2\n" * 2
    assert not list(context.root.glob("*/tasks-*"))


def test_a_run_resumes_from_its_tasks_unless_fresh_or_of_other_inputs(tmp_path):
    def interrupted(item: int) -> dict[str, np.ndarray]:
        if item == 2:
            raise KeyboardInterrupt
        return {"value": np.array(-1)}

    def half_done(name: str) -> RunContext:
        context = RunContext(tmp_path / name)
        with pytest.raises(KeyboardInterrupt):
            run_squares(context, work=interrupted, inputs={"data_sha256": "a"})
        return context

    for name, fresh, inputs, expected in (
        ("resumed", False, "a", [-1, 4]),
        ("other", False, "b", [1, 4]),
        ("fresh", True, "a", [1, 4]),
    ):
        found = run_squares(replace(half_done(name), fresh=fresh), inputs={"data_sha256": inputs})
        assert found.arrays["value"].tolist() == expected


def test_a_record_of_other_inputs_is_refused_with_the_remedy(tmp_path):
    context = RunContext(tmp_path)
    run_squares(context, inputs={"data_sha256": "a"})
    with pytest.raises(ChangedInputError, match="computed from other inputs; compute it again with fresh=True"):
        run_squares(context, inputs={"data_sha256": "b"})
    assert run_squares(replace(context, fresh=True), inputs={"data_sha256": "b"}).facts["inputs"]["data_sha256"] == "b"


def test_a_damaged_record_is_computed_again_and_a_foreign_one_refused(tmp_path, caplog):
    record = run_squares(RunContext(tmp_path))
    folder = tmp_path / record.id
    path = folder / "record.json"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match="is not finished, or its record is damaged"):
        load_record(tmp_path, record.id)
    assert [run.damaged for run in list_runs(tmp_path)] == [True]
    np.testing.assert_array_equal(run_squares(RunContext(tmp_path)).arrays["value"], [1, 4])
    assert "record.json is damaged" in caplog.text
    assert [run.damaged for run in list_runs(tmp_path)] == [False]
    other = tmp_path / record_id("squares", SquareConfig((9,)))
    folder.rename(other)
    with pytest.raises(InputError, match="does not belong to this folder"):
        load_record(tmp_path, other.name)


def test_a_listing_has_unfinished_runs_sizes_and_the_settings_that_differ(tmp_path):
    context = RunContext(tmp_path)
    finished = run_squares(context)
    with pytest.raises(KeyError):
        run_squares(context, SquareConfig((5,)), work={}.__getitem__)
    runs = {run.id == finished.id: run for run in list_runs(tmp_path)}
    assert runs[True].settings == {"numbers": [1, 2]}
    assert runs[False].settings == {"numbers": [5]}
    assert (runs[False].created, runs[False].damaged) == ("", False)
    assert runs[True].size > 500


def test_a_name_must_match_one_run(tmp_path):
    record = run_squares(RunContext(tmp_path))
    assert match_run(tmp_path, "squ") == match_run(tmp_path, record.id) == record.id
    run_squares(RunContext(tmp_path), SquareConfig((7,)))
    for root, name, message in (
        (tmp_path, "nothing", "no run in .* begins with .nothing.; there are squares-.*, squares-"),
        (tmp_path / "none", "", "there is no run in "),
        (tmp_path, "squ", "name one of the 2 runs in .*: squares-.*, squares-"),
    ):
        with pytest.raises(InputError, match=message):
            match_run(root, name)


def test_a_damaged_task_is_done_again(tmp_path, caplog):
    counter, store = tmp_path / "count", Store(tmp_path / "tasks")
    work = partial(counting_square, counter)
    run_tasks(work, [1, 2, 3], store=store, backend=Backend(1), description="test")
    store.path("000001").write_bytes(b"half a fi")
    results = run_tasks(work, [1, 2, 3, 4], store=store, backend=Backend(1), description="test")
    assert [int(result["value"]) for result in results] == [1, 4, 9, 16]
    assert counter.read_text().split() == ["1", "2", "3", "2", "4"]
    assert "000001.json is damaged" in caplog.text


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_every_task_has_one_thread(tmp_path, workers):
    for result in run_tasks(square, [1, 2], store=Store(tmp_path), backend=Backend(workers), description="test"):
        assert set(result["threads"].tolist()) <= {1}


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
