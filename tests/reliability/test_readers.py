"""Every reader takes any input: it gives a result or refuses in one line, soon, in little memory, and does no more."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.reliability.confined import examine
from tests.reliability.readers import READERS, Reader


def _broken(said: str, harm: Callable[[Path], object]) -> Reader:
    """A reader that does harm to anything but a whole file; `said` is what must be said of it."""
    return Reader(
        *(said, "bytes", lambda: b"whole", "x", lambda path: path.read_bytes() == b"whole" or harm(path)), seconds=0.5
    )


def _refuse(_path: Path) -> None:
    raise ValueError("a\nb")


def _loop(_path: Path) -> None:
    while True:
        pass


BROKEN = {
    reader.name: reader
    for reader in (
        _broken("files appeared", lambda path: path.with_name("new").touch()),
        _broken("ZeroDivisionError", lambda _: 1 / 0),
        _broken("EscapeError", lambda path: (path.parents[2] / "escaped").touch()),
        _broken("MemoryError", lambda _: bytearray(10**9)),
        _broken("TooSlowError", _loop),
        _broken("refused in several lines", _refuse),
        _broken("the process ended with 7", lambda _: os._exit(7)),
    )
}


@pytest.mark.slow
def test_every_reader_gives_a_result_or_refuses_in_one_line(tmp_path):
    rows = examine(list(READERS), 60, 0, tmp_path)
    assert [row["reader"] for row in rows] == list(READERS)
    assert [(row["reader"], failure) for row in rows for failure in row["failures"]] == []
    assert all(row["inputs"] >= 60 for row in rows)


@pytest.mark.slow
def test_a_reader_that_does_more_than_read_is_caught(tmp_path):
    """The confined process itself, with readers that are not as they should be."""
    rows = examine(list(BROKEN), 2, 0, tmp_path, table=f"{__name__}:BROKEN")
    assert [row["reader"] for row in rows] == list(BROKEN)
    for row in rows:
        assert row["reader"] in row["failures"][0]
