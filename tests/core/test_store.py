"""Entries of the store are whole or not there; damage of any kind is detected, and nothing is lost with it."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import numpy as np
import pytest

from projnorm.core.arrays import from_npz, to_npz
from projnorm.core.atomic import write_atomically
from projnorm.core.errors import InputError
from projnorm.core.store import Entry, Store, digest

ARRAYS = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([True, False])}
FACTS = {"n": 3, "nested": {"lr": 0.001, "names": ["x", None]}}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def full_disk(monkeypatch):
    def fail(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    return lambda: monkeypatch.setattr("os.fsync", fail)


def assert_whole(entry: Entry | None) -> None:
    assert entry is not None
    assert entry.facts == FACTS
    assert list(entry.arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(entry.arrays[name], array)


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "new" / "file.bin"
    write_atomically(path, b"first")
    write_atomically(path, b"second")
    assert path.read_bytes() == b"second"
    assert [p.name for p in path.parent.iterdir()] == ["file.bin"]
    plain = tmp_path / "plain"
    plain.touch()
    assert path.stat().st_mode == plain.stat().st_mode


def test_a_failed_write_names_the_file_and_leaves_the_earlier_one_and_no_litter(tmp_path, store, full_disk):
    path = tmp_path / "file.bin"
    write_atomically(path, b"old")
    store.put("one", ARRAYS, FACTS)
    full_disk()
    with pytest.raises(OSError, match=r"No space left.*file\.bin"):
        write_atomically(path, b"new")
    with pytest.raises(OSError, match="No space left"):
        store.put("one", {"a": np.zeros(9)})
    assert path.read_bytes() == b"old"
    assert {p.name for p in tmp_path.iterdir()} == {"file.bin", "store"}
    assert_whole(store.get("one"))


def test_equal_arrays_give_equal_bytes_and_come_back(tmp_path):
    data = to_npz(ARRAYS)
    time.sleep(1.1)
    assert to_npz(ARRAYS) == data
    assert list(from_npz(data)) == ["a", "b"]
    path = tmp_path / "plain.npz"
    path.write_bytes(data)
    with np.load(path) as archive:
        np.testing.assert_array_equal(archive["b"], ARRAYS["b"])


@pytest.mark.parametrize("compress", [True, False])
def test_an_entry_comes_back_as_it_was(store, compress):
    assert store.get("group/one") is None
    store.put("group/one", ARRAYS, FACTS, compress=compress)
    assert_whole(store.get("group/one"))
    assert (store.facts("group/one"), store.keys("group/")) == (FACTS, ["group/one"])
    assert "group/one" in store
    store.remove("group/one")
    assert store.get("group/one") is None
    assert not list(store.folder.rglob("*.npz"))


def test_a_pipe_in_the_place_of_an_entry_is_refused_and_never_waited_for(store):
    store.folder.mkdir()
    os.mkfifo(store.path("one"))
    with pytest.raises(InputError, match="is a pipe or a device"):
        store.get("one")


def test_facts_alone_and_arrays_alone_are_entries_and_replaced_without_touching_others(store):
    store.put("one", facts=FACTS)
    assert store.get("one").arrays == {}
    store.put("one", ARRAYS)
    assert store.get("one").facts == {}
    store.put("one-two", {"c": np.zeros(2)})
    store.put("one", {"d": np.ones(1)})
    assert list(store.get("one").arrays) == ["d"]
    assert len(list(store.folder.glob("*.npz"))) == 2, "none of the old arrays"
    store.remove("one")
    assert list(store.get("one-two").arrays) == ["c"]


@pytest.mark.parametrize("which", ["json", "npz"])
def test_an_entry_with_any_byte_changed_or_cut_off_is_absent_or_the_same(store, which, caplog):
    store.put("one", ARRAYS, FACTS)
    (path,) = store.folder.glob(f"*.{which}")
    whole = path.read_bytes()
    detected, positions = 0, range(0, len(whole), 1 if which == "json" else 3)
    for position in positions:
        for damaged in (whole[:position], whole[:position] + bytes([whole[position] ^ 16]) + whole[position + 1 :]):
            path.write_bytes(damaged)
            entry = store.get("one")
            detected += entry is None
            if entry is not None:  # a space inside the JSON, or its end
                assert_whole(entry)
    assert detected > 1.9 * len(positions)
    assert "is damaged" in caplog.text
    path.write_bytes(whole)
    assert_whole(store.get("one"))


def test_damaged_files_are_set_aside_when_the_entry_is_computed_again(store, caplog):
    store.put("one", ARRAYS, FACTS)
    (arrays,) = store.folder.glob("*.npz")
    broken = arrays.read_bytes()[:-7]
    arrays.write_bytes(broken)
    for again in (store.get_or_compute("one", lambda: Entry(ARRAYS, FACTS)), store.get("one")):
        assert_whole(again)
    assert (store.folder / "damaged" / arrays.name).read_bytes() == broken
    assert f"{arrays.name} is damaged, its checksum differs" in caplog.text


def test_what_is_there_is_not_computed_unless_fresh(store):
    def compute() -> Entry:
        calls.append(1)
        return Entry(ARRAYS, FACTS)

    calls: list[int] = []
    for fresh, count in ((False, 1), (False, 1), (True, 2)):
        assert_whole(store.get_or_compute("one", compute, fresh=fresh))
        assert len(calls) == count


def _slowly(folder: Path) -> None:
    def compute() -> Entry:
        with (folder / "count").open("a") as file:
            file.write("x")
        time.sleep(0.5)
        return Entry(ARRAYS, FACTS)

    Store(folder).get_or_compute("one", compute)


@pytest.mark.slow
def test_of_several_processes_one_computes(store):
    store.folder.mkdir()
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        pool.map(_slowly, [store.folder] * 3)
    assert (store.folder / "count").read_text() == "x"


def test_a_digest_depends_on_the_values_and_not_on_their_order():
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 3})
    assert len(digest({})) == 12
