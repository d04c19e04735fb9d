"""Every writer of the project with a small job: some things written one after the other, and what of them is there.

A job goes on from wherever it was, as the project's own runs do, and takes the lock that its real callers take. What is
there is looked at through the project's own readers, so that a wrong value, an exception and a loss are all seen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from deep.checkpoints import load_checkpoint, save_checkpoint
from deep.ledger import Ledger, Row, write_rows
from ntk import KernelConfig, features
from ntk.store import TileStore
from projnorm.runs import (
    ONE_PROCESS,
    find,
    from_sealed_json,
    keep,
    kept,
    new_record,
    record_id,
    recorded,
    save,
    sealed_json,
    sole_writer,
    write_atomically,
)
from tests.ntk.networks import images, plain_network

Told = Callable[[str], None]
COUNT = 5


@dataclass(frozen=True, slots=True)
class Writer:
    """Something that writes.

    Attributes:
        name: In the table.
        run: Does the job in a folder, telling of each thing when it is on the disk.
        there: The things that are there, each with a hash of its value; reads, and changes nothing.
        grows: Whether a file that was cut off may look like an earlier state of it.
        checked: Whether what was written is read by the project, and damage to it noticed.
    """

    name: str
    run: Callable[[Path, Told], None]
    there: Callable[[Path], Mapping[str, str]]
    grows: bool = False
    checked: bool = True


def drawn(number: int) -> np.ndarray:
    """What the thing of this number holds."""
    return np.random.default_rng(number).standard_normal((6, 5))


def _records(folder: Path, told: Told) -> None:
    for number in range(COUNT):
        if find(folder, "kind", {"number": number}) is None:
            save(_record(number), folder)
        told(str(number))


def _record(number: int):
    return new_record("kind", {"number": number}, {"a": drawn(number)}, {"a": "numbers"}, 1.0)


def _records_there(folder: Path) -> dict[str, str]:
    found = {str(n): _load(folder / record_id("kind", {"number": n})) for n in range(COUNT)}
    return {name: _hash(record.arrays["a"]) for name, record in found.items() if record is not None}


def _load(folder: Path):
    from projnorm.runs import DamagedRecordError, load, notice

    try:
        return load(folder)
    except FileNotFoundError:
        return None
    except DamagedRecordError as damage:
        notice(str(damage))
        return None


def _replaced_records(folder: Path, told: Told) -> None:
    """The same record again and again, each time with other arrays, as `--fresh` does."""
    for number in range(COUNT):
        save(new_record("kind", {}, {"a": drawn(number)}, {"a": "numbers"}, 1.0), folder)
        told(str(number))


def _replaced_records_there(folder: Path) -> dict[str, str]:
    record = _load(folder / record_id("kind", {}))
    return {} if record is None else _up_to(record.arrays["a"])


def _tasks(folder: Path, told: Told) -> None:
    recorded(
        "kind",
        {},
        root=folder,
        items=range(COUNT),
        work=_Task(told),
        assemble=lambda results: {"a": np.array([result["a"] for result in results])},
        meanings={"a": "numbers"},
        backend=ONE_PROCESS,
    )
    told(str(COUNT - 1))


@dataclass(frozen=True, slots=True)
class _Task:
    told: Told

    def __call__(self, number: int) -> dict[str, np.ndarray]:
        if number:  # the one before was written before this one is begun
            self.told(str(number - 1))
        return {"a": drawn(number)}


def _tasks_there(folder: Path) -> dict[str, str]:
    record = _load(folder / record_id("kind", {}))
    if record is not None:
        return {str(number): _hash(a) for number, a in enumerate(record.arrays["a"])}
    tasks = folder / record_id("kind", {}) / "tasks"
    found = {str(number): kept(tasks / f"{number:06d}.npz") for number in range(COUNT)}
    return {name: _hash(arrays["a"]) for name, arrays in found.items() if arrays is not None}


def _caches(folder: Path, told: Told) -> None:
    for number in range(COUNT):
        path = folder / "outputs" / f"{number}.npz"
        if kept(path) is None:
            keep(path, {"a": drawn(number)})
        told(str(number))


def _caches_there(folder: Path) -> dict[str, str]:
    found = {str(number): kept(folder / "outputs" / f"{number}.npz") for number in range(COUNT)}
    return {name: _hash(arrays["a"]) for name, arrays in found.items() if arrays is not None}


def _tiles(folder: Path, told: Told) -> None:
    with sole_writer(folder):
        store = _store(folder)
        for number in range(COUNT):
            if _tile(number) not in store:
                store.put(_tile(number), drawn(number))
            told(str(number))


def _tiles_there(folder: Path) -> dict[str, str]:
    if not folder.exists():
        return {}
    store = _store(folder)
    return {str(n): _hash(store.get(_tile(n))) for n in range(COUNT) if _tile(n) in store}


def _store(folder: Path) -> TileStore:
    return TileStore(folder, {"network": "a", "inputs": "b"})


def _tile(number: int) -> str:
    return f"{number:05d}-{0:05d}"


def _checkpoints(folder: Path, told: Told) -> None:
    """One that is replaced at every step, as in training."""
    path = folder / "network.json"
    with sole_writer(folder):
        found = load_checkpoint(path)
        for number in range(0 if found is None else found.facts["step"], COUNT):
            save_checkpoint(path, {"a": torch.from_numpy(drawn(number))}, {"step": number})
            told(str(number))


def _checkpoints_there(folder: Path) -> dict[str, str]:
    found = load_checkpoint(folder / "network.json")
    if found is None:
        return {}
    there = _up_to(found.tensors["a"].numpy())
    assert max(map(int, there)) == found.facts["step"]
    return there


def _ledger(folder: Path, told: Told) -> None:
    with sole_writer(folder):
        ledger = Ledger(folder / "ledger.jsonl")
        for number in range(COUNT):
            ledger.append([_row(number)])
            told(str(number))


def _ledger_there(folder: Path) -> dict[str, str]:
    return _rows_there(folder / "ledger.jsonl")


def _rows_there(path: Path) -> dict[str, str]:
    return {row.target: hashlib.sha256(repr(row).encode()).hexdigest() for row in Ledger(path).rows}


def _row(number: int) -> Row:
    return Row(str(number), "fog", 1, "generated", 50, 0.25, "ATC", float(drawn(number)[0, 0]))


def _replaced_rows(folder: Path, told: Told) -> None:
    write_rows(folder / "ntk.jsonl", map(_row, range(COUNT)))
    told(",".join(map(str, range(COUNT))))


def _replaced_rows_there(folder: Path) -> dict[str, str]:
    return _rows_there(folder / "ntk.jsonl")


def _descriptions(folder: Path, told: Told) -> None:
    for number in range(COUNT):
        write_atomically(folder / f"run-{number}.json", sealed_json({"config": drawn(number).tolist()}))
        told(str(number))


def _descriptions_there(folder: Path) -> dict[str, str]:
    from projnorm.runs import notice

    found = {}
    for path in folder.glob("run-*.json"):
        try:
            document = from_sealed_json(path.read_bytes(), keys=("config",))
            found[path.stem[4:]] = _hash(np.array(document["config"]))
        except (ValueError, KeyError) as damage:
            notice(f"{path}: {damage}")
    return found


def _pages(folder: Path, told: Told) -> None:
    """Figures, tables, cards and reports."""
    for number in range(COUNT):
        write_atomically(folder / f"page-{number}.html", drawn(number).tobytes())
        told(str(number))


def _pages_there(folder: Path) -> dict[str, str]:
    return {path.stem[5:]: _hash(np.frombuffer(path.read_bytes())) for path in folder.glob("page-*.html")}


def _features(folder: Path, told: Told) -> None:
    folder.mkdir(exist_ok=True)
    for number in range(2):
        config = KernelConfig(kind="coordinates", count=40, seed=number, device="cpu", checks=1)
        features(plain_network().float(), images(4).float(), config=config, out=folder / f"features-{number}.npy")
        told(str(number))


def _features_there(folder: Path) -> dict[str, str]:
    return {path.stem[9:]: _hash(np.load(path)) for path in folder.glob("features-*.npy")}


WRITERS = (
    Writer("records", _records, _records_there),
    Writer("records that replace others", _replaced_records, _replaced_records_there),
    Writer("results of tasks", _tasks, _tasks_there),
    Writer("caches: outputs, corruptions, ProjNorm", _caches, _caches_there),
    Writer("tiles of kernels", _tiles, _tiles_there),
    Writer("checkpoints", _checkpoints, _checkpoints_there),
    Writer("ledgers", _ledger, _ledger_there, grows=True),
    Writer("ledgers that are replaced", _replaced_rows, _replaced_rows_there, grows=True),
    Writer("descriptions of runs", _descriptions, _descriptions_there),
    Writer("figures, tables, pages, cards", _pages, _pages_there, checked=False),
    Writer("gradient features", _features, _features_there, checked=False),
)


def writer_named(name: str) -> Writer:
    """One of `WRITERS`."""
    return next(writer for writer in WRITERS if writer.name == name)


def _up_to(array: np.ndarray) -> dict[str, str]:
    """Of things that replace each other: this one, and those before it, which it stands for."""
    (last,) = [number for number in range(COUNT) if np.array_equal(drawn(number), array)]
    return {str(number): _hash(drawn(number)) for number in range(last + 1)}


def _hash(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
