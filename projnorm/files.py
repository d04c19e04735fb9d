"""Where a file of data or weights is."""

from __future__ import annotations

import os
from pathlib import Path

DATA_VARIABLE = "PROJNORM_DATA"


def locate(name: str | Path) -> Path:
    """The file or folder as given, or else under the folder that the environment variable PROJNORM_DATA names.

    A record then keeps the short name, and means the same file on another machine.
    """
    path = Path(name)
    folder = os.environ.get(DATA_VARIABLE)
    if path.exists() or path.is_absolute() or not folder:
        return path
    under = Path(folder) / path
    return under if under.exists() else path
