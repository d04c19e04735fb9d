"""Faults put to writers: killed, out of space, not allowed, damaged afterwards, two at once. What is lost is counted.

A job runs in a process of its own that can be killed, forked from a server that has imported everything. It tells of
each thing it has written through a pipe. Afterwards everything told of must be there and right, nothing wrong may be
there, and the same job must go on to the end and leave nothing unfinished behind.
"""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from projnorm.runs.notices import LOGGER
from tests.reliability.writers import Writer, writer_named

ROOT = str(Path(__file__).resolve().parents[2])
_PATIENCE = 60.0
_FAILED = 3
# The largest file of any job, in bytes.
_LARGEST = 4096
_CAPABILITY_VERSION = 0x20080522


class LostError(AssertionError):
    """Something that was finished is gone, or something is there that is wrong."""


@dataclass(frozen=True, slots=True)
class Run:
    """A job that was run with a fault.

    Attributes:
        told: What it said it had written.
        code: Of its exit; negative for a signal.
    """

    told: frozenset[str]
    code: int


def killed_at_a_line(writer: Writer, folder: Path, rng: random.Random) -> None:
    """SIGKILL before a random line of the project's code that the job comes to."""
    last = _lines(writer.name)
    run = _run(writer, folder, f"line {rng.randrange(last)}")
    _require(run.code == -signal.SIGKILL, f"exit code {run.code}")
    _check_afterwards(writer, folder, run.told)


def killed_at_a_moment(writer: Writer, folder: Path, rng: random.Random) -> None:
    """SIGKILL from outside after a random time."""
    run = _run(writer, folder, "", kill_after=rng.uniform(0.0, 1.2 * _seconds(writer.name)))
    _check_afterwards(writer, folder, run.told)


def disk_full(writer: Writer, folder: Path, rng: random.Random) -> None:
    """No file may grow beyond a random size, or nothing more can be brought to the disk."""
    fault = f"size {rng.randrange(_LARGEST)}" if rng.random() < 0.5 else f"fsync {rng.randrange(8)}"
    run = _run(writer, folder, fault)
    _require(run.code in (0, _FAILED), f"exit code {run.code}: no plain error")
    _check_afterwards(writer, folder, run.told)


def read_only(writer: Writer, folder: Path, rng: random.Random) -> None:
    """The folder becomes read-only after some things were written."""
    begun = _run(writer, folder, f"line {rng.randrange(_lines(writer.name))}")
    before = writer.there(folder) if folder.exists() else {}
    folder.mkdir(exist_ok=True)
    everything = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for path in everything:
        path.chmod(0o555)
    try:
        run = _run(writer, folder, "without rights")
    finally:
        for path in everything:
            path.chmod(0o755)
    _require(run.code in (0, _FAILED), f"exit code {run.code}: no plain error")
    _require(dict(before).items() <= dict(writer.there(folder)).items(), "something is gone")
    _check_afterwards(writer, folder, begun.told)


def two_at_once(writer: Writer, folder: Path, _rng: random.Random) -> None:
    """Two processes with the same job in the same folder."""
    both = [_start(writer, folder, "") for _ in range(2)]
    runs = [_finish(*one) for one in both]
    _require(all(run.code == 0 for run in runs), f"exit codes {[run.code for run in runs]}")
    _check_afterwards(writer, folder, runs[0].told | runs[1].told)


FAULTS: Mapping[str, Callable[[Writer, Path, random.Random], None]] = {
    "SIGKILL at a random line": killed_at_a_line,
    "SIGKILL at a random moment": killed_at_a_moment,
    "disk full": disk_full,
    "read-only folder": read_only,
    "two processes at once": two_at_once,
}


