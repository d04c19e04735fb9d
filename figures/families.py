"""One colour and one marker per family of shifts, and one shade per severity, the same in every figure of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from figures.style import CYCLE, TRUTH, Axes, shades

_MARKERS = "osD^vP<>pXhd8*H"
CLEAN = "clean"


def looks(families: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour and marker of each family, in the order they first appear; the clean set is black."""
    shifted = [family for family in dict.fromkeys(families) if family != CLEAN]
    others = {
        family: {"color": CYCLE[i % len(CYCLE)], "marker": _MARKERS[i % len(_MARKERS)]}
        for i, family in enumerate(shifted)
    }
    return {CLEAN: {"color": TRUTH, "marker": "*"}} | others


def spoken(family: str) -> str:
    """A family as it is written in a legend."""
    return family.replace("_", " ")


def scatter(axes: Axes, x: np.ndarray, y: np.ndarray, families: np.ndarray, severities: np.ndarray) -> None:
    """One point per target: its family in colour and marker, its severity in size."""
    for family, style in looks(families.tolist()).items():
        members = np.flatnonzero(families == family)
        if len(members):
            sizes = _area(severities[members]) if family != CLEAN else 60
            axes.scatter(x[members], y[members], s=sizes, alpha=0.8, linewidths=0, label=spoken(family), **style)


def size_keys(severities: np.ndarray) -> list[Any]:
    """Legend entries for the sizes of points: the weakest and the strongest shift."""
    from matplotlib.lines import Line2D

    levels = sorted({int(level) for level in severities if level > 0})
    return [
        Line2D([], [], ls="none", marker="o", mfc="none", mec=TRUTH, ms=_area(level) ** 0.5, label=f"severity {level}")
        for level in dict.fromkeys((*levels[:1], *levels[-1:]))
        if len(levels) > 1
    ]


def severity_shades(severities: Iterable[int]) -> dict[int, Any]:
    """A colour for each severity, darker for stronger shifts."""
    levels = sorted({int(level) for level in severities if level > 0})
    return {0: TRUTH} | dict(zip(levels, shades(len(levels)), strict=True))


def severity_keys(severities: Iterable[int], dashed: str) -> list[Any]:
    """Legend entries for lines: one for each severity, and what the dashed line is."""
    from matplotlib.lines import Line2D

    lines = [
        Line2D([], [], color=colour, lw=1.2, label=f"severity {level}")
        for level, colour in severity_shades(severities).items()
        if level
    ]
    return [*lines, Line2D([], [], color=TRUTH, ls="--", lw=0.9, label=dashed)]


def _area(severity: Any) -> Any:
    return 10 + 7 * severity
