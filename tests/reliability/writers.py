"""Every writer with a small job: some things written one after the other, and what of them is there.

A job goes on from wherever it was, as the project's own runs do. What is there is read through the project's own
readers, so that a wrong value, an exception and a loss are all seen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ntk.features.gradient_features import gradient_features
from ntk.kernel_config import KernelConfig
from projnorm.core.atomic import write_atomically
from projnorm.core.config import Config, setting
from projnorm.core.records import RunContext, find_record, record_id, recorded
from projnorm.core.store import Entry, Store
from tests.ntk.networks import images, plain_network

Told = Callable[[str], None]
COUNT = 5


@dataclass(frozen=True, slots=True)
class Writer:
    """Something that writes: its name in docs/reliability.md, its job, and what of it is there.

    `run` does the job in a folder and tells of each thing when it is on the disk; `there` gives the things that are
    there, each with a hash of its value. What is `checked` is read by the project, and damage to it detected.
    """

    name: str
    run: Callable[[Path, Told], None]
    there: Callable[[Path], Mapping[str, str]]
    checked: bool = True


@dataclass(frozen=True)
class JobConfig(Config):
    """Configuration of a record."""

    number: int = setting(0, "A number that names the record.")


def drawn(number: int) -> np.ndarray:
    """What the thing of this number holds."""
    return np.random.default_rng(number).standard_normal((6, 5))


def _entries(folder: Path, told: Told) -> None:
    for number in range(COUNT):
        Store(folder).get_or_compute(f"part/{number}", lambda n=number: Entry({"a": drawn(n)}, {"number": n}))
        told(str(number))


def _entries_there(folder: Path) -> dict[str, str]:
    found = {str(number): Store(folder).get(f"part/{number}") for number in range(COUNT)}
    return {name: _hash(entry.arrays["a"], entry.facts) for name, entry in found.items() if entry is not None}


def _replaced(folder: Path, told: Told) -> None:
    """One entry that is replaced at every step, as the checkpoints of training are."""
    entry = Store(folder).get("network")
    for number in range(0 if entry is None else entry.facts["step"], COUNT):
        Store(folder).put("network", {"a": drawn(number)}, {"step": number})
        told(str(number))


def _replaced_there(folder: Path) -> dict[str, str]:
    entry = Store(folder).get("network")
    if entry is None:
        return {}
    assert np.array_equal(entry.arrays["a"], drawn(entry.facts["step"])), "arrays of one step and facts of another"
    return {str(number): _hash(drawn(number), {}) for number in range(entry.facts["step"] + 1)}


def _records(folder: Path, told: Told) -> None:
    """Two records, each of some tasks."""
    for name in range(2):
        recorded(
            *("kind", JobConfig(name), RunContext(folder)),
            items=range(COUNT),
            work=_Task(name, told),
            assemble=lambda results: {"a": np.array([result["a"] for result in results])},
            meanings={"a": "numbers"},
        )
        told(f"{name}.{COUNT - 1}")


@dataclass(frozen=True, slots=True)
class _Task:
    record: int
    told: Told

    def __call__(self, number: int) -> dict[str, np.ndarray]:
        if number:  # the one before was written before this one is begun
            self.told(f"{self.record}.{number - 1}")
        return {"a": drawn(COUNT * self.record + number)}


def _records_there(folder: Path) -> dict[str, str]:
    there = {}
    for name in range(2):
        record = find_record(folder, "kind", JobConfig(name))
        for store in (folder / record_id("kind", JobConfig(name))).glob("tasks-*") if record is None else ():
            entries = {number: Store(store).get(f"{number:06d}") for number in range(COUNT)}
            there |= {f"{name}.{n}": _hash(entry.arrays["a"], {}) for n, entry in entries.items() if entry is not None}
        if record is not None:
            there |= {f"{name}.{number}": _hash(record.arrays["a"][number], {}) for number in range(COUNT)}
    return there


def _pages(folder: Path, told: Told) -> None:
    """Figures, tables, cards and reports."""
    for number in range(COUNT):
        write_atomically(folder / f"page-{number}.html", drawn(number).tobytes())
        told(str(number))


def _pages_there(folder: Path) -> dict[str, str]:
    return {path.stem[5:]: _hash(np.frombuffer(path.read_bytes()), {}) for path in folder.glob("page-*.html")}


def _features(folder: Path, told: Told) -> None:
    folder.mkdir(exist_ok=True)
    for number in range(2):
        config = KernelConfig(kind="coordinates", count=40, seed=number, device="cpu")
        gradient_features(
            plain_network().float(), images(4).float(), config=config, out=folder / f"features-{number}.npy"
        )
        told(str(number))


def _features_there(folder: Path) -> dict[str, str]:
    return {path.stem[9:]: _hash(np.load(path), {}) for path in folder.glob("features-*.npy")}


WRITERS = {
    writer.name: writer
    for writer in (
        Writer("entries of the store", _entries, _entries_there),
        Writer("entries that are replaced", _replaced, _replaced_there),
        Writer("records and their tasks", _records, _records_there),
        Writer("figures, tables, pages, cards", _pages, _pages_there, checked=False),
        Writer("gradient features", _features, _features_there, checked=False),
    )
}


def _hash(array: np.ndarray, facts: Mapping[str, object]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes() + repr(dict(facts)).encode()).hexdigest()[:16]
