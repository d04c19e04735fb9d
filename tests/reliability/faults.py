"""Faults put to writers: killed, out of space, not allowed, damaged afterwards, two at once. What is lost is counted.

A job runs in a process of its own, forked from a server that has imported everything, in which the fault happens before
some line of the project's code. It tells of each thing it has written through a pipe. Afterwards everything told of
must be there and right, nothing wrong may be there, and the same job must go on to the end and leave nothing unfinished
behind.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

from tests.reliability.confined import ROOT
from tests.reliability.writers import WRITERS, Writer

KILL, TWO, DAMAGE = "SIGKILL before a line", "two processes at once", "damaged files"
_PATIENCE = 60.0
# Exit code of a job that ends with an OSError.
_FAILED = 3
# Size of the largest file of any job in bytes, and the longest time of any in seconds.
_LARGEST, _LONGEST = 2048, 0.1
_CAPABILITY_VERSION = 0x20080522


class LostError(AssertionError):
    """Something that was finished is gone, or something is there that is wrong."""


def _killed(_folder: Path, _rng: random.Random) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _killed_later(folder: Path, rng: random.Random) -> None:
    """At a moment that has nothing to do with lines."""
    timer = threading.Timer(rng.uniform(0.0, _LONGEST), _killed, (folder, rng))
    timer.daemon = True
    timer.start()


def _disk_full(_folder: Path, rng: random.Random) -> None:
    """No file may grow beyond a random size, or nothing more can be brought to the disk."""
    if rng.random() < 0.5:
        resource.setrlimit(resource.RLIMIT_FSIZE, (rng.randrange(_LARGEST),) * 2)
    else:
        os.fsync = _no_space


def _no_space(_handle: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _read_only(folder: Path, _rng: random.Random) -> None:
    """The folder's rights are taken away, and those of the administrator, who may write anywhere, are given up."""
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            path.chmod(0o555)
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    if libc.capset(header, (ctypes.c_uint32 * 6)()) != 0 and os.geteuid() == 0:
        raise AssertionError(f"cannot give up the rights of the administrator: {os.strerror(ctypes.get_errno())}")


# What happens in the process before some line, and how the job may then end.
FAULTS: dict[str, tuple[Callable[[Path, random.Random], None], tuple[int, ...]]] = {
    KILL: (_killed, (-signal.SIGKILL,)),
    "SIGKILL at a random moment": (_killed_later, (0, -signal.SIGKILL)),
    "disk full": (_disk_full, (0, _FAILED)),
    "read-only folder": (_read_only, (0, _FAILED)),
    TWO: (lambda *_: None, (0,)),
}


def put_fault(fault: str, writer: Writer, trial: int) -> None:
    """Put a fault to a writer in a new folder, each trial before another line of the code; raises `LostError`."""
    right, moments = undisturbed(writer.name)
    moment = moments[trial % len(moments)]
    with _scratch() as folder:
        started = [_start(writer.name, folder, fault, trial, moment) for _ in range(2 if fault == TWO else 1)]
        ended = [_finish(*one) for one in started]
        for path in folder.rglob("*") if folder.exists() else ():
            path.chmod(0o755)
        codes = [code for _, code in ended]
        _require(all(code in FAULTS[fault][1] for code in codes), f"exit codes {codes}")
        told = set().union(*(told for told, _ in ended))
        there = dict(writer.there(folder)) if folder.exists() else {}
        _require(told <= set(there), f"lost {sorted(told - set(there))}")
        _require(there.items() <= right.items(), "a wrong value is read")
        writer.run(folder, lambda _: None)
        _require(dict(writer.there(folder)) == right, "it does not come to the same end")
        left = [path.name for path in folder.rglob("*.part")]
        _require(not left, f"left behind: {left}")


def damages(data: bytes, rng: random.Random, parts: int) -> Iterator[tuple[str, bytes]]:
    """A file cut off, emptied, lengthened, and with a bit changed and a range zeroed in each of its parts."""
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

    A `LostError` says that damage is not detected, not reported, costs another thing, or is not recomputed.
    """
    with _listening() as heard:
        writer.run(folder, lambda _: None)
        whole = dict(writer.there(folder))
        _require(bool(whole), "the job wrote nothing")
        files = (path for path in folder.rglob("*") if path.is_file())
        for path in sorted(path for path in files if "/." not in str(path.relative_to(folder.parent))):
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
def undisturbed(name: str) -> tuple[dict[str, str], tuple[int, ...]]:
    """What the job leaves when nothing happens to it, and when it comes to each line once, in any order."""
    with _scratch() as folder:
        told, code = _finish(*_start(name, folder, TWO, 0, None))
        _require(code == 0, "the undisturbed job fails")
        moments = next(one for one in told if one.startswith("moments "))
        return dict(WRITERS[name].there(folder)), tuple(map(int, moments.split()[1:]))


@contextmanager
def _scratch() -> Iterator[Path]:
    with TemporaryDirectory(prefix="projnorm-faults-") as folder:
        yield Path(folder) / "job"


def _start(name: str, folder: Path, fault: str, seed: int, moment: int | None) -> tuple[Any, Connection]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.reliability.faults"])
    reading, writing = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(name, folder, fault, seed, moment, writing))
    process.start()
    writing.close()
    return process, reading


def _finish(process: Any, reading: Connection) -> tuple[set[str], int]:
    """What the job told of, and its exit code, which is negative for a signal."""
    told = set()
    with suppress(EOFError):
        while True:
            assert reading.poll(_PATIENCE), "the job hangs"
            told.add(reading.recv_bytes().decode())
    process.join(_PATIENCE)
    assert process.exitcode is not None, "the job hangs"
    return told, process.exitcode


def _child(name: str, folder: Path, fault: str, seed: int, moment: int | None, telling: Connection) -> None:
    """Do the job, with the fault after a number of lines; without a moment, tell when each line was come to."""
    rng = random.Random(seed)
    logging.getLogger("projnorm").propagate = False
    lines: dict[tuple[str, int], list[int]] = {}
    done = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal done
        if not frame.f_code.co_filename.startswith(str(ROOT)) or (moment is not None and done > moment):
            return None
        if event == "line":
            if done == moment:
                FAULTS[fault][0](folder, rng)
            if moment is None:
                lines.setdefault((frame.f_code.co_filename, frame.f_lineno), []).append(done)
            done += 1
        return trace

    sys.settrace(trace)
    try:
        WRITERS[name].run(folder, lambda what: telling.send_bytes(what.encode()))
    except OSError:
        os._exit(_FAILED)
    finally:
        sys.settrace(None)
    if moment is None:
        chosen = [rng.choice(moments) for moments in lines.values()]
        rng.shuffle(chosen)
        telling.send_bytes(f"moments {' '.join(map(str, chosen))}".encode())
    elif done <= moment:  # fewer lines than in the undisturbed job; the end is as good a point as any
        FAULTS[fault][0](folder, rng)
