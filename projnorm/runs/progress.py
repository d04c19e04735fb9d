"""A progress bar with an estimate of the time left: seen in a terminal, silent in a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

T = TypeVar("T")


def tracked(items: Iterable[T], *, description: str, total: int, done: int = 0) -> Iterator[T]:
    """Pass `items` through, showing how many of `total` are done, `done` of them already before."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(description, total=total, completed=done)
        for item in items:
            yield item
            bar.advance(task)
