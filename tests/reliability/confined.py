"""Reads hostile inputs in a process of its own, which may use little memory and time and may write nothing.

Run by `tests.reliability.examination`; the task comes as JSON on stdin, and what was found goes to stdout, a line of
JSON a reader.
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from projnorm.files import CEILING_VARIABLE
from tests.reliability.inputs import hostile
from tests.reliability.readers import READERS, Reader

SECONDS = 4.0
CEILING = 50_000_000
# More than the ceiling, since what is read is unpacked and then checked or converted.
ROOM = 5 * CEILING
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_FORBIDDEN = (
    "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "os.remove", "os.rename", "os.mkdir",
    "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.chown", "os.truncate", "os.kill", "subprocess.Popen",
    "shutil.", "socket.connect", "socket.bind", "tempfile.", "pickle.find_class",
)  # fmt: skip


class TooSlowError(BaseException):
    """An input that takes longer than it may."""


class EscapeError(BaseException):
    """An input that does what no reader needs to do."""


class Guard:
    """Watches what is done while an input is read."""

    def __init__(self, allowed: Path) -> None:
        self._allowed = str(allowed)
        self._armed = False
        sys.addaudithook(self._audit)

    @contextmanager
    def armed(self) -> Iterator[None]:
        self._armed = True
        try:
            yield
        finally:
            self._armed = False

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


def examine(reader: Reader, inputs: int, seed_number: int, guard: Guard, folder: Path, kept: Path) -> dict[str, Any]:
    """How a reader takes so many hostile inputs."""
    found: dict[str, Any] = {"reader": reader.name, "inputs": 0, "results": 0, "failures": []}
    current, marker = folder / "current", folder / "marker"

    def once(data: bytes) -> None:
        found["inputs"] += 1
        current.write_bytes(data)
        failure = read_once(reader, data, guard, folder / "read")
        if failure is None and marker.exists():
            failure = "the marker is there"
        if failure == "":
            found["results"] += 1
        elif failure is not None:
            found["failures"].append(_failure(failure, data, kept))

    for data in reader.seeds():
        if problem := read_once(reader, data, guard, folder / "read", strict=True):
            found["failures"].append(_failure(f"a whole file: {problem}", data, kept))
    profile = settings(
        max_examples=inputs,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    seed(seed_number)(profile(given(hostile(reader.form, reader.seeds(), marker))(once)))()
    return found


def read_once(reader: Reader, data: bytes, guard: Guard, folder: Path, *, strict: bool = False) -> str | None:
    """What is wrong with how an input is taken; empty if it gives a result, None if it is properly refused."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    path = reader.place(folder, data)
    before = sorted(str(p) for p in folder.rglob("*"))
    start = time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, SECONDS if not strict else 0.0)
    faulthandler.dump_traceback_later(60, exit=True)
    try:
        with nullcontext() if strict else _little_memory(), nullcontext() if strict else guard.armed():
            reader.read(path)
        problem: str | None = ""
    except reader.refusals as error:
        message = f"{error.strerror or error}" if isinstance(error, OSError) else str(error)
        problem = f"refused in several lines or none: {message!r}" if "\n" in message or not message else None
        problem = f"refused: {message}" if strict else problem
    except (TooSlowError, EscapeError) as error:
        problem = f"{type(error).__name__}: {error} {_where(error)}"
    except BaseException as error:  # noqa: BLE001 - any other exception is what is looked for
        problem = f"{type(error).__name__}: {error} {_where(error)}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        faulthandler.cancel_dump_traceback_later()
    if not problem and time.perf_counter() - start > SECONDS and not strict:
        problem = f"took {time.perf_counter() - start:.1f} s"
    if not problem and sorted(str(p) for p in folder.rglob("*")) != before and reader.name != "tiles":
        problem = "files appeared or went"
    return problem


def _failure(what: str, data: bytes, kept: Path) -> dict[str, str]:
    """What is wrong, and where the input is that shows it."""
    path = kept / hashlib.sha256(data).hexdigest()[:16]
    path.write_bytes(data)
    return {"what": what, "input": str(path)}


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))


@contextmanager
def _little_memory() -> Iterator[None]:
    """As much address space as is in use now, and some room."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _too_slow(*_: object) -> None:
    raise TooSlowError(f"more than {SECONDS:g} s")


def main() -> None:
    """Examine the readers that stdin names."""
    task = json.load(sys.stdin)
    sys.dont_write_bytecode = True
    os.environ[CEILING_VARIABLE] = str(CEILING / 1e9)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _too_slow)
    with tempfile.TemporaryDirectory() as name:
        folder, out = Path(name), sys.stdout
        sys.stdout = sys.stderr
        guard = Guard(folder)
        for reader in task["readers"]:
            out.write(json.dumps({"begins": reader, "current": str(folder / "current")}) + "\n")
            out.flush()
            found = examine(READERS[reader], task["inputs"], task["seed"], guard, folder, Path(task["kept"]))
            out.write(json.dumps(found) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
