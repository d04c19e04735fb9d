"""Long work as a list of independent tasks: run in parallel, saved one by one, resumed where it stopped."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from projnorm.arrays import Arrays
from projnorm.backends import Backend, run_each
from projnorm.progress import tracked
from projnorm.runs.kept import keep, kept
from projnorm.runs.locks import sole_writer
from projnorm.runs.record import Record, find, new_record, record_id, save

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
    backend: Backend,
    fresh: bool = False,
    facts: Mapping[str, Any] | None = None,
) -> Record:
    """The record of this configuration: read if it is there and whole, else computed task by task and saved.

    Args:
        kind: What is run.
        config: The configuration as plain JSON values; it names the record.
        root: Folder of the records.
        items: One argument of `work` per task.
        work: Computes one task. It must depend on its argument alone.
        assemble: Makes the arrays of the record from the results of all tasks, in order.
        meanings: What each array is and in which unit.
        backend: Where tasks run.
        fresh: Compute again even what is there.
        facts: What else the record should say of how it came about.

    Raises:
        ClusterError: If the cluster cannot be reached or is lost.
        OSError: If a result cannot be written.
            Of both: what was finished before stays, and the next run goes on from there.
    """
    if not fresh and (found := find(root, kind, config)) is not None:
        return found
    folder = root / record_id(kind, config)
    with sole_writer(folder):
        # Another process may have finished it meanwhile.
        if not fresh and (found := find(root, kind, config)) is not None:
            return found
        tasks = folder / "tasks"
        if fresh:
            shutil.rmtree(tasks, ignore_errors=True)
        start = time.perf_counter()
        results = run_tasks(work, items, folder=tasks, backend=backend, description=kind)
        record = new_record(kind, config, assemble(results), meanings, time.perf_counter() - start, facts)
        save(record, root)
        shutil.rmtree(tasks, ignore_errors=True)
    return record


def run_tasks(
    work: Callable[[T], Arrays], items: Sequence[T], *, folder: Path, backend: Backend, description: str
) -> list[Arrays]:
    """Results of `work` on every item, in order; those finished in an earlier run are read from `folder`.

    Only this process writes there, so workers need not see the folder.
    """
    paths = [folder / f"{index:06d}.npz" for index in range(len(items))]
    results: dict[int, Arrays] = {
        index: result for index, path in enumerate(paths) if (result := kept(path)) is not None
    }
    todo = [index for index in range(len(items)) if index not in results]
    with run_each(work, (items[index] for index in todo), backend=backend.for_tasks(len(todo))) as running:
        for number, arrays in tracked(running, description=description, total=len(items), done=len(results)):
            index = todo[number]
            results[index] = {name: np.asanyarray(array) for name, array in arrays.items()}
            keep(paths[index], results[index])
    return [results[index] for index in range(len(items))]


def stacked(results: Sequence[Arrays]) -> Arrays:
    """One row per task: arrays of the same name along a new first axis."""
    return {name: np.stack([result[name] for result in results]) for name in results[0]}


def concatenated(results: Sequence[Arrays]) -> Arrays:
    """Tasks that hold several rows each: arrays of the same name one after the other."""
    return {name: np.concatenate([result[name] for result in results]) for name in results[0]}
