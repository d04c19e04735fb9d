"""Faults and hostile inputs in numbers: a row a writer, a row a reader."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.reliability.faults import FAULTS, LostError, damaged_files
from tests.reliability.writers import WRITERS, Writer

DAMAGE = "damaged files"


def repeated(fault: Callable[[Writer, Path, random.Random], None], writer: Writer, *, trials: int, seed: int) -> None:
    """Put a fault to a writer so many times, each in a new folder.

    Raises:
        LostError: If something is lost.
    """
    rng = random.Random(seed)
    for _ in range(trials):
        with TemporaryDirectory(prefix="projnorm-faults-") as folder:
            fault(writer, Path(folder) / "job", rng)


def measure_writers(trials: int, parts: int, seed: int, said: Callable[[str], None]) -> list[dict[str, Any]]:
    """Every fault put to every writer.

    Args:
        trials: Of each fault but damage.
        parts: Of each file that is damaged in each part.
        seed: Of what is drawn.
        said: Told a line for each pair.

    Returns:
        A row a pair: writer, fault, trials, losses, and what was lost.
    """
    rows = []
    for writer in WRITERS:
        for name, fault in FAULTS.items():
            lost = []
            for trial in range(trials):
                try:
                    repeated(fault, writer, trials=1, seed=seed + trial)
                except LostError as loss:
                    lost.append(str(loss))
            rows.append(_row(writer, name, trials, lost))
            said(f"{writer.name}, {name}: {len(lost)} losses in {trials} trials")
        if writer.checked:
            tried, lost = _damaged(writer, parts, seed)
            rows.append(_row(writer, DAMAGE, tried, lost))
            said(f"{writer.name}, {DAMAGE}: {len(lost)} losses in {tried} trials")
    return rows


def writers_table(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """A line a writer and a column a fault, trials and losses; the header first."""
    faults = [*FAULTS, DAMAGE]
    cells = {(row["writer"], row["fault"]): f"{row['trials']:,} / {row['losses']}" for row in rows}
    writers = list(dict.fromkeys(row["writer"] for row in rows))
    lines = [[writer, *(cells.get((writer, fault), "") for fault in faults)] for writer in writers]
    return [["writer", *faults], *lines]


def readers_table(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """A line a reader: inputs, how many of them gave a result, executions of the fuzzer, failures; the header first."""
    header = ["reader", "hostile inputs", "of these read", "executions, coverage-guided", "failures"]
    return [
        header,
        *(
            [
                str(row["reader"]),
                f"{row['inputs']:,}",
                "" if row["results"] is None else f"{row['results']:,}",
                f"{row['executions']:,}" if row["executions"] else "",
                str(row["failures"]),
            ]
            for row in rows
        ),
    ]


def _damaged(writer: Writer, parts: int, seed: int) -> tuple[int, list[str]]:
    tried = 0
    with TemporaryDirectory(prefix="projnorm-faults-") as folder:
        try:
            for _ in damaged_files(writer, Path(folder) / "job", random.Random(seed), parts=parts):
                tried += 1
        except LostError as loss:
            return tried + 1, [str(loss)]
    return tried, []


def _row(writer: Writer, fault: str, trials: int, lost: list[str]) -> dict[str, Any]:
    return {"writer": writer.name, "fault": fault, "trials": trials, "losses": len(lost), "lost": lost[:5]}
