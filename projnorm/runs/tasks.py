"""Long work as a list of independent tasks: run in parallel, saved one by one, resumed where it stopped."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from projnorm.files import read_file
from projnorm.runs.arrays import Arrays, from_npz, to_npz
from projnorm.runs.atomic import write_atomically
from projnorm.runs.progress import tracked
from projnorm.runs.record import DamagedRecordError, Record, find, new_record, record_id, save

T = TypeVar("T")


def recorded(
    kind: str,
    config: Mapping[str, Any],
    *,
    root: Path,
    items: Sequence[T],
    work: Callable[[T], Arrays],
    assemble: Callable[[Sequence[Arrays]], Arrays],
    meanings: Mapping[str, str],
    workers: int,
    fresh: bool = False,
    facts: Mapping[str, Any] | None = None,
) -> Record:
    """The record of this configuration: read if it is there, else computed task by task and saved.

    Args:
        kind: What is run.
        config: The configuration as plain JSON values; it names the record.
        root: Folder of the records.
        items: One argument of `work` per task.
        work: Computes one task. It must depend on its argument alone.
        assemble: Makes the arrays of the record from the results of all tasks, in order.
        meanings: What each array is and in which unit.
        workers: Processes to use.
        fresh: Compute again even what is there.
        facts: What else the record should say of how it came about.

    Raises:
        ValueError: If `workers` is below 1.
        DamagedRecordError: If there is a record and it is not whole; it is left as it is.
        OSError: If a result cannot be written. What was finished before stays, and the next run goes on from there.
    """
    folder = root / record_id(kind, config)
    if not fresh:
        try:
            found = find(root, kind, config)
        except DamagedRecordError as damage:
            raise DamagedRecordError(f"{damage}. Delete this folder, or pass --fresh, to compute it again.") from None
        if found is not None:
            return found
    tasks = folder / "tasks"
    if fresh:
        shutil.rmtree(tasks, ignore_errors=True)
    start = time.perf_counter()
    results = run_tasks(work, items, folder=tasks, workers=workers, description=kind)
    record = new_record(kind, config, assemble(results), meanings, time.perf_counter() - start, facts)
    save(record, root)
    shutil.rmtree(tasks, ignore_errors=True)
    return record


def run_tasks(
    work: Callable[[T], Arrays], items: Sequence[T], *, folder: Path, workers: int, description: str
) -> list[Arrays]:
    """Results of `work` on every item, in order; those finished in an earlier run are read from `folder`.

    Every task runs with one BLAS thread, whatever the number of workers, so the numbers do not depend on it.
    """
    if workers < 1:
        raise ValueError(f"`workers` must be at least 1; got {workers}.")
    paths = [folder / f"{index:06d}.npz" for index in range(len(items))]
    results = {path: result for path in paths if (result := _finished(path)) is not None}
    todo = [(item, path) for item, path in zip(items, paths, strict=True) if path not in results]
    folder.mkdir(parents=True, exist_ok=True)
    running = Parallel(n_jobs=min(workers, max(1, len(todo))), return_as="generator_unordered")(
        delayed(_run_one)(work, item, path) for item, path in todo
    )
    for path in tracked(running, description=description, total=len(items), done=len(results)):
        results[path] = from_npz(read_file(path))
    return [results[path] for path in paths]


def stacked(results: Sequence[Arrays]) -> Arrays:
    """One row per task: arrays of the same name along a new first axis."""
    return {name: np.stack([result[name] for result in results]) for name in results[0]}


def concatenated(results: Sequence[Arrays]) -> Arrays:
    """Tasks that hold several rows each: arrays of the same name one after the other."""
    return {name: np.concatenate([result[name] for result in results]) for name in results[0]}


def _run_one(work: Callable[[T], Arrays], item: T, path: Path) -> Path:
    with threadpool_limits(1):
        arrays = work(item)
    write_atomically(path, to_npz(arrays))
    return path


def _finished(path: Path) -> Arrays | None:
    try:
        return from_npz(read_file(path))
    except (FileNotFoundError, ValueError):
        return None
