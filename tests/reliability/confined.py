"""Hostile inputs are read in a process that may use little memory and time, write nothing and start nothing.

`examine` starts the process and goes on with the next reader where an input ended it. The process is this module: the
task comes as JSON on stdin, and a line of JSON for each reader goes to stdout.
"""

from __future__ import annotations

import faulthandler
import hashlib
import importlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_CEILING = 50_000_000
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_FORBIDDEN = (
    "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "os.remove", "os.rename", "os.mkdir",
    "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.chown", "os.truncate", "os.kill", "subprocess.Popen",
    "shutil.", "socket.connect", "socket.bind", "tempfile.", "pickle.find_class",
)  # fmt: skip


def examine(
    readers: Sequence[str], inputs: int, seed: int, kept: Path, *, table: str = "tests.reliability.readers:READERS"
) -> list[dict[str, Any]]:
    """Give each reader hostile inputs, in a process that a bad one may end.

    Returns for each reader its name, the number of inputs, how many were read (the others were properly refused, but
    for the failures), and the failures, each with the file that shows it, which is kept in the folder `kept`.
    """
    found: list[dict[str, Any]] = []
    left = list(readers)
    while left:
        task = json.dumps({"readers": left, "inputs": inputs, "seed": seed, "kept": str(kept), "table": table})
        ended = run_module("tests.reliability.confined", input=task)
        done = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
        found += done
        left = left[len(done) :]
        if left:  # the process was ended by what the next one was given
            reason = f"the process ended with {ended.returncode}: {(ended.stderr.strip() or 'no message')[-2000:]}"
            found.append({"reader": left.pop(0), "inputs": 0, "results": 0, "failures": [reason]})
    return found


def run_module(name: str, *arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
    """Run a module of the tests in a process of its own, with one thread."""
    line, environment = [sys.executable, "-m", name, *arguments], {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        line, capture_output=True, text=True, errors="replace", env=environment, cwd=ROOT, check=False, **options
    )


class TooSlowError(BaseException):
    """An input takes longer than it may."""


class EscapeError(BaseException):
    """An input does what no reader needs to do."""


class Guard:
    """Watches what is done while an input is read."""

    def __init__(self, allowed: Path) -> None:
        """Writing below `allowed` is no escape."""
        self._allowed = str(allowed)
        self._armed = False
        sys.addaudithook(self._audit)

    @contextmanager
    def limits(self, room: int, seconds: float, *, armed: bool) -> Iterator[None]:
        """At most this many bytes more than are in use now, at most this much time, and nothing that leads outside."""
        before = resource.getrlimit(resource.RLIMIT_AS)
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + room, before[1]))
        # Of processor time, so that a busy machine does not matter; what waits for ever is ended by the next line.
        signal.setitimer(signal.ITIMER_PROF, seconds)
        faulthandler.dump_traceback_later(60, exit=True)
        self._armed = armed
        try:
            yield
        finally:
            self._armed = False
            faulthandler.cancel_dump_traceback_later()
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            resource.setrlimit(resource.RLIMIT_AS, before)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._armed:
            return
        if event == "open":
            path, mode, flags = arguments
            writes = any(letter in str(mode) for letter in "wxa+") if mode else bool(flags & _WRITES)
            if writes and not isinstance(path, int) and not str(path).startswith((self._allowed, "/dev/null")):
                raise EscapeError(f"opens {path} to write")
        elif event.startswith(_FORBIDDEN) and not (arguments and str(arguments[0]).startswith(self._allowed)):
            raise EscapeError(f"{event} {arguments}")


def placed(reader: Any, data: bytes, folder: Path) -> Path:
    """What is read, in a folder that holds nothing else."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return reader.put(folder, data)


def _read(reader: Any, data: bytes, folder: Path, guard: Guard) -> str | None:
    """What is wrong with how an input is taken; empty if it gives a result, None if it is properly refused."""
    path = placed(reader, data, folder)
    before = sorted(folder.rglob("*"))
    problem: str | None = ""
    try:
        with guard.limits(reader.room, reader.seconds, armed=reader.confined):
            reader.read(path)
    except (ValueError, OSError) as error:
        problem = refusal(error)
    except BaseException as error:  # noqa: BLE001 - any other exception is what is looked for
        frames = traceback.extract_tb(error.__traceback__)[-4:]
        where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
        problem = f"{type(error).__name__}: {str(error)[:500]} {where}"
    if not problem and not reader.writes and sorted(folder.rglob("*")) != before:
        problem = "files appeared or went"
    return problem


def refusal(error: Exception) -> str | None:
    """What is wrong with how an input is refused: the message must be one line."""
    message = f"{error.strerror or error}" if isinstance(error, OSError) else str(error)
    return f"refused in several lines or none: {message!r}" if "\n" in message or not message else None


def _examine(reader: Any, inputs: int, seed_number: int, guard: Guard, folder: Path, kept: Path) -> dict[str, Any]:
    from hypothesis import HealthCheck, Phase, given, seed, settings

    from tests.reliability.hostile import hostile

    found: dict[str, Any] = {"reader": reader.name, "inputs": 0, "results": 0, "failures": []}
    marker = folder / "marker"

    def fail(what: str, data: bytes) -> None:
        path = kept / hashlib.sha256(data).hexdigest()[:16]
        path.write_bytes(data)
        found["failures"].append(f"{what} ({path})")

    def once(data: bytes) -> None:
        found["inputs"] += 1
        problem = _read(reader, data, folder / "read", guard)
        if problem == "" and not marker.exists():
            found["results"] += 1
        elif problem is not None:
            fail(problem or "the marker is there", data)

    for data in reader.seeds():  # without limits, since libraries are imported here
        try:
            reader.read(placed(reader, data, folder / "whole"))
        except (ValueError, OSError) as error:
            fail(f"a whole file is refused: {error}", data)
    quiet = {"database": None, "deadline": None, "suppress_health_check": list(HealthCheck)}
    profile = settings(max_examples=inputs, phases=[Phase.generate], **quiet)
    seed(seed_number)(profile(given(hostile(reader.form, reader.seeds(), marker))(once)))()
    return found


def _too_slow(*_: object) -> None:
    raise TooSlowError("it takes too long")


def main() -> None:
    """Examine the readers that stdin names."""
    from projnorm.core.files import CEILING_VARIABLE

    task = json.load(sys.stdin)
    module, _, name = task["table"].partition(":")
    readers = getattr(importlib.import_module(module), name)
    sys.dont_write_bytecode = True
    os.environ[CEILING_VARIABLE] = str(_CEILING / 1e9)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, _too_slow)
    with tempfile.TemporaryDirectory() as scratch:
        out, sys.stdout = sys.stdout, sys.stderr
        folder = Path(scratch) / "inside"
        folder.mkdir()
        guard = Guard(folder)
        for reader in task["readers"]:
            found = _examine(readers[reader], task["inputs"], task["seed"], guard, folder, Path(task["kept"]))
            out.write(json.dumps(found) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
