"""The ledger of a run: one line of JSON per target and method, written as it is known and never changed.

It is only ever appended to, and every line carries its checksum. A line that was being written when the process died,
or that was damaged later, is named and passed over, and gone with the next one that is written; the others stay.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np

from deep.samples import Target
from projnorm.files import open_file
from projnorm.runs import from_sealed_json, notice, sealed_json, write_atomically


@dataclass(frozen=True, slots=True)
class Row:
    """The score of one method on one target.

    Attributes:
        target: Its name.
        family: The shift that made it.
        severity: 1 to 5; 0 where there is none.
        origin: "generated", "official", "clean", "given", "part" or "made".
        m: Images in it.
        error: True error of the evaluated network on them.
        method: Which predictor.
        score: What it says.
    """

    target: str
    family: str
    severity: int
    origin: str
    m: int
    error: float
    method: str
    score: float

    @classmethod
    def of(cls, target: Target, error: float, method: str, score: float) -> Row:
        """A row on a target."""
        m = len(target.samples)
        return cls(target.name, target.family, target.severity, target.origin, m, error, method, score)


class Ledger:
    """The rows of one file.

    Attributes:
        path: The file.
        rows: What it holds, in the order of writing.
    """

    def __init__(self, path: Path) -> None:
        """Open a ledger, or begin one.

        Raises:
            OSError: If the file cannot be read.
        """
        self.path = path
        data = b""
        if path.exists():
            with open_file(path) as file:  # which another process may be adding to
                data = file.read()
        lines = data.split(b"\n")
        torn = lines.pop()
        found = [_row(line) for line in lines]
        self.rows = [row for row in found if row is not None]
        self._end: int | None = len(data) - len(torn)
        damaged = [str(number) for number, row in enumerate(found, start=1) if row is None]
        if damaged:
            self._end = None
            said = f"line {damaged[0]}" if len(damaged) == 1 else f"lines {', '.join(damaged)}"
            notice(f"{path}: {said} damaged and passed over; the command that wrote it computes what is missing again.")
        if torn:
            notice(f"{path}: the last line was cut off and is passed over.")

    def has(self, target: str, method: str) -> bool:
        """Whether this is known."""
        return any(row.target == target and row.method == method for row in self.rows)

    def append(self, rows: Iterable[Row]) -> None:
        """Write rows to the disk; those that are there already are left as they are.

        Raises:
            OSError: If they cannot be written.
        """
        new = [row for row in rows if not self.has(row.target, row.method)]
        if not new:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self._end is None:
            write_rows(self.path, [*self.rows, *new])
            self._end = self.path.stat().st_size
        else:
            with self.path.open("ab") as file:
                file.truncate(self._end)
                file.write(_lines(new))
                file.flush()
                os.fsync(file.fileno())
                self._end = file.tell()
        self.rows.extend(new)


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Put a whole file of rows in the place of the one there.

    Raises:
        OSError: If it cannot be written; the one there is then still whole.
    """
    write_atomically(path, _lines(rows))


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """The rows of a ledger as a matrix: the methods that have seen the most targets, and those targets.

    Attributes:
        targets: Names, shape ``(t,)``.
        families: Of each target.
        severities: Of each target.
        origins: Of each target.
        sizes: Images in each.
        errors: True errors.
        methods: Names, one a column of `values`.
        values: Scores, shape ``(t, methods)``.
    """

    targets: np.ndarray
    families: np.ndarray
    severities: np.ndarray
    origins: np.ndarray
    sizes: np.ndarray
    errors: np.ndarray
    methods: tuple[str, ...]
    values: np.ndarray

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Scores:
        """From rows in any order; targets and methods keep the order in which they first appear.

        A method that is still behind the others is left out, so that a table made meanwhile loses no target.
        """
        rows = list(rows)
        seen = Counter(row.method for row in rows)
        methods = tuple(method for method, count in seen.items() if count == max(seen.values()))
        rows = [row for row in rows if row.method in methods]
        by_target: dict[str, dict[str, Row]] = {}
        for row in rows:
            by_target.setdefault(row.target, {})[row.method] = row
        complete = [found for found in by_target.values() if len(found) == len(methods)]
        first = [next(iter(found.values())) for found in complete]
        return cls(
            np.array([row.target for row in first], dtype=str),
            np.array([row.family for row in first], dtype=str),
            np.array([row.severity for row in first], dtype=int),
            np.array([row.origin for row in first], dtype=str),
            np.array([row.m for row in first], dtype=int),
            np.array([row.error for row in first], dtype=float),
            methods,
            np.array([[found[m].score for m in methods] for found in complete]).reshape(len(first), len(methods)),
        )

    def only(self, methods: Sequence[str]) -> Scores:
        """These methods, in this order."""
        columns = [self.methods.index(method) for method in methods]
        return replace(self, methods=tuple(methods), values=self.values[:, columns])

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray], *, methods: str = "methods") -> Scores:
        """From the arrays of a record, whose columns `methods` names."""
        a = arrays
        facts = a["targets"], a["families"], a["severities"], a["origins"], a["sizes"], a["errors"]
        return cls(*facts, tuple(a[methods].tolist()), a["scores"])


def _lines(rows: Iterable[Row]) -> bytes:
    return b"".join(sealed_json(asdict(row), indent=None) for row in rows)


_KINDS: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float)}
_TYPES = {field.name: _KINDS[str(field.type)] for field in fields(Row)}


def _row(line: bytes) -> Row | None:
    """The row on a line; None if it is damaged."""
    try:
        document = from_sealed_json(line, keys=_TYPES)
        np.array([value for value in document.values() if isinstance(value, int)], dtype=np.int64)
    except (ValueError, OverflowError):
        return None
    if set(document) != set(_TYPES) or not all(isinstance(document[k], t) for k, t in _TYPES.items()):
        return None
    return Row(**document)
