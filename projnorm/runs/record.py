"""The record of a run: what was asked, what came out, and where. One folder a run, named after what was asked.

``record.json`` holds the configuration, the environment and the checksum of ``arrays-<checksum>.npz``. The JSON is
written last and in one step, so a record is either whole or not there, and replacing one never loses the old.
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
from projnorm.files import parse_json, read_file
from projnorm.runs.arrays import Arrays, from_npz, to_npz
from projnorm.runs.atomic import write_atomically
from projnorm.runs.environment import current_environment

FORMAT = 1
# Digits of the hash in a name.
_HASH = 10
_FILE = "record.json"
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
    write_atomically(arrays_file, data)
    write_atomically(folder / _FILE, (json.dumps(document, indent=1) + "\n").encode())
    for stale in folder.glob("arrays-*.npz"):
        if stale != arrays_file:
            stale.unlink()
    return folder


def load(folder: Path) -> Record:
    """Read a record and check it against its checksum.

    Raises:
        FileNotFoundError: If there is no record.
        DamagedRecordError: If it is not whole.
    """
    document = _document(folder)
    arrays_file = folder / _arrays_name(document["arrays_sha256"])
    try:
        data = read_file(arrays_file)
    except FileNotFoundError:
        raise DamagedRecordError(f"{folder}: {arrays_file.name} is missing") from None
    except ValueError as error:
        raise DamagedRecordError(str(error)) from None
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
    """The record of this question under `root`, or None if it was never finished."""
    try:
        return load(root / record_id(kind, config))
    except FileNotFoundError:
        return None


def folders_of(root: Path, kind: str) -> list[Path]:
    """Folders under `root` that are named as records of this kind are, finished or not."""
    return sorted(root.glob(f"{kind}-{'[0-9a-f]' * _HASH}"))


def listing(root: Path) -> Iterator[Listed]:
    """Every record under `root`, damaged ones included, by name."""
    for path in sorted(root.glob(f"*/{_FILE}")):
        try:
            record = load(path.parent)
            yield Listed(record.id, record.kind, record.created, record.wall_seconds, "")
        except (DamagedRecordError, OSError) as problem:
            yield Listed(path.parent.name, "", "", 0.0, str(problem))


def _arrays_name(checksum: str) -> str:
    return f"arrays-{checksum[:12]}.npz"


def _document(folder: Path) -> dict[str, Any]:
    path = folder / _FILE
    try:
        data = read_file(path)
    except ValueError as error:
        raise DamagedRecordError(str(error)) from None
    try:
        document = parse_json(data)
    except ValueError as error:
        raise DamagedRecordError(f"{path}: {error}") from None
    if not isinstance(document, dict) or not all(isinstance(document.get(k), t) for k, t in _FIELDS.items()):
        raise DamagedRecordError(f"{path}: not a record")
    if not isinstance(document.get("facts", {}), dict) or not _is_time(document["wall_seconds"]):
        raise DamagedRecordError(f"{path}: not a record")
    if document["format"] != FORMAT:
        raise DamagedRecordError(f"{path}: format {document['format']!r}, this version reads {FORMAT}")
    asked = _name(document["kind"], document["config"], document["environment"].get("projnorm"))
    if not document["id"] == folder.name == asked:
        raise DamagedRecordError(f"{path}: does not belong to this folder, or its configuration was changed")
    if not all(isinstance(entry, dict) and "meaning" in entry for entry in document["arrays"].values()):
        raise DamagedRecordError(f"{path}: does not describe its arrays")
    if not _CHECKSUM.fullmatch(document["arrays_sha256"]):
        raise DamagedRecordError(f"{path}: does not say what its arrays hash to")
    return document


def _is_time(seconds: float) -> bool:
    try:
        return math.isfinite(seconds)
    except OverflowError:  # a whole number with hundreds of digits
        return False


def _name(kind: str, config: Mapping[str, Any], version: str | None) -> str:
    canonical = json.dumps({"format": FORMAT, "projnorm": version, "kind": kind, "config": config}, sort_keys=True)
    return f"{kind}-{hashlib.sha256(canonical.encode()).hexdigest()[:_HASH]}"
