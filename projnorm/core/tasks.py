"""Long work as a list of independent tasks: run in parallel, stored one by one, resumed where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from projnorm.core.arrays import Arrays
from projnorm.core.backends import Backend, run_each
from projnorm.core.progress import tracked
from projnorm.core.store import Store

T = TypeVar("T")


def run_tasks(
    work: Callable[[T], Arrays], items: Sequence[T], *, store: Store, backend: Backend, description: str
) -> list[Arrays]:
    """Results of `work` on every item, in order; those of an earlier run are read from the store.

    Only this process writes there, so workers need not see the folder.
    """
    keys = [f"{index:06d}" for index in range(len(items))]
    results = {index: entry.arrays for index, key in enumerate(keys) if (entry := store.get(key)) is not None}
    todo = [index for index in range(len(items)) if index not in results]
    with run_each(work, (items[index] for index in todo), backend=backend.for_tasks(len(todo))) as running:
        for number, arrays in tracked(running, description=description, total=len(items), done=len(results)):
            index = todo[number]
            results[index] = {name: np.asanyarray(array) for name, array in arrays.items()}
            store.put(keys[index], results[index])
    return [results[index] for index in range(len(items))]


def stacked(results: Sequence[Arrays]) -> Arrays:
    """One row for each task: arrays of the same name along a new first axis."""
    return {name: np.stack([result[name] for result in results]) for name in results[0]}


def concatenated(results: Sequence[Arrays]) -> Arrays:
    """For tasks of several rows each: arrays of the same name one after the other."""
    return {name: np.concatenate([result[name] for result in results]) for name in results[0]}
