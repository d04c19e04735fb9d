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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

from tests.reliability.confined import ROOT
from tests.reliability.writers import WRITERS, Writer

DAMAGE = "damaged files"
_PATIENCE = 60.0
# Exit code of a job that ends with an OSError.
_FAILED = 3
# Size of the largest file of any job, in bytes.
_LARGEST = 2048
_CAPABILITY_VERSION = 0x20080522


class LostError(AssertionError):
    """Something that was finished is gone, or something is there that is wrong."""


def killed_at_a_line(writer: Writer, folder: Path, rng: random.Random) -> None:
    """SIGKILL before a random line of the project's code that the job comes to."""
    told, code = _run(writer.name, folder, f"line {rng.randrange(_measured(writer.name)[1])}")
    _require(code == -signal.SIGKILL, f"exit code {code}")
    _check_afterwards(writer, folder, told)


def killed_at_a_moment(writer: Writer, folder: Path, rng: random.Random) -> None:
    """SIGKILL from outside after a random time."""
    told, _ = _run(writer.name, folder, kill_after=rng.uniform(0.0, 1.2 * _measured(writer.name)[2]))
    _check_afterwards(writer, folder, told)


def disk_full(writer: Writer, folder: Path, rng: random.Random) -> None:
    """No file may grow beyond a random size, or nothing more can be brought to the disk."""
    fault = f"size {rng.randrange(_LARGEST)}" if rng.random() < 0.5 else f"fsync {rng.randrange(8)}"
    told, code = _run(writer.name, folder, fault)
    _require(code in (0, _FAILED), f"exit code {code}: no plain error")
    _check_afterwards(writer, folder, told)


def read_only(writer: Writer, folder: Path, rng: random.Random) -> None:
    """The folder becomes read-only after some things were written."""
    begun, _ = _run(writer.name, folder, f"line {rng.randrange(_measured(writer.name)[1])}")
    before = dict(writer.there(folder)) if folder.exists() else {}
    folder.mkdir(exist_ok=True)
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for path in folders:
        path.chmod(0o555)
    try:
        _, code = _run(writer.name, folder, "without rights")
    finally:
        for path in folders:
            path.chmod(0o755)
    _require(code in (0, _FAILED), f"exit code {code}: no plain error")
    _require(before.items() <= dict(writer.there(folder)).items(), "something is gone")
    _check_afterwards(writer, folder, begun)


def two_at_once(writer: Writer, folder: Path, _rng: random.Random) -> None:
    """Two processes with the same job in the same folder."""
    runs = [_finish(*started) for started in [_start(writer.name, folder, "") for _ in range(2)]]
    _require(all(code == 0 for _, code in runs), f"exit codes {[code for _, code in runs]}")
    _check_afterwards(writer, folder, runs[0][0] | runs[1][0])


FAULTS: dict[str, Callable[[Writer, Path, random.Random], None]] = {
    "SIGKILL at a random line": killed_at_a_line,
    "SIGKILL at a random moment": killed_at_a_moment,
    "disk full": disk_full,
    "read-only folder": read_only,
    "two processes at once": two_at_once,
}


def put_fault(fault: str, writer: Writer, seed: int) -> None:
    """Put a fault to a writer in a new folder.

    Raises:
        LostError: If something is lost.
    """
    with _scratch() as folder:
        FAULTS[fault](writer, folder, random.Random(seed))


