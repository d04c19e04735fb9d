"""The record of a run: what was asked, what came out, and where. One folder a run, named after what was asked.

``record.json`` holds the configuration, the environment, the checksum of ``arrays-<checksum>.npz`` and its own. The
JSON is written last and in one step, so a record is either whole or not there, and replacing one never loses the old.
A damaged one is set aside, and computed again by whoever needs it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from projnorm import __version__
from projnorm.arrays import Arrays, from_npz, to_npz
from projnorm.atomic import write_atomically
from projnorm.environment import current_environment
from projnorm.files import read_file
from projnorm.runs.locks import sole_writer
from projnorm.runs.notices import notice
from projnorm.runs.sealed import from_sealed_json, sealed_json

FORMAT = 1
# Digits of the hash in a name.
_HASH = 10
_FILE = "record.json"
_DAMAGED = "damaged"
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "format": int,
    "kind": str,
    "id": str,
    "config": dict,
    "created": str,
    "wall_seconds": (int, float),
    "environment": dict,
    "arrays": dict,
    "arrays_sha256": str,
}
_CHECKSUM = re.compile("[0-9a-f]{64}")


class DamagedRecordError(ValueError):
    """A record whose files are missing, truncated or changed."""


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One finished run.

    Attributes:
        id: Its name, which is that of its folder.
        kind: What was run: "toy", "bound", ...
        config: The configuration, as plain JSON values.
        arrays: The results by name.
        meanings: What each array is and in which unit.
        created: When it finished, UTC.
        wall_seconds: How long it took; of a run that was resumed, the last part.
        environment: Machine and versions.
        facts: What was found on the way, as plain JSON values: hashes of the inputs, routes taken, self-checks.
    """

    id: str
    kind: str
    config: Mapping[str, Any]
    arrays: Arrays
    meanings: Mapping[str, str]
    created: str
    wall_seconds: float
    environment: Mapping[str, Any]
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Listed:
    """A record as a listing shows it; `problem` says what is wrong with a damaged one."""

    id: str
    kind: str
    created: str
    wall_seconds: float
    problem: str


def new_record(
    kind: str,
    config: Mapping[str, Any],
    arrays: Arrays,
    meanings: Mapping[str, str],
    wall_seconds: float,
    facts: Mapping[str, Any] | None = None,
) -> Record:
    """A record of something that has just finished here."""
    if missing := set(arrays) ^ set(meanings):
        raise ValueError(f"`meanings` must describe every array; these differ: {', '.join(sorted(missing))}.")
    created = datetime.now(UTC).isoformat(timespec="seconds")
    name, environment = record_id(kind, config), asdict(current_environment())
    return Record(name, kind, config, arrays, meanings, created, wall_seconds, environment, facts or {})


def record_id(kind: str, config: Mapping[str, Any]) -> str:
    """The name of a run: its kind and a hash of what was asked of which version.

    The same question has the same name; another version of the package is another question.
    """
    return _name(kind, config, __version__)


def save(record: Record, root: Path) -> Path:
    """Write the record into its folder under `root`; returns the folder.

    Raises:
        OSError: If it cannot be written; an earlier record of the same name is then still whole.
    """
    folder = root / record.id
    data = to_npz(record.arrays)
    checksum = hashlib.sha256(data).hexdigest()
    document = {
        "format": FORMAT,
        "kind": record.kind,
        "id": record.id,
        "config": record.config,
        "created": record.created,
        "wall_seconds": record.wall_seconds,
        "environment": record.environment,
        "facts": record.facts,
        "arrays": {
            name: {"shape": list(array.shape), "dtype": str(array.dtype), "meaning": record.meanings[name]}
            for name, array in record.arrays.items()
        },
        "arrays_sha256": checksum,
    }
    arrays_file = folder / _arrays_name(checksum)
    with sole_writer(folder):
        write_atomically(arrays_file, data)
        write_atomically(folder / _FILE, sealed_json(document))
        for stale in folder.glob("arrays-*.npz"):
            if stale != arrays_file:
                stale.unlink()
    return folder