def damages(data: bytes, rng: random.Random, parts: int) -> Iterator[tuple[str, bytes]]:
    """A file cut off, emptied, and with a bit changed and a range zeroed in each of so many parts of it."""
    yield "empty", b""
    for cut in sorted({1, 2, len(data) // 2, len(data) - 1, *rng.sample(range(len(data)), min(8, len(data)))}):
        if cut < len(data):
            yield f"cut to {cut}", data[:cut]
    step = max(1, len(data) // parts)
    for start in range(0, len(data), step):
        position = rng.randrange(start, min(start + step, len(data)))
        yield f"bit of byte {position}", _with(data, position, bytes([data[position] ^ (1 << rng.randrange(8))]))
        zeros = data[start : start + step]
        if any(zeros):
            yield f"bytes {start} to {start + len(zeros)} zeroed", _with(data, start, bytes(len(zeros)))
    yield "longer", data + b"\0"


def damaged_files(writer: Writer, folder: Path, rng: random.Random, *, parts: int) -> Iterator[str]:
    """Damage every file of a finished job in every way of `damages`, one at a time; yields what was tried.

    Raises:
        LostError: If damage is not noticed, not named, costs another thing, or is not mended.
    """
    with _listening() as heard:
        writer.run(folder, lambda _: None)
        whole = dict(writer.there(folder))
        _require(bool(whole), "the job wrote nothing")
        files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
        for path in files:
            data = path.read_bytes()
            for what, damaged in damages(data, rng, parts):
                saved = folder.with_name("saved")
                shutil.copytree(folder, saved)
                path.write_bytes(damaged)
                heard.clear()
                where = f"{path.name}, {what}"
                there = dict(writer.there(folder))
                _require(there.items() <= whole.items(), f"{where}: a wrong value is read")
                if there != whole and not (writer.grows and what.startswith(("cut", "empty"))):
                    _require(any(path.name.split("-")[0] in line for line in heard), f"{where}: unnamed")
                writer.run(folder, lambda _: None)
                _require(dict(writer.there(folder)) == whole, f"{where}: not mended")
                shutil.rmtree(folder)
                saved.rename(folder)
                yield where


def _check_afterwards(writer: Writer, folder: Path, told: frozenset[str]) -> None:
    """Everything told of is there, nothing is wrong, the job goes on to the end, and nothing is left over."""
    right = _undisturbed(writer.name)
    there = dict(writer.there(folder)) if folder.exists() else {}
    finished = {name for several in told for name in several.split(",")}
    _require(finished <= set(there), f"lost {sorted(finished - set(there))}")
    _require(there.items() <= right.items(), "a wrong value is read")
    writer.run(folder, lambda _: None)
    _require(dict(writer.there(folder)) == right, "it does not come to the same end")
    left = [path.name for path in folder.rglob("*.part")]
    _require(not left, f"left behind: {left}")


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise LostError(what)


def _with(data: bytes, position: int, piece: bytes) -> bytes:
    return data[:position] + piece + data[position + len(piece) :]


@contextmanager
def _listening() -> Iterator[list[str]]:
    """The lines that the library says meanwhile, and nothing of them on the screen."""
    heard: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    handler, propagate = Keep(), LOGGER.propagate
    LOGGER.addHandler(handler)
    LOGGER.propagate = False
    try:
        yield heard
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.propagate = propagate


_measured: dict[tuple[str, str], float] = {}
_ends: dict[str, dict[str, str]] = {}


def _undisturbed(name: str) -> dict[str, str]:
    """What the job leaves when nothing happens to it."""
    if name not in _ends:
        with _scratch() as folder:
            _require(_run(writer_named(name), folder, "").code == 0, "the undisturbed job fails")
            _ends[name] = dict(writer_named(name).there(folder))
    return _ends[name]


def _lines(name: str) -> int:
    """Lines of the project's code that the undisturbed job comes to."""
    if (name, "lines") not in _measured:
        with _scratch() as folder:
            told = _run(writer_named(name), folder, "count").told
            _measured[name, "lines"] = next(int(one[6:]) for one in told if one.startswith("lines "))
    return int(_measured[name, "lines"])


def _seconds(name: str) -> float:
    if (name, "seconds") not in _measured:
        with _scratch() as folder:
            start = time.monotonic()
            _run(writer_named(name), folder, "")
            _measured[name, "seconds"] = time.monotonic() - start
    return _measured[name, "seconds"]


@contextmanager
def _scratch() -> Iterator[Path]:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="projnorm-faults-") as folder:
        yield Path(folder) / "job"


def _server() -> multiprocessing.context.ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.reliability.faults"])
    return context


def _run(writer: Writer, folder: Path, fault: str, *, kill_after: float | None = None) -> Run:
    started = _start(writer, folder, fault)
    if kill_after is not None:
        started[0].join(kill_after)
        started[0].kill()
    return _finish(*started)


def _start(writer: Writer, folder: Path, fault: str):
    context = _server()
    reading, writing = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(writer.name, folder, fault, writing))
    process.start()
    writing.close()
    return process, reading


def _finish(process, reading: Connection) -> Run:
    told = set()
    while True:
        assert reading.poll(_PATIENCE), "the job hangs"
        try:
            told.add(reading.recv_bytes().decode())
        except EOFError:
            break
    process.join(_PATIENCE)
    assert process.exitcode is not None, "the job hangs"
    return Run(frozenset(told), process.exitcode)


def _child(name: str, folder: Path, fault: str, telling: Connection) -> None:
    kind, _, amount = fault.partition(" ")
    if kind == "size":
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(amount), int(amount)))
    elif kind == "fsync":
        _fail_fsync(int(amount))
    elif kind == "without":
        _drop_rights()
    lines = _Lines(int(amount) if kind == "line" else None)
    if kind in ("line", "count"):
        sys.settrace(lines.trace)
    try:
        writer_named(name).run(folder, lambda what: telling.send_bytes(what.encode()))
    except OSError:
        sys.settrace(None)
        os._exit(_FAILED)
    sys.settrace(None)
    if kind == "count":
        telling.send_bytes(f"lines {lines.seen}".encode())
    elif kind == "line":  # fewer lines than in the measured job; the end is as good a point as any
        os.kill(os.getpid(), signal.SIGKILL)


class _Lines:
    """Counts the lines of the project's own code, and dies before a given one."""

    def __init__(self, deadly: int | None) -> None:
        self.seen = 0
        self._deadly = deadly

    def trace(self, frame, event: str, _argument):
        if not frame.f_code.co_filename.startswith(ROOT):
            return None
        if event == "line":
            if self.seen == self._deadly:
                os.kill(os.getpid(), signal.SIGKILL)
            self.seen += 1
        return self.trace


def _fail_fsync(number: int) -> None:
    real, count = os.fsync, iter(range(10**6))

    def fsync(handle: int) -> None:
        if next(count) >= number:
            raise OSError(28, "No space left on device")
        real(handle)

    os.fsync = fsync


def _drop_rights() -> None:
    """Of the administrator, who may write anywhere; for anybody else this changes nothing."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    none = (ctypes.c_uint32 * 6)()
    if libc.capset(header, none) != 0 and os.geteuid() == 0:
        raise AssertionError(f"cannot give up the rights of the administrator: {os.strerror(ctypes.get_errno())}")
