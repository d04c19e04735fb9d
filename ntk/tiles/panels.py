"""Panels of factors on disk: written once, read whenever a tile needs them, deleted when no tile will."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from ntk.features.contraction import Factors
from projnorm.core.atomic import unfinished

# Bytes written and read to measure a disk.
_TRIAL = 1 << 25


class PanelFiles:
    """The panels of one kernel in a folder; the name of a file holds the checksum of its bytes."""

    def __init__(self, folder: Path) -> None:
        """Open the folder, and use the files of an earlier run that was interrupted."""
        self.folder = folder

    def __contains__(self, panel: int) -> bool:
        return self._path(panel) is not None

    def put(self, panel: int, filled: list[Factors]) -> None:
        """Write the factors of a panel."""
        checksum = 0
        for array in _arrays(filled):
            checksum = zlib.crc32(array, checksum)
        with unfinished(self.folder / f"{panel:05d}-{checksum:08x}.panel") as part, part.open("wb") as file:
            for array in _arrays(filled):
                file.write(array)

    def get(self, panel: int, buffer: list[Factors], samples: int) -> list[Factors] | None:
        """Read a panel of `samples` samples into `buffer`; None where it is not there, or damaged and now deleted."""
        path = self._path(panel)
        if path is None:
            return None
        filled = [tuple(t[:samples] for t in factors) for factors in buffer]
        checksum, complete = 0, path.stat().st_size == sum(t.nbytes for factors in filled for t in factors)
        with path.open("rb") as file:
            for factors in filled:
                for t in factors:
                    array = (
                        np.empty(t.shape, str(t.dtype).removeprefix("torch.")) if t.device.type != "cpu" else t.numpy()
                    )
                    view = _bytes(array)
                    complete = complete and file.readinto(view) == len(view)
                    checksum = zlib.crc32(view, checksum)
                    if t.device.type != "cpu":
                        t.copy_(torch.from_numpy(array))
        if not complete or f"{checksum:08x}" != path.stem.partition("-")[2]:
            path.unlink()
            return None
        return filled

    def drop(self, panel: int) -> None:
        """Delete a panel."""
        if (path := self._path(panel)) is not None:
            path.unlink()

    def clear(self) -> None:
        """Delete all panels, and the folder."""
        for path in self.folder.glob("*.panel"):
            path.unlink()
        if self.folder.exists() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _path(self, panel: int) -> Path | None:
        return next(iter(self.folder.glob(f"{panel:05d}-*.panel")), None)


@lru_cache(maxsize=64)
def disk_rate(folder: Path) -> float:
    """Bytes per second that are written to a folder and read from it, the slower of the two, measured once."""
    folder.mkdir(parents=True, exist_ok=True)
    data = os.urandom(_TRIAL)
    path = folder / f".trial-{os.getpid()}"
    try:
        started = time.perf_counter()
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        written = time.perf_counter()
        path.read_bytes()
        slower = max(written - started, time.perf_counter() - written)
    finally:
        path.unlink(missing_ok=True)
    return _TRIAL / slower


def _arrays(filled: list[Factors]) -> Iterator[memoryview]:
    for factors in filled:
        for t in factors:
            yield _bytes(np.ascontiguousarray(t.cpu().numpy()))


def _bytes(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
