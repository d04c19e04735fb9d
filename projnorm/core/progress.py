"""Progress of long work with an estimate of the time left: a bar in a terminal, elsewhere a log line now and then."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

T = TypeVar("T")

LOGGER = logging.getLogger("projnorm")
_POLL_SECONDS = 1.0
# Seconds between two log lines where there is no terminal.
_LINE_SECONDS = 10.0


def tracked(items: Iterable[T], *, description: str, total: int, done: int = 0) -> Iterator[T]:
    """Pass `items` through, showing how many of `total` are done, `done` of them already before."""
    with _bar(MofNCompleteColumn()) as bar:
        lines = _Lines(description, total, done, quiet=not bar.disable)
        task = bar.add_task(description, total=total, completed=done)
        for item in items:
            yield item
            bar.advance(task)
            lines.at(lines.done + 1)


class Meter:
    """Reports how far a task in another process has come, through a small file that `watched` reads."""

    def __init__(self, path: Path) -> None:
        """`path` is written at most once a second."""
        self._path = path
        self._written = 0.0

    def at(self, done: int) -> None:
        """Report the number of units that are done."""
        if time.monotonic() - self._written >= _POLL_SECONDS:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(str(done), encoding="ascii")
            self._written = time.monotonic()

    def close(self) -> None:
        """The task is finished; its units are now counted by the owner of `watched`."""
        self._path.unlink(missing_ok=True)


@contextmanager
def watched(folder: Path, *, description: str, total: int) -> Iterator[Callable[[str, int], None]]:
    """Progress of work in other processes, of `total` units.

    Units count as done when the owner calls the function it is given, and before that as the `Meter` files in `folder`
    report; files that an earlier run left there are removed.
    """
    for left in folder.glob("*"):
        left.unlink(missing_ok=True)
    finished = 0
    stop = threading.Event()
    with _bar(TextColumn("{task.percentage:>3.0f} %")) as bar:
        lines = _Lines(description, total, 0, quiet=not bar.disable)
        task = bar.add_task(description, total=total)

        def count(what: str, units: int) -> None:
            nonlocal finished
            finished += units
            lines.description = what
            bar.update(task, description=what, completed=finished)

        def poll() -> None:
            while not stop.wait(_POLL_SECONDS):
                done = finished + sum(map(_reading, folder.glob("*")))
                bar.update(task, completed=done)
                lines.at(done)

        polling = threading.Thread(target=poll, daemon=True)
        polling.start()
        try:
            yield count
        finally:
            stop.set()
            polling.join()


class _Lines:
    """Log lines in place of a bar."""

    def __init__(self, description: str, total: int, done: int, *, quiet: bool) -> None:
        self.description, self.done = description, done
        self._total, self._first, self._quiet = total, done, quiet
        self._start = self._said = time.monotonic()

    def at(self, done: int) -> None:
        self.done, now = done, time.monotonic()
        if self._quiet or now - self._said < _LINE_SECONDS or done <= self._first:
            return
        self._said = now
        left = (now - self._start) * (self._total - done) / (done - self._first)
        LOGGER.info("%s: %.0f %% done, about %.0f s left", self.description, 100 * done / self._total, left)


def _reading(path: Path) -> int:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def _bar(amount: TextColumn | MofNCompleteColumn) -> Progress:
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        amount,
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
    )
    return Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
