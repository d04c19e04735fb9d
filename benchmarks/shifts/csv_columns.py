"""Text files of the benchmark, plain or compressed, and the columns of those that are tables."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from projnorm.core.errors import InputError
from projnorm.core.files import decoding, read_file

# No file of the benchmark unpacks to as much.
_MOST_UNPACKED = 500_000_000
_MISSING = ("", "NA")


def read_text(path: Path) -> str:
    """The text of a file, of a ``.gz`` file, or of the only file in a ``.zip`` file.

    Raises:
        InputError: If it is damaged, or unpacks to more than any file of the benchmark does.
    """
    data = read_file(path)
    with decoding(f"{path}: not a whole text file", gzip.BadGzipFile):
        if path.suffix == ".gz":
            with gzip.open(io.BytesIO(data)) as stream:
                data = stream.read(_MOST_UNPACKED + 1)
        elif path.suffix == ".zip":
            with zipfile.ZipFile(io.BytesIO(data)) as archive, archive.open(archive.namelist()[0]) as member:
                data = member.read(_MOST_UNPACKED + 1)
        if len(data) > _MOST_UNPACKED:
            raise InputError(f"{path}: unpacks to more than {_MOST_UNPACKED:,} bytes.")
        return data.decode("utf-8")


def read_columns(path: Path, names: Sequence[str] = ()) -> dict[str, NDArray[np.str_]]:
    """Columns of a CSV file as text: all of them, or those of these names.

    Raises:
        InputError: If it is no table, or lacks a column.
    """
    text = read_text(path)
    with decoding(f"{path}: not a table of comma-separated values", csv.Error):
        head, *body = csv.reader(io.StringIO(text, newline=""))
    if ragged := [number for number, row in enumerate(body, start=2) if len(row) != len(head)]:
        raise InputError(f"{path}: every line must have {len(head)} cells; line {ragged[0]:,} has not.")
    if missing := [name for name in names if name not in head]:
        raise InputError(f"{path}: has no column {missing[0]!r}; it has {', '.join(head)}.")
    chosen = names or head
    return {name: np.array([row[head.index(name)] for row in body], dtype=str) for name in chosen}


def numbers(column: NDArray[np.str_]) -> NDArray[np.float64]:
    """A column as numbers; nan where it is empty or "NA"."""
    with decoding("a column of the benchmark must hold numbers"):
        return np.where(np.isin(column, _MISSING), "nan", column).astype(np.float64)