def damages(data: bytes, rng: random.Random, parts: int) -> Iterator[tuple[str, bytes]]:
    """A file cut off, emptied, lengthened, and with a bit changed and a range zeroed in each of so many parts of it."""
    yield "empty", b""
    yield "longer", data + b"\0"
    for cut in sorted({1, 2, len(data) // 2, len(data) - 1, *rng.sample(range(len(data)), min(8, len(data)))}):
        if cut < len(data):
            yield f"cut to {cut}", data[:cut]
    step = max(1, len(data) // parts)
    for start in range(0, len(data), step):
        part = data[start : start + step]
        at = start + rng.randrange(len(part))
        yield f"bit of byte {at}", data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        if any(part):
            yield f"{len(part)} bytes at {start} zeroed", data[:start] + bytes(len(part)) + data[start + len(part) :]


def damaged_files(writer: Writer, folder: Path, rng: random.Random, *, parts: int) -> Iterator[str]:
    """Damage every file of a finished job in every way of `damages`, one at a time; yields what was tried.

    Raises:
        LostError: If damage is not detected, not reported, costs another thing, or is not recomputed.
    """
    with _listening() as heard:
        writer.run(folder, lambda _: None)
        whole = dict(writer.there(folder))
        _require(bool(whole), "the job wrote nothing")
        hidden = (path for path in folder.rglob("*") if path.is_file())
        for path in sorted(path for path in hidden if "/." not in str(path.relative_to(folder.parent))):
            for what, damaged in damages(path.read_bytes(), rng, parts):
                saved = folder.with_name("saved")
                shutil.copytree(folder, saved)
                path.write_bytes(damaged)
                heard.clear()
                where = f"{path.name}, {what}"
                there = dict(writer.there(folder))
                _require(there.items() <= whole.items(), f"{where}: a wrong value is read")
                named = any(f"/{path.stem.split('-')[0]}" in line for line in heard)
                _require(there == whole or named, f"{where}: not reported")
                writer.run(folder, lambda _: None)
                _require(dict(writer.there(folder)) == whole, f"{where}: not recomputed")
                shutil.rmtree(folder)
                saved.rename(folder)
                yield where


def _check_afterwards(writer: Writer, folder: Path, told: set[str]) -> None:
    """Everything told of is there, nothing is wrong, the job goes on to the end, and nothing is left over."""
    right = _measured(writer.name)[0]
    there = dict(writer.there(folder)) if folder.exists() else {}
    _require(told <= set(there), f"lost {sorted(told - set(there))}")
    _require(there.items() <= right.items(), "a wrong value is read")
    writer.run(folder, lambda _: None)
    _require(dict(writer.there(folder)) == right, "it does not come to the same end")
    left = [path.name for path in folder.rglob("*.part")]
    _require(not left, f"left behind: {left}")


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise LostError(what)


@contextmanager
def _listening() -> Iterator[list[str]]:
    """The lines that the library logs meanwhile, and nothing of them on the screen."""
    heard: list[str] = []
    handler, logger = logging.Handler(), logging.getLogger("projnorm")
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield heard
    finally:
        logger.removeHandler(handler)
        logger.propagate = True


@cache
def _measured(name: str) -> tuple[dict[str, str], int, float]:
    """What the undisturbed job leaves, how many lines of the project's code it comes to, and how long it takes."""
    with _scratch() as folder:
        told, _ = _run(name, folder, "count")
    with _scratch() as folder:
        start = time.monotonic()
        _require(_run(name, folder)[1] == 0, "the undisturbed job fails")
        seconds = time.monotonic() - start
        right = dict(WRITERS[name].there(folder))
    return right, next(int(one[6:]) for one in told if one.startswith("lines ")), seconds


@contextmanager
def _scratch() -> Iterator[Path]:
    with TemporaryDirectory(prefix="projnorm-faults-") as folder:
        yield Path(folder) / "job"


def _run(name: str, folder: Path, fault: str = "", *, kill_after: float | None = None) -> tuple[set[str], int]:
    """Run a job with a fault: what it told of, and its exit code, which is negative for a signal."""
    process, reading = _start(name, folder, fault)
    if kill_after is not None:
        process.join(kill_after)
        process.kill()
    return _finish(process, reading)


def _start(name: str, folder: Path, fault: str) -> tuple[Any, Connection]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.reliability.faults"])
    reading, writing = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(name, folder, fault, writing))
    process.start()
    writing.close()
    return process, reading


def _finish(process: Any, reading: Connection) -> tuple[set[str], int]:
    told = set()
    while True:
        assert reading.poll(_PATIENCE), "the job hangs"
        try:
            told.add(reading.recv_bytes().decode())
        except EOFError:
            break
    process.join(_PATIENCE)
    assert process.exitcode is not None, "the job hangs"
    return told, process.exitcode


def _child(name: str, folder: Path, fault: str, telling: Connection) -> None:
    kind, _, amount = fault.partition(" ")
    logging.getLogger("projnorm").propagate = False
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
        WRITERS[name].run(folder, lambda what: telling.send_bytes(what.encode()))
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

    def trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(str(ROOT)):
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
    """Give up those of the administrator, who may write anywhere; for anybody else this changes nothing."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    if libc.capset(header, (ctypes.c_uint32 * 6)()) != 0 and os.geteuid() == 0:
        raise AssertionError(f"cannot give up the rights of the administrator: {os.strerror(ctypes.get_errno())}")
