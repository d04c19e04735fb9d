"""A progress bar with an estimate of the time left: seen in a terminal, silent in a pipe."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

T = TypeVar("T")

_LOOK_SECONDS = 1.0


def tracked(items: Iterable[T], *, description: str, total: int, done: int = 0) -> Iterator[T]:
    """Pass `items` through, showing how many of `total` are done, `done` of them already before."""
    with _bar(MofNCompleteColumn()) as bar:
        task = bar.add_task(description, total=total, completed=done)
        for item in items:
            yield item
            bar.advance(task)


class Meter:
    """Says how far a task in another process has come, through a small file that `watched` looks at."""

    def __init__(self, path: Path) -> None:
        """`path` is written at most once a second."""
        self._path = path
        self._written = 0.0

    def at(self, done: int) -> None:
        """So many units are done."""
        if time.monotonic() - self._written >= _LOOK_SECONDS:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(str(done), encoding="ascii")
            self._written = time.monotonic()

    def close(self) -> None:
        """The task is finished; what it was worth is now counted by `watched`'s owner."""
        self._path.unlink(missing_ok=True)


@contextmanager
def watched(folder: Path, *, description: str, total: int) -> Iterator[Callable[[str, int], None]]:
    """A bar over work in other processes.

    Units are counted as done when the owner says so, through the function it is given, and before that as the `Meter`
    files in `folder` tell.

    Args:
        folder: Of the meters; what an earlier run left there is removed.
        description: In front of the bar.
        total: Units in all.
    """
    for left in folder.glob("*"):
        left.unlink(missing_ok=True)
    finished = 0
    stop = threading.Event()
    with _bar(TextColumn("{task.percentage:>3.0f} %")) as bar:
        task = bar.add_task(description, total=total)

        def count(what: str, units: int) -> None:
            nonlocal finished
            finished += units
            bar.update(task, description=what, completed=finished)

        def look() -> None:
            while not stop.wait(_LOOK_SECONDS):
                bar.update(task, completed=finished + sum(map(_reading, folder.glob("*"))))

        looking = threading.Thread(target=look, daemon=True)
        looking.start()
        try:
            yield count
        finally:
            stop.set()
            looking.join()


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
