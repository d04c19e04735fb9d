"""Tiles of a kernel by name, in memory or in a store from which a later run goes on.

The manifest says what the tiles were computed from. Their folder is named after a digest of it, so that tiles of other
inputs are never mixed with them, even where the manifest is lost.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from projnorm.core.errors import ChangedInputError
from projnorm.core.store import Store, digest

_MANIFEST, _TILE = "manifest", "tile"
_DIGEST = "[0-9a-f]" * 12


class Tiles:
    """The tiles of one kernel, and the names of those that were found damaged when the folder was opened."""

    def __init__(self, folder: Path | None, identity: Mapping[str, Any], *, fresh: bool = False) -> None:
        """Open the folder of the manifest and the tiles; None keeps the tiles in memory.

        The identity holds hashes of what the tiles are computed from, and every choice that changes a bit of them.
        """
        self.store: Store | None = None
        self.damaged: list[str] = []
        self._tiles: dict[str, np.ndarray | None] = {}  # None where the store has it
        if folder is None:
            return
        store = Store(folder.absolute())  # a worker may be in another folder
        if fresh:
            store.remove(_MANIFEST)
            for stale in store.folder.glob(_DIGEST):
                shutil.rmtree(stale)
        known = store.facts(_MANIFEST)
        if known is None:
            store.put(_MANIFEST, facts=identity)
        elif digest(known) != digest(identity):
            changed = sorted(key for key in {*known, *identity} if digest(known.get(key)) != digest(identity.get(key)))
            raise ChangedInputError(
                f"{folder} holds tiles computed from something else (different: {', '.join(changed)}); compute them "
                "again with fresh=True, or use another folder."
            )
        self.store = Store(store.folder / digest(identity))
        names = self.store.keys()
        for name in names:
            if self.store.get(name) is None:
                self.damaged.append(name)
            else:
                self._tiles[name] = None

    def __contains__(self, name: str) -> bool:
        return name in self._tiles

    def put(self, name: str, tile: np.ndarray | None) -> None:
        """Keep a tile; None says that a worker has put it into the store."""
        if self.store is not None and tile is not None:
            write_tile(self.store, name, tile)
        self._tiles[name] = tile if self.store is None else None

    def get(self, name: str) -> np.ndarray:
        """A tile that is there."""
        if (tile := self._tiles[name]) is not None:
            return tile
        assert self.store is not None
        if (entry := self.store.get(name)) is None:
            raise ChangedInputError(f"{self.store.path(name)} changed while it was in use; run the same again.")
        return entry.arrays[_TILE]


def write_tile(store: Store, name: str, tile: np.ndarray) -> None:
    """Put a tile into a store, uncompressed: a kernel has no redundancy that would be worth the time."""
    store.put(name, {_TILE: tile}, compress=False)


def read_manifest(folder: Path) -> Mapping[str, Any]:
    """What the tiles of a folder were computed from; empty where there are none."""
    return Store(folder).facts(_MANIFEST) or {}
