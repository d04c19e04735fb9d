"""A file that is only appended to: one JSON document with its checksum in a line, so that a crash loses one at most.

Whole lines stay valid whatever happens to others. A damaged file is copied aside before its whole lines are kept.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from projnorm.core.atomic import write_atomically
from projnorm.core.files import open_file, read_file

LOGGER = logging.getLogger("projnorm")
_CHECKSUM, _DIGITS = "sha256", 16
# Bytes at the beginning of the file by which another one in its place is recognised.
_COMPARED = 256


class UnreadDocuments(NamedTuple):
    """Documents of a journal that were not read before.

    Attributes:
        documents: The documents, in the order in which they were added.
        is_whole_file: Whether these are all documents of the file.
    """

    documents: list[dict[str, Any]]
    is_whole_file: bool


@dataclass(slots=True)
class Journal:
    """The documents in a file, in the order in which they were added.

    Whoever adds to it must hold a lock and call `unread` first, since another process may have added some.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     Journal(Path(folder) / "journal.jsonl").add({"kind": "reset"})
    ...     unread = Journal(Path(folder) / "journal.jsonl").unread()
    >>> unread.documents, unread.is_whole_file
    ([{'kind': 'reset'}], True)

    Attributes:
        path: The file.
    """

    path: Path
    _read: int = field(default=0, init=False)
    _beginning: bytes = field(default=b"", init=False)

    def unread(self) -> UnreadDocuments:
        """Documents that were added since the last call.

        They are all if nothing was read before, or if the file is another one now. Damaged lines are set aside with a
        warning.
        """
        start, data = self._unread_bytes()
        if data and not data.endswith(b"\n") and _document(data.rpartition(b"\n")[2]) is not None:
            with self.path.open("ab") as file:  # an editor may leave out the end of the last line
                file.write(b"\n")
            data += b"\n"
        lines = data.split(b"\n")
        documents = [_document(line) for line in lines[:-1]]
        damaged = documents.count(None) + bool(lines[-1])
        if damaged:
            whole = [line + b"\n" for line, document in zip(lines[:-1], documents, strict=True) if document is not None]
            data = b"".join(whole)
            self._set_aside(damaged, start, data)
        if not start:
            self._beginning = data[:_COMPARED]
        self._read = start + len(data)
        return UnreadDocuments([document for document in documents if document is not None], start == 0)

    def _unread_bytes(self) -> tuple[int, bytes]:
        """Where what is new begins, and what it is."""
        if not self.path.exists():
            return 0, b""
        with open_file(self.path) as file:
            is_same = file.read(len(self._beginning)) == self._beginning
            start = self._read if is_same and file.seek(0, os.SEEK_END) >= self._read else 0
            file.seek(start)
            return start, file.read()

    def add(self, document: dict[str, Any]) -> None:
        """Append a document; it is on the disk when this returns."""
        line = json.dumps({**document, _CHECKSUM: _checksum(document)}).encode() + b"\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        if not self._read:
            self._beginning = line[:_COMPARED]
        self._read += len(line)

    def _set_aside(self, count: int, start: int, whole: bytes) -> None:
        number = 1
        while (aside := self.path.with_name(f"{self.path.name}.damaged-{number}")).exists():
            number += 1
        data = read_file(self.path)
        write_atomically(aside, data)
        write_atomically(self.path, data[:start] + whole)
        lines = "1 line was" if count == 1 else f"{count} lines were"
        LOGGER.warning(
            "%s: %s damaged and left out, give their batches again; the file as it was is %s.",
            self.path,
            lines,
            aside.name,
        )


def _document(line: bytes) -> dict[str, Any] | None:
    """The document of a line; None for a damaged one."""
    try:
        document = json.loads(line)
        checksum = document.pop(_CHECKSUM)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return document if checksum == _checksum(document) else None


def _checksum(document: dict[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True).encode()
    return hashlib.sha256(text).hexdigest()[:_DIGITS]
