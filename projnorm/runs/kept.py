"""Arrays kept on disk until they are needed again: read if they are whole, else computed again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from projnorm.arrays import Arrays, from_npz, to_npz
from projnorm.atomic import write_atomically
from projnorm.files import read_file
from projnorm.runs.notices import notice
from projnorm.runs.sealed import require_seal, sealed_npz


def keep(path: Path, arrays: Arrays) -> None:
    """Write the arrays with their checksum.

    Raises:
        OSError: If they cannot be written.
    """
    write_atomically(path, sealed_npz(to_npz(arrays)))


def kept(path: Path) -> dict[str, NDArray[Any]] | None:
    """The arrays kept there; None where there are none, or they are damaged, which is said.

    Raises:
        ValueError: If there is more than may be read.
        OSError: If there is something that cannot be read.
    """
    try:
        data = read_file(path)
    except FileNotFoundError:
        return None
    try:
        require_seal(data)
        return from_npz(data)
    except ValueError as damage:
        notice(f"{path} is damaged ({damage}); it is computed again.")
        return None
