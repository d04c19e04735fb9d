"""Records are whole or not there, tasks resume where they stopped, and damage is noticed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from projnorm.runs import (
    Backend,
    DamagedRecordError,
    current_environment,
    find,
    from_npz,
    keep,
    listing,
    load,
    record_id,
    recorded,
    run_tasks,
    save,
    sealed_json,
    to_npz,
    write_atomically,
)
from projnorm.runs.record import new_record

ARRAYS = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([True, False])}
MEANINGS = {"a": "some numbers", "b": "some flags"}


def a_record(**changes):
    return new_record("toy", {"n": 3, "sigmas": [0.0, 1.0], **changes}, ARRAYS, MEANINGS, 1.5)


def square(item: int) -> dict[str, np.ndarray]:
    return {"value": np.array(item**2), "threads": np.array([pool["num_threads"] for pool in threadpool_info()])}


def counting_square(counter: Path, item: int) -> dict[str, np.ndarray]:
    with counter.open("a") as file:
        file.write(f"{item}\n")
    return square(item)


def values(results) -> dict[str, np.ndarray]:
    return {"value": np.array([result["value"] for result in results])}


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "new" / "file.bin"
    write_atomically(path, b"first")
    write_atomically(path, b"second")
    assert path.read_bytes() == b"second"
    assert [p.name for p in path.parent.iterdir()] == ["file.bin"]
    plain = tmp_path / "plain"
    plain.touch()
    assert path.stat().st_mode == plain.stat().st_mode


@pytest.fixture
def full_disk(monkeypatch):
    def fail(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path, request):
    path = tmp_path / "file.bin"
    write_atomically(path, b"old")
    request.getfixturevalue("full_disk")
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file.bin"]


def test_the_environment_is_plain_data_without_paths():
    text = json.dumps(asdict(current_environment()))
    assert str(Path.home()) not in text
    assert str(Path.cwd()) not in text
    assert current_environment().cores >= 1
    assert "numpy" in current_environment().libraries


def test_equal_arrays_give_equal_bytes_and_come_back(tmp_path):
    data = to_npz(ARRAYS)
    time.sleep(1.1)
    assert to_npz(ARRAYS) == data
    back = from_npz(data)
    assert list(back) == ["a", "b"]
    np.testing.assert_array_equal(back["a"], ARRAYS["a"])
    path = tmp_path / "plain.npz"
    path.write_bytes(data)
    with np.load(path) as archive:
        np.testing.assert_array_equal(archive["b"], ARRAYS["b"])


@pytest.mark.parametrize("cut", [0, 1, 10, -20, -1])
def test_truncated_arrays_are_refused(cut):
    with pytest.raises(ValueError, match="not a whole NPZ"):
        from_npz(to_npz(ARRAYS)[:cut])


def test_pickled_arrays_are_refused(tmp_path):
    path = tmp_path / "evil.npz"
    np.savez(path, a=np.array([{"x": 1}], dtype=object))
    with pytest.raises(ValueError, match="not a whole NPZ"):
        from_npz(path.read_bytes())


def test_a_record_comes_back_as_it_was(tmp_path):
    record = a_record()
    folder = save(record, tmp_path)
    assert folder == tmp_path / record.id
    back = load(folder)
    assert (back.kind, back.config, back.wall_seconds) == (record.kind, record.config, 1.5)
    assert back.meanings == MEANINGS
    assert back.id == record.id
    np.testing.assert_array_equal(back.arrays["a"], ARRAYS["a"])
    assert find(tmp_path, "toy", record.config).created == record.created
    assert find(tmp_path, "toy", {"n": 4}) is None


def test_the_name_of_a_record_depends_on_the_question_alone():
    assert record_id("toy", {"a": 1, "b": 2}) == record_id("toy", {"b": 2, "a": 1})
    assert record_id("toy", {"a": 1}) != record_id("toy", {"a": 2})
    assert record_id("toy", {"a": 1}) != record_id("bound", {"a": 1})


def test_another_version_is_another_question(tmp_path, monkeypatch):
    folder = save(a_record(), tmp_path)
    monkeypatch.setattr("projnorm.runs.record.__version__", "99.0")
    assert find(tmp_path, "toy", a_record().config) is None
    assert load(folder).id == folder.name == next(listing(tmp_path)).id


def test_every_array_needs_a_meaning():
    with pytest.raises(ValueError, match="must describe every array; these differ: b"):
        new_record("toy", {}, ARRAYS, {"a": "x"}, 0.0)


def test_a_failed_save_keeps_the_earlier_record(tmp_path, request):
    save(a_record(), tmp_path)
    request.getfixturevalue("full_disk")
    with pytest.raises(OSError, match="No space left"):
        save(new_record("toy", a_record().config, {"a": np.zeros(9)}, {"a": "new"}, 2.0), tmp_path)
    np.testing.assert_array_equal(load(tmp_path / a_record().id).arrays["a"], ARRAYS["a"])


def test_saving_again_replaces_the_arrays_and_leaves_no_old_ones(tmp_path):
    save(a_record(), tmp_path)
    folder = save(new_record("toy", a_record().config, {"a": np.zeros(9)}, {"a": "new"}, 2.0), tmp_path)
    assert load(folder).arrays["a"].shape == (9,)
    assert len(list(folder.glob("*.npz"))) == 1


DAMAGE = {
    "arrays truncated": lambda folder: _edit(next(folder.glob("*.npz")), lambda data: data[:-7]),
    "one bit of the arrays": lambda folder: _edit(
        next(folder.glob("*.npz")), lambda data: data[:50] + b"\0" + data[51:]
    ),
    "arrays gone": lambda folder: next(folder.glob("*.npz")).unlink(),
    "JSON truncated": lambda folder: _edit(folder / "record.json", lambda data: data[:100]),
    "JSON empty": lambda folder: _edit(folder / "record.json", lambda _: b""),
    "other JSON": lambda folder: _edit(folder / "record.json", lambda _: b"[1, 2]"),
    "other facts": lambda folder: _edit(
        folder / "record.json", lambda data: data.replace(b'"created": "2', b'"created": "1')
    ),
    "no seal": lambda folder: _edit(folder / "record.json", lambda data: data.replace(b'"seal"', b'"sear"')),
    "another configuration": lambda folder: _edit(
        folder / "record.json", lambda data: data.replace(b'"n": 2', b'"n": 3')
    ),
    "a wrong type": lambda folder: _edit(
        folder / "record.json", lambda data: data.replace(b'"wall_seconds": ', b'"wall_seconds": null, "x": ')
    ),
    "arrays not described": lambda folder: _edit(
        folder / "record.json", lambda data: data.replace(b'"meaning"', b'"meaming"')
    ),
    "not text": lambda folder: _edit(folder / "record.json", lambda _: b"\xff\xfe\x00"),
}


def _edit(path: Path, change) -> None:
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_record_is_named_set_aside_and_computed_again(tmp_path, damage, caplog):
    run = partial(
        recorded,
        "toy",
        {"n": 2},
        root=tmp_path,
        items=[1, 2],
        work=square,
        assemble=values,
        meanings={"value": "squares"},
        backend=Backend(1),
    )
    folder = tmp_path / run().id
    DAMAGE[damage](folder)
    broken = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}
    with pytest.raises(DamagedRecordError, match=folder.name) as caught:
        load(folder)
    assert "\n" not in str(caught.value)
    (entry,) = listing(tmp_path)
    assert entry.problem
    np.testing.assert_array_equal(run().arrays["value"], [1, 4])
    assert "record.json" in caplog.text or "arrays-" in caplog.text
    assert {path.name: path.read_bytes() for path in (folder / "damaged").iterdir()} == broken
    assert not next(listing(tmp_path)).problem


def test_a_record_of_another_format_is_refused_and_left_alone(tmp_path):
    folder = save(a_record(), tmp_path)
    document = json.loads((folder / "record.json").read_bytes())
    del document["seal"]
    (folder / "record.json").write_bytes(sealed_json({**document, "format": 99, "more": "of a later version"}))
    before = (folder / "record.json").read_bytes()
    with pytest.raises(ValueError, match="has format 99, this version reads 1"):
        find(tmp_path, "toy", a_record().config)
    assert (folder / "record.json").read_bytes() == before


def test_a_finished_record_is_read_not_computed(tmp_path):
    counter = tmp_path / "count"
    run = partial(
        recorded,
        "toy",
        {"n": 2},
        root=tmp_path,
        items=[1, 2],
        work=partial(counting_square, counter),
        assemble=values,
        meanings={"value": "squares"},
        backend=Backend(1),
    )
    first = run()
    assert run().created == first.created
    assert counter.read_text() == "1\n2\n"
    run(fresh=True)
    assert counter.read_text() == "1\n2\n" * 2
    assert not (tmp_path / first.id / "tasks").exists()


def test_a_record_under_another_name_is_refused(tmp_path):
    folder = save(a_record(), tmp_path)
    other = tmp_path / record_id("toy", {"n": 99})
    folder.rename(other)
    with pytest.raises(DamagedRecordError, match="does not belong to this folder"):
        load(other)
    assert find(tmp_path, "toy", {"n": 99}) is None


def test_arrays_are_in_place_before_the_record_names_them(tmp_path, monkeypatch):
    save(a_record(), tmp_path)
    written: list[str] = []

    def only_once(path: Path, data: bytes) -> None:
        if written:
            raise OSError(28, "No space left on device")
        written.append(path.name)
        write_atomically(path, data)

    monkeypatch.setattr("projnorm.runs.record.write_atomically", only_once)
    with pytest.raises(OSError, match="No space left"):
        save(new_record("toy", a_record().config, {"a": np.zeros(9)}, {"a": "new"}, 2.0), tmp_path)
    np.testing.assert_array_equal(load(tmp_path / a_record().id).arrays["a"], ARRAYS["a"])


def test_fresh_does_not_trust_the_tasks_of_an_interrupted_run(tmp_path):
    tasks = tmp_path / record_id("toy", {"n": 1}) / "tasks"
    keep(tasks / "000000.npz", {"value": np.array(-1)})
    run = partial(
        recorded,
        "toy",
        {"n": 1},
        root=tmp_path,
        items=[3],
        work=square,
        assemble=values,
        meanings={"value": "squares"},
        backend=Backend(1),
    )
    assert run(fresh=True).arrays["value"] == [9]


def test_tasks_resume_and_a_damaged_one_is_named_and_done_again(tmp_path, caplog):
    counter = tmp_path / "count"
    folder = tmp_path / "tasks"
    work = partial(counting_square, counter)
    run_tasks(work, [1, 2, 3], folder=folder, backend=Backend(1), description="test")
    (folder / "000001.npz").write_bytes(b"half a fi")
    results = run_tasks(work, [1, 2, 3, 4], folder=folder, backend=Backend(1), description="test")
    assert [int(result["value"]) for result in results] == [1, 4, 9, 16]
    assert counter.read_text().split() == ["1", "2", "3", "2", "4"]
    assert "000001.npz is damaged" in caplog.text


@pytest.mark.parametrize("workers", [1, 2])
def test_every_task_has_one_thread(tmp_path, workers):
    for result in run_tasks(square, [1, 2, 3], folder=tmp_path / "t", backend=Backend(workers), description="test"):
        assert set(result["threads"].tolist()) <= {1}


def test_the_number_of_workers_must_be_positive(tmp_path):
    with pytest.raises(ValueError, match="`workers` must be at least 1; got 0"):
        run_tasks(square, [1], folder=tmp_path, backend=Backend(0), description="test")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_killed_sweep_resumes_to_the_same_record(tmp_path, workers):
    """SIGKILL in the middle of `projnorm toy`, then the same command: the arrays of an undisturbed run."""
    sizes = ["--d1", "200", "--d2", "100", "--n", "100", "--m", "100", "--trials", "24", "--interval-trials", "24"]
    command = [sys.executable, "-m", "projnorm", "toy", *sizes, "--workers", workers, "--out"]
    process = subprocess.Popen([*command, str(tmp_path / "killed")], start_new_session=True)
    tasks = tmp_path / "killed" / "runs"
    deadline = time.monotonic() + 120
    while len(list(tasks.glob("*/tasks/*.npz"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = len(list(tasks.glob("*/tasks/*.npz")))
    assert 3 <= done < 24, "killed in the middle"
    assert not list(tasks.glob("*/record.json"))
    for name in ("killed", "undisturbed"):
        subprocess.run([*command, str(tmp_path / name)], check=True, capture_output=True)
    (killed,), (undisturbed,) = (list((tmp_path / name / "runs").iterdir()) for name in ("killed", "undisturbed"))
    assert killed.name == undisturbed.name
    (a,), (b,) = killed.glob("*.npz"), undisturbed.glob("*.npz")
    assert a.read_bytes() == b.read_bytes()


def test_facts_travel_with_a_record_and_older_records_have_none(tmp_path):
    record = new_record("kind", {"a": 1}, ARRAYS, MEANINGS, 1.0, {"device": "cpu"})
    folder = save(record, tmp_path)
    assert load(folder).facts == {"device": "cpu"}
    document = json.loads((folder / "record.json").read_text())
    del document["facts"], document["seal"]
    (folder / "record.json").write_text(json.dumps(document))
    assert load(folder).facts == {}
