"""Progress of long work with an estimate of the time left: a bar in a terminal, elsewhere a log line now and then."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

T = TypeVar("T")

LOGGER = logging.getLogger("projnorm")
_POLL_SECONDS = 1.0
# Seconds between two log lines where there is no terminal.
_LINE_SECONDS = 10.0
# A rate is trusted once it was measured over this share of the work, or for this many seconds.
_TRUSTED_SHARE, _TRUSTED_SECONDS = 0.02, 60.0


class RemainingTime:
    """Seconds left of long work, from the rate since its first part was done; reading and loading are before that.

    Nothing is said before the rate is known over a share of the work or for a while: the first steps of a training are
    the slowest.

    Examples:
        >>> remaining = RemainingTime(1_000)
        >>> remaining.left(10, now=300.0)  # where the measurement begins
        >>> remaining.left(20, now=301.0)  # too little to tell
        >>> remaining.left(110, now=310.0)
        89.0
    """

    def __init__(self, total: int, done: int = 0) -> None:
        """Begin with `done` of `total` units done, at a rate that is not known."""
        self._total, self._before = total, done
        self._first: tuple[int, float] | None = None

    def left(self, done: int, *, now: float) -> float | None:
        """Seconds left once `done` units are done; None while the rate is not known."""
        if self._first is None:
            self._first = (done, now) if done > self._before else None
            return None
        measured, seconds = done - self._first[0], now - self._first[1]
        trusted = measured >= _TRUSTED_SHARE * (self._total - self._first[0]) or seconds >= _TRUSTED_SECONDS
        if measured <= 0 or not trusted:
            return None
        return seconds * (self._total - done) / measured


def tracked(items: Iterable[T], *, description: str, total: int, done: int = 0) -> Iterator[T]:
    """Pass `items` through, showing how many of `total` are done, `done` of them already before."""
    with _bar(MofNCompleteColumn()) as bar:
        lines = _Lines(description, total, done, quiet=not bar.disable)
        task = bar.add_task(description, total=total, completed=done, left="")
        for item in items:
            yield item
            left = lines.at(lines.done + 1)
            bar.update(task, completed=lines.done, left=_clock(left))


class Meter:
    """Reports how far a task in another process has come, through a small file that `watched` reads."""

    def __init__(self, path: Path, *, units: int = 1) -> None:
        """`path` is written at most once a second; each step counts as `units` units."""
        self._path, self._units = path, units
        self._written = 0.0

    def at_step(self, step: int, *_: object) -> None:
        """Report the number of steps that are done; what else a training tells of them is not needed."""
        if time.monotonic() - self._written >= _POLL_SECONDS:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(str(step * self._units), encoding="ascii")
            self._written = time.monotonic()

    def close(self) -> None:
        """End the report of a finished task, whose units `watched` counts from now on."""
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
        task = bar.add_task(description, total=total, left="")

        def count(what: str, units: int) -> None:
            nonlocal finished
            finished += units
            lines.description = what
            bar.update(task, description=what, completed=finished)

        def poll() -> None:
            while not stop.wait(_POLL_SECONDS):
                done = finished + sum(map(_reading, folder.glob("*")))
                bar.update(task, completed=done, left=_clock(lines.at(done)))

        polling = threading.Thread(target=poll, daemon=True)
        polling.start()
        try:
            yield count
        finally:
            stop.set()
            polling.join()


class _Lines:
    """Log lines in place of a bar, with the time that is left."""

    def __init__(self, description: str, total: int, done: int, *, quiet: bool) -> None:
        self.description, self.done = description, done
        self._total, self._before, self._quiet = total, done, quiet
        self._remaining, self._logged = RemainingTime(total, done), time.monotonic()

    def at(self, done: int) -> float | None:
        """Log that `done` units are done; returns the number of seconds left, if it is known."""
        self.done, now = done, time.monotonic()
        left = self._remaining.left(done, now=now)
        if not self._quiet and now - self._logged >= _LINE_SECONDS and done > self._before:
            self._logged = now
            tail = "" if left is None else f", about {left:.0f} s left"
            LOGGER.info("%s: %.0f %% done%s", self.description, 100 * done / self._total, tail)
        return left


def _clock(seconds: float | None) -> str:
    """Hours, minutes and seconds; nothing where they are not known."""
    return "" if seconds is None else f"{timedelta(seconds=round(seconds))} left"


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
        TextColumn("{task.fields[left]}"),
    )
    return Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
