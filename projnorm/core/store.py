"""The one store: arrays and facts under a key, whole or not there, checksummed, found again, recomputed if damaged.

An entry is a JSON file with the facts, written last, that names the NPZ file with the arrays by its SHA-256. Both are
checked whenever they are read. An entry that fails is reported through `logging` and treated as absent, so that whoever
asked for it computes it again; its files are then moved to the folder ``damaged``. Reading never writes.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from projnorm.core.arrays import Arrays, from_npz, to_npz
from projnorm.core.atomic import write_atomically
from projnorm.core.files import parse_json, read_file

LOGGER = logging.getLogger("projnorm")
_CHECKSUMS = "checksums"
_LOCKS, _DAMAGED = ".locks", "damaged"
_NAME_DIGITS = 12


class DamagedEntryError(ValueError):
    """An entry whose files are missing, truncated or changed."""


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """What is stored under a key.

    Attributes:
        arrays: Arrays by name.
        facts: Plain JSON values.
    """

    arrays: Arrays = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Store:
    """Entries in the files of one folder.

    A key is a file name, or several with "/" between them.

    Attributes:
        folder: The folder; made when something is written.
    """

    folder: Path

    def get(self, key: str) -> Entry | None:
        """The entry; None where there is none, or it is damaged, which is logged."""
        return self._whole(key, self._read)

    def facts(self, key: str) -> Mapping[str, Any] | None:
        """The facts of an entry alone, without reading its arrays; None as in `get`."""
        entry = self._whole(key, lambda k: Entry(facts=self._document(k)[0]))
        return None if entry is None else entry.facts

    def put(
        self, key: str, arrays: Arrays | None = None, facts: Mapping[str, Any] | None = None, *, compress: bool = True
    ) -> Entry:
        """Write an entry in the place of the one there, which stays whole if that fails.

        With `compress=False` the arrays are not compressed, which would not be worth its time for weights.
        """
        document = json.loads(json.dumps(facts or {}))
        checksums: dict[str, str] = {}
        with self.lock(key):
            self._set_aside_if_damaged(key)
            if arrays:
                data = to_npz(arrays, compress=compress)
                checksums["arrays"] = hashlib.sha256(data).hexdigest()
                write_atomically(self._arrays_path(key, checksums["arrays"]), data)
            checksums["document"] = digest([document, checksums], 64)
            write_atomically(
                self.path(key), (json.dumps({**document, _CHECKSUMS: checksums}, indent=1) + "\n").encode()
            )
            for stale in self._arrays_files(key):
                if not arrays or stale != self._arrays_path(key, checksums["arrays"]):
                    stale.unlink(missing_ok=True)
        return Entry(dict(arrays or {}), document)

    def get_or_compute(self, key: str, compute: Callable[[], Entry], *, fresh: bool = False) -> Entry:
        """The entry, computed and stored unless it is there; of several processes, one computes and the others wait."""
        if not fresh and (entry := self.get(key)) is not None:
            return entry
        with self.lock(key):
            if not fresh and (entry := self.get(key)) is not None:
                return entry
            entry = compute()
            return self.put(key, entry.arrays, entry.facts)

    def remove(self, key: str) -> None:
        """Remove an entry, if it is there."""
        with self.lock(key):
            for path in (self.path(key), *self._arrays_files(key)):
                path.unlink(missing_ok=True)

    def keys(self, prefix: str = "") -> list[str]:
        """The keys that begin with `prefix`, sorted; their entries may be damaged."""
        group, _, start = prefix.rpartition("/")
        names = (path.relative_to(self.folder).with_suffix("") for path in (self.folder / group).glob(f"{start}*.json"))
        return sorted(name.as_posix() for name in names)

    def __contains__(self, key: str) -> bool:
        """Whether there is an entry, whole or damaged."""
        return self.path(key).exists()

    @contextmanager
    def lock(self, key: str = "all") -> Iterator[None]:
        """Hold the lock of the key; a second process logs a line and waits.

        The lock of a process that died is free, and a process that holds it may take it again.
        """
        path = self.folder / _LOCKS / f"{key}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path, is_singleton=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            LOGGER.info("another process is working on %s; waiting until it has finished.", self.folder / key)
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def path(self, key: str) -> Path:
        """The JSON file of an entry, whether it is there or not."""
        return self.folder / f"{key}.json"

    def _arrays_path(self, key: str, sha256: str) -> Path:
        return self.folder / f"{key}-{sha256[:_NAME_DIGITS]}.npz"

    def _arrays_files(self, key: str) -> list[Path]:
        path = self.path(key)
        return list(path.parent.glob(f"{path.stem}-{'[0-9a-f]' * _NAME_DIGITS}.npz"))

    def _whole(self, key: str, read: Callable[[str], Entry]) -> Entry | None:
        """The entry that `read` returns; None if there is no entry, or if it is damaged, which is logged."""
        while True:
            before = self._file(key)
            try:
                return read(key)
            except (FileNotFoundError, NotADirectoryError):
                return None
            except DamagedEntryError as damage:
                if self._file(key) != before:
                    continue  # another process has just replaced it
                LOGGER.warning("%s; it is computed again when it is needed.", damage)
                return None

    def _file(self, key: str) -> tuple[int, int] | None:
        """Inode and modification time of the JSON file of an entry, which change when it is replaced."""
        try:
            status = self.path(key).stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def _set_aside_if_damaged(self, key: str) -> None:
        try:
            self._read(key)
        except (FileNotFoundError, NotADirectoryError):
            return
        except DamagedEntryError:
            aside = self.folder / _DAMAGED
            aside.mkdir(parents=True, exist_ok=True)
            for path in (self.path(key), *self._arrays_files(key)):
                if path.exists():
                    path.replace(aside / path.relative_to(self.folder).as_posix().replace("/", "-"))
            LOGGER.warning("damaged files of %s are now in %s.", self.path(key), aside)

    def _read(self, key: str) -> Entry:
        document, checksums = self._document(key)
        if "arrays" not in checksums:
            return Entry({}, document)
        path = self._arrays_path(key, checksums["arrays"])
        try:
            data = read_file(path)
        except FileNotFoundError:
            raise DamagedEntryError(f"{path} is missing") from None
        if hashlib.sha256(data).hexdigest() != checksums["arrays"]:
            raise DamagedEntryError(f"{path} is damaged, its checksum differs")
        return Entry(from_npz(data), document)

    def _document(self, key: str) -> tuple[dict[str, Any], dict[str, str]]:
        path = self.path(key)
        data = read_file(path)
        try:
            document = parse_json(data)
            checksums = document.pop(_CHECKSUMS)
            arrays = {"arrays": checksums["arrays"]} if "arrays" in checksums else {}
            whole = checksums["document"] == digest([document, arrays], 64)
        except (ValueError, LookupError, TypeError, AttributeError):
            raise DamagedEntryError(f"{path} is damaged, it is not a whole entry") from None
        if not whole:
            raise DamagedEntryError(f"{path} is damaged, its checksum differs")
        return document, checksums


def digest(document: Any, digits: int = _NAME_DIGITS) -> str:
    """The first digits of the SHA-256 of plain JSON values: a name for whatever depends on these alone."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:digits]