def load(folder: Path) -> Record:
    """Read a record and check it against its checksum.

    Raises:
        FileNotFoundError: If there is no record.
        DamagedRecordError: If it is not whole.
        ValueError: If it is larger than may be read, or in the format of another version.
    """
    document = _document(folder)
    arrays_file = folder / _arrays_name(document["arrays_sha256"])
    try:
        data = read_file(arrays_file)
    except FileNotFoundError:
        raise DamagedRecordError(f"{folder}: {arrays_file.name} is missing") from None
    if hashlib.sha256(data).hexdigest() != document["arrays_sha256"]:
        raise DamagedRecordError(f"{folder}: {arrays_file.name} is damaged, its checksum differs")
    try:
        arrays = from_npz(data)
    except ValueError as error:
        raise DamagedRecordError(f"{folder}: {arrays_file.name} is {error}") from None
    if set(arrays) != set(document["arrays"]):
        raise DamagedRecordError(f"{folder}: {arrays_file.name} holds other arrays than {_FILE} describes")
    return Record(
        document["id"],
        document["kind"],
        document["config"],
        arrays,
        {name: entry["meaning"] for name, entry in document["arrays"].items()},
        document["created"],
        document["wall_seconds"],
        document["environment"],
        document.get("facts", {}),
    )


def find(root: Path, kind: str, config: Mapping[str, Any]) -> Record | None:
    """The record of this question under `root`, or None if it was never finished.

    A damaged one is named, and its files are set aside, so that it can be computed again.

    Raises:
        ValueError: If it was written in a format of another version.
        OSError: If it cannot be read, or is damaged and cannot be set aside.
    """
    folder = root / record_id(kind, config)
    try:
        return load(folder)
    except FileNotFoundError:
        return None
    except DamagedRecordError:
        with sole_writer(folder):
            return _mended(folder)


def folders_of(root: Path, kind: str) -> list[Path]:
    """Folders under `root` that are named as records of this kind are, finished or not."""
    return sorted(root.glob(f"{kind}-{'[0-9a-f]' * _HASH}"))


def listing(root: Path) -> Iterator[Listed]:
    """Every record under `root`, damaged ones included, by name."""
    for path in sorted(root.glob(f"*/{_FILE}")):
        try:
            record = load(path.parent)
            yield Listed(record.id, record.kind, record.created, record.wall_seconds, "")
        except (ValueError, OSError) as problem:
            yield Listed(path.parent.name, "", "", 0.0, str(problem))


def _arrays_name(checksum: str) -> str:
    return f"arrays-{checksum[:12]}.npz"


def _document(folder: Path) -> dict[str, Any]:
    path = folder / _FILE
    data = read_file(path)
    try:
        document = from_sealed_json(data, keys=(*_FIELDS, "facts"))
    except ValueError as damage:
        raise DamagedRecordError(f"{path}: {damage}") from None
    if not all(isinstance(document.get(k), t) for k, t in _FIELDS.items()):
        raise DamagedRecordError(f"{path}: not a record")
    if not isinstance(document.get("facts", {}), dict) or not _is_time(document["wall_seconds"]):
        raise DamagedRecordError(f"{path}: not a record")
    if document["format"] != FORMAT:
        raise ValueError(
            f"{path}: has format {document['format']!r}, this version reads {FORMAT}; use another folder, or pass "
            "--fresh to compute it again."
        )
    asked = _name(document["kind"], document["config"], document["environment"].get("projnorm"))
    if not document["id"] == folder.name == asked:
        raise DamagedRecordError(f"{path}: does not belong to this folder, or its configuration was changed")
    if not all(isinstance(entry, dict) and "meaning" in entry for entry in document["arrays"].values()):
        raise DamagedRecordError(f"{path}: does not describe its arrays")
    if not _CHECKSUM.fullmatch(document["arrays_sha256"]):
        raise DamagedRecordError(f"{path}: does not say what its arrays hash to")
    return document


def _mended(folder: Path) -> Record | None:
    """The record, if another process has computed it meanwhile; else its damaged files are set aside."""
    try:
        return load(folder)
    except FileNotFoundError:
        return None
    except DamagedRecordError as damage:
        aside = folder / _DAMAGED
        aside.mkdir(exist_ok=True)
        for path in (folder / _FILE, *folder.glob("arrays-*.npz")):
            path.replace(aside / path.name)
        notice(f"{damage}; its files are now in {aside}, and it is computed again.")
        return None


def _is_time(seconds: float) -> bool:
    try:
        return math.isfinite(seconds)
    except OverflowError:  # a whole number with hundreds of digits
        return False


def _name(kind: str, config: Mapping[str, Any], version: str | None) -> str:
    canonical = json.dumps({"format": FORMAT, "projnorm": version, "kind": kind, "config": config}, sort_keys=True)
    return f"{kind}-{hashlib.sha256(canonical.encode()).hexdigest()[:_HASH]}"
