"""Tensors on disk with what they are: a safetensors file named after its hash, and a small JSON file that points to it.

The JSON file is written last, so a checkpoint is whole or not there; replacing one never loses the old. Both carry the
hash of what they hold, and a damaged checkpoint is named.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from projnorm.files import read_file
from projnorm.runs import from_sealed_json, notice, sealed_json, write_atomically


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """Tensors by name and the facts that came with them."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]


def save_checkpoint(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write a checkpoint; `path` is that of its JSON file.

    Raises:
        OSError: If it cannot be written; an earlier one is then still whole.
    """
    # Copies, since networks may share tensors, which safetensors refuses.
    data = save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()})
    sha256 = hashlib.sha256(data).hexdigest()
    kept = _file(path, sha256)
    write_atomically(kept, data)
    write_atomically(path, sealed_json({"sha256": sha256, "facts": dict(facts)}, indent=None))
    for stale in path.parent.glob(f"{path.stem}-*.safetensors"):
        if stale != kept:
            stale.unlink(missing_ok=True)


def load_checkpoint(path: Path) -> Checkpoint | None:
    """The checkpoint, or None where there is none or it is damaged, which is said.

    Raises:
        ValueError: If it is larger than may be read.
        OSError: If it cannot be read.
    """
    try:
        text = read_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        document = _document(text)
    except ValueError as damage:
        return _told(path, damage)
    try:
        data = read_file(_file(path, document["sha256"]))
    except FileNotFoundError:
        return _told(path, "its tensors are missing")
    if hashlib.sha256(data).hexdigest() != document["sha256"]:
        return _told(path, "the checksum of its tensors differs")
    try:
        return Checkpoint(load(data), document["facts"])
    except (ValueError, RuntimeError, SafetensorError) as damage:
        return _told(path, damage)


def checkpoint_hash(path: Path) -> str:
    """The SHA-256 of the tensors of a checkpoint that is there.

    Raises:
        ValueError: If it is damaged.
    """
    try:
        return str(_document(read_file(path))["sha256"])
    except ValueError as damage:
        raise ValueError(f"{path} is damaged ({damage}); the command that made it computes it again.") from None


def _told(path: Path, damage: object) -> Checkpoint | None:
    notice(f"{path} is damaged ({damage}); it is computed again.")
    return None


def _document(text: bytes) -> dict[str, Any]:
    document = from_sealed_json(text, keys=("sha256", "facts"))
    if not isinstance(document.get("sha256"), str) or not isinstance(document.get("facts"), dict):
        raise ValueError("not the description of a checkpoint")
    return document


def _file(path: Path, sha256: str) -> Path:
    return path.with_name(f"{path.stem}-{sha256[:12]}.safetensors")
