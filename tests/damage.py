"""Files with a few bytes changed and the end cut off, as a bad disk or an attacker would leave them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def damaged_copies(whole: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    """`count` copies of the bytes, each damaged differently; every other one is cut short too."""
    rng = np.random.default_rng(seed)
    for copy in range(count):
        data = np.frombuffer(whole, np.uint8).copy()
        for position in rng.integers(len(data), size=rng.integers(1, 6)):
            data[position] = rng.integers(256)
        yield data[: rng.integers(1, len(data) + 1) if copy % 2 else len(data)].tobytes()
