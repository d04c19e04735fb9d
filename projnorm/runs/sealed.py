"""JSON documents and NPZ files that carry the checksum of what they hold, so that damage is seen.

A sealed document is plain JSON with one more entry; a sealed NPZ file is a plain one whose archive has a comment.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

from projnorm.files import parse_json

_ENTRY = "seal"
_MARK = b"sha256:"
_COMMENT = len(_MARK) + 64


def sealed_json(document: Mapping[str, Any], *, indent: int | None = 1) -> bytes:
    """The document as JSON text with its seal; without `indent`, on one line."""
    plain = json.loads(json.dumps(document))
    return (json.dumps({**plain, _ENTRY: _seal(plain)}, indent=indent) + "\n").encode()


def from_sealed_json(data: bytes, *, keys: Collection[str]) -> dict[str, Any]:
    """The document, without its seal.

    Args:
        data: What is in the file.
        keys: Entries that documents had before there were seals; one without a seal may have no others.

    Raises:
        ValueError: If it is not whole.
    """
    document = parse_json(data)
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    seal = document.pop(_ENTRY, None)
    if seal is None and (unknown := [key for key in document if key not in keys]):
        raise ValueError(f"has the unknown entry {unknown[0][:40]!r}")
    if seal is not None and seal != _seal(document):
        raise ValueError("its checksum differs")
    return document


def sealed_npz(data: bytes) -> bytes:
    """The bytes of an NPZ file, which has no comment, with their checksum as its comment."""
    return data[:-2] + _COMMENT.to_bytes(2, "little") + _MARK + hashlib.sha256(data[:-2]).hexdigest().encode()


def require_seal(data: bytes) -> None:
    """Check that the bytes are those that `sealed_npz` made.

    Raises:
        ValueError: If they are not whole.
    """
    # Of fewer bytes than a seal has, nothing is left to hash, and the seal is none.
    if data[-_COMMENT - 2 :] != sealed_npz(data[: -_COMMENT - 2] + b"\0\0")[-_COMMENT - 2 :]:
        raise ValueError("its checksum differs")


def _seal(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
