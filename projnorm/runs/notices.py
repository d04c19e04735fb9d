"""What a user must hear of without anything having failed: damage that is mended, a wait for another process.

The command line shows it on stderr; a program that imports the library hears it through `logging`.
"""

from __future__ import annotations

import logging

LOGGER = logging.getLogger("projnorm")


def notice(message: str) -> None:
    """Say one line."""
    LOGGER.warning(message)
