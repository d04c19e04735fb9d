"""Tiles of a kernel on disk: each written whole, under a name that says what it was made from and what it holds.

The name of a tile ends in two hashes, of everything it was made from and of its bytes, so a tile answers for itself:
none is lost with another file. The manifest says in full what the tiles are made from.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from projnorm.files import read_file
from projnorm.runs import from_npy, from_sealed_json, notice, sealed_json, write_atomically

FORMAT = 2
_MANIFEST = "manifest.json"
# Of format 1, which had no seal.
_OLD_ENTRIES = ("format", "identity", "tiles")
# Digits of the two hashes in a name.
_FROM, _BYTES = 8, 16


class ChangedInputError(ValueError):
    """A folder of tiles that was made from something else."""


@dataclass(frozen=True, slots=True)
class TileFiles:
    """Where the tiles of one kernel are kept, and under what names.

    Attributes:
        folder: Of the tiles.
        made_from: Hash of what they are made from.
    """

    folder: Path
    made_from: str

    def write(self, name: str, tile: np.ndarray) -> Path:
        """Put a tile into its file, unless it is there.

        Raises:
            OSError: If it cannot be written.
        """
        data = _to_npy(tile)
        path = self.folder / f"{name}-{self.made_from}-{_hash(data)}.npy"
        if not path.exists():
            write_atomically(path, data)
        return path

    def __iter__(self) -> Iterator[tuple[str, Path]]:
        """Name and file of each that is there, whole or not."""
        for path in sorted(self.folder.glob(f"[0-9]*-[0-9]*-{self.made_from}-*.npy")):
            yield path.stem.rsplit("-", 2)[0], path


class TileStore:
    """Tiles by name, in memory or in a folder from which a later run goes on.

    Attributes:
        files: Where they are; None in memory.
        damaged: Names of tiles that were found damaged when the store was opened.
    """

    def __init__(self, folder: Path | None, identity: Mapping[str, Any], *, fresh: bool = False) -> None:
        """Open the folder, or make it.

        Args:
            folder: Where the tiles are kept; None keeps them in memory.
            identity: What the tiles are made from: hashes and every choice that changes a bit of them.
            fresh: Forget tiles that are there.

        Raises:
            ChangedInputError: If the tiles there were made from something else.
            OSError: If the folder cannot be written.
        """
        self.files: TileFiles | None = None
        self.damaged: list[str] = []
        self._tiles: dict[str, np.ndarray] = {}
        self._paths: dict[str, Path] = {}
        if folder is None:
            return
        if fresh:
            _forget(folder)
        plain = json.loads(json.dumps(identity))
        manifest = read_manifest(folder)
        if manifest is None:
            write_atomically(folder / _MANIFEST, sealed_json({"format": FORMAT, "identity": plain}))
        else:
            _require_same(manifest["identity"], plain, folder)
        made_from = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:_FROM]
        self.files = TileFiles(folder.absolute(), made_from)  # a worker may be in another folder
        for name, path in self.files:
            if _whole(path) is not None:
                self._paths[name] = path
            else:
                notice(f"{path} is damaged; it is computed again.")
                self.damaged.append(name)
                path.unlink()

    def __contains__(self, name: str) -> bool:
        return name in self._tiles or name in self._paths

    def put(self, name: str, tile: np.ndarray | Path) -> None:
        """Keep a tile, or the file that `files` has put it into.

        Raises:
            OSError: If it cannot be written.
        """
        if isinstance(tile, Path):
            self._paths[name] = tile
        elif self.files is None:
            self._tiles[name] = tile
        else:
            self._paths[name] = self.files.write(name, tile)

    def get(self, name: str) -> np.ndarray:
        """A tile that is there.

        Raises:
            ChangedInputError: If its file was damaged after the store was opened.
        """
        if self.files is None:
            return self._tiles[name]
        path = self._paths[name]
        data = _whole(path) if path.exists() else None
        if data is None:
            raise ChangedInputError(f"{path} changed while it was in use; run the same command again.")
        return from_npy(data)


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a folder of tiles; None where there is none, or it is damaged, which is said.

    Raises:
        ChangedInputError: If another version wrote it.
        OSError: If it cannot be read.
    """
    path = folder / _MANIFEST
    try:
        document = from_sealed_json(read_file(path), keys=_OLD_ENTRIES)
        if not isinstance(document.get("format"), int) or not isinstance(document.get("identity"), dict):
            raise ValueError("not a manifest of tiles")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as damage:
        notice(f"{path} is damaged ({damage}); it is written anew.")
        return None
    if document["format"] != FORMAT:
        raise ChangedInputError(
            f"{folder} holds tiles of format {document['format']}, this version writes {FORMAT}; pass --fresh to "
            "compute them again, or use another folder."
        )
    return document


def _whole(path: Path) -> bytes | None:
    """What is in the file of a tile, if it is what its name says.

    Raises:
        ValueError: If it is larger than may be read, which is no damage.
        OSError: If it cannot be read.
    """
    data = read_file(path)
    return data if path.stem.endswith(f"-{_hash(data)}") else None


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_BYTES]


def _forget(folder: Path) -> None:
    """Remove what this module writes, and nothing else that may be in the folder."""
    for path in (folder / _MANIFEST, *folder.glob("[0-9]*-[0-9]*.npy")):
        path.unlink(missing_ok=True)


def _require_same(old: Mapping[str, Any], new: Mapping[str, Any], folder: Path) -> None:
    changed = [key for key in sorted(set(old) | set(new)) if old.get(key) != new.get(key)]
    if changed:
        raise ChangedInputError(
            f"{folder} holds tiles made from something else (different: {', '.join(changed)}); pass --fresh to compute "
            "them again, or use another folder."
        )


def _to_npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getvalue()
