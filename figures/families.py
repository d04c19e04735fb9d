"""One colour and one marker per family of shifts, the same in every figure of an experiment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from figures.style import CYCLE, TRUTH

_MARKERS = "osD^vP<>pXhd8*H"
CLEAN = "clean"


def looks(families: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour and marker of each family, in the order they first appear; the clean set is black."""
    shifted = [family for family in dict.fromkeys(families) if family != CLEAN]
    found = {
        family: {"color": CYCLE[i % len(CYCLE)], "marker": _MARKERS[i % len(_MARKERS)]}
        for i, family in enumerate(shifted)
    }
    return {CLEAN: {"color": TRUTH, "marker": "*"}} | found


def spoken(family: str) -> str:
    """A family as it is written in a legend."""
    return family.replace("_", " ")
