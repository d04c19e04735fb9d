"""Tiles of a kernel on disk: each written whole, then marked done in a manifest that says what it was made from."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from projnorm.files import parse_json, read_file
from projnorm.runs.arrays import from_npy
from projnorm.runs.atomic import write_atomically

FORMAT = 1
_MANIFEST = "manifest.json"


class ChangedInputError(ValueError):
    """A folder of tiles that was made from something else."""


class TileStore:
    """Tiles by name, in memory or in a folder from which a later run goes on."""

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
        self._folder = folder
        self._identity = dict(identity)
        self._tiles: dict[str, np.ndarray] = {}
        self._done: dict[str, str] = {}
        self.damaged: list[str] = []
        if folder is None:
            return
        if fresh:
            _forget(folder)
        manifest = read_manifest(folder)
        if manifest is not None:
            _require_same(manifest["identity"], self._identity, folder)
            self._done = {name: digest for name, digest in manifest["tiles"].items() if self._is_whole(name, digest)}
            self.damaged = sorted(set(manifest["tiles"]) - set(self._done))
        if manifest is None or self.damaged:
            self._write_manifest()

    def __contains__(self, name: str) -> bool:
        return name in self._tiles or name in self._done

    def put(self, name: str, tile: np.ndarray) -> None:
        """Keep a tile: its file first, then its mark."""
        if self._folder is None:
            self._tiles[name] = tile
            return
        data = _to_npy(tile)
        write_atomically(self._path(name), data)
        self._done[name] = hashlib.sha256(data).hexdigest()
        self._write_manifest()

    def get(self, name: str) -> np.ndarray:
        """A tile that is there.

        Raises:
            ChangedInputError: If its file was damaged after the store was opened.
        """
        if self._folder is None:
            return self._tiles[name]
        data = read_file(self._path(name))
        if hashlib.sha256(data).hexdigest() != self._done[name]:
            raise ChangedInputError(f"{self._path(name)} changed while it was in use; run the same command again.")
        return from_npy(data)

    def _is_whole(self, name: str, digest: str) -> bool:
        try:
            return hashlib.sha256(read_file(self._path(name))).hexdigest() == digest
        except (OSError, ValueError):
            return False

    def _path(self, name: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{name}.npy"

    def _write_manifest(self) -> None:
        assert self._folder is not None
        document = {"format": FORMAT, "identity": self._identity, "tiles": self._done}
        write_atomically(self._folder / _MANIFEST, (json.dumps(document, indent=1) + "\n").encode())


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a folder of tiles; None where there is none, or none that can be read.

    Raises:
        ChangedInputError: If another version wrote it.
    """
    try:
        document = parse_json(read_file(folder / _MANIFEST))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    if not isinstance(document, dict):
        return None
    if isinstance(document.get("format"), int) and document["format"] != FORMAT:
        raise ChangedInputError(
            f"{folder} holds tiles of format {document['format']}, this version writes {FORMAT}; pass --fresh to "
            "compute them again, or use another folder."
        )
    if document.get("format") != FORMAT or not all(
        isinstance(document.get(key), dict) for key in ("identity", "tiles")
    ):
        return None
    return document


def _forget(folder: Path) -> None:
    """Remove what this module writes, and nothing else that may be in the folder."""
    for path in (folder / _MANIFEST, *folder.glob("[0-9]*-[0-9]*.npy")):
        path.unlink(missing_ok=True)


def _require_same(old: Mapping[str, Any], new: Mapping[str, Any], folder: Path) -> None:
    new = json.loads(json.dumps(new))
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
