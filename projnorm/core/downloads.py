"""Published files, downloaded once and checked against the checksum that their authors publish."""

from __future__ import annotations

import hashlib
from http.client import HTTPException
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from projnorm.core.atomic import write_atomically
from projnorm.core.errors import InputError
from projnorm.core.files import memory_ceiling, read_file, reason

_TIMEOUT = 60.0


def download(url: str, path: Path, *, algorithm: str, digest: str) -> Path:
    """Download a file unless it is already there; returns `path`. A file that arrives damaged is not stored.

    `digest` is its hash by the function `algorithm` of `hashlib`, or the first digits. A redirect must not leave https.
    """

    def hash_of(data: bytes) -> str:
        return hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()

    if path.is_file() and hash_of(read_file(path)).startswith(digest):
        return path
    try:
        with urlopen(url, timeout=_TIMEOUT) as response:  # noqa: S310
            if url.startswith("https:") and not response.url.startswith("https:"):
                raise URLError(f"it leads to {response.url}, which is not https")
            data: bytes = response.read(memory_ceiling())
    except (OSError, HTTPException) as error:
        cause = getattr(error, "reason", None) or reason(error)
        raise InputError(
            f"cannot download {url} ({cause}); fetch the file on another machine and save it as {path}."
        ) from None
    if not (actual := hash_of(data)).startswith(digest):
        raise InputError(
            f"the download of {url} is damaged ({len(data):,} bytes with {algorithm} {actual}, not {digest}); nothing "
            "was stored, try again."
        )
    write_atomically(path, data)
    return path
