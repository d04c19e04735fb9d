"""One colour and one marker per family of shifts, and one shade per severity, the same in every figure of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from figures.style import CYCLE, TRUTH, Axes, Figure, panels

_MARKERS = "osD^vP<>pXhd8*H"
CLEAN = "clean"


def styles(families: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour and marker of each family, in the order they first appear; the clean set is black."""
    shifted = [family for family in dict.fromkeys(families) if family != CLEAN]
    others = {
        family: {"color": CYCLE[i % len(CYCLE)], "marker": _MARKERS[i % len(_MARKERS)]}
        for i, family in enumerate(shifted)
    }
    return {CLEAN: {"color": TRUTH, "marker": "*"}} | others


def label_of(family: str) -> str:
    """A family as it is written in a legend."""
    return family.replace("_", " ")


def by_family(families: np.ndarray) -> list[tuple[str, np.ndarray, dict[str, Any]]]:
    """The families of a run, the clean set first: name, indices of its targets, and style."""
    groups = [(name, np.flatnonzero(families == name), style) for name, style in styles(families.tolist()).items()]
    return [group for group in groups if len(group[1])]


def scatter(axes: Axes, x: np.ndarray, y: np.ndarray, families: np.ndarray, severities: np.ndarray) -> None:
    """One point per target: its family in colour and marker, its severity in size."""
    for family, members, style in by_family(families):
        sizes = _area(severities[members]) if family != CLEAN else 60
        axes.scatter(x[members], y[members], s=sizes, alpha=0.8, linewidths=0, label=label_of(family), **style)


def size_keys(severities: np.ndarray) -> list[Any]:
    """Legend entries for the sizes of points: the weakest and the strongest shift."""
    from matplotlib.lines import Line2D

    levels = sorted({int(level) for level in severities if level > 0})
    return [
        Line2D([], [], ls="none", marker="o", mfc="none", mec=TRUTH, ms=_area(level) ** 0.5, label=f"severity {level}")
        for level in dict.fromkeys((*levels[:1], *levels[-1:]))
        if len(levels) > 1
    ]


def severity_panels(
    figure: Figure,
    arrays: Mapping[str, np.ndarray],
    families: Sequence[str],
    *,
    size: tuple[float, float],
    margin: tuple[float, float],
    dashed: str,
) -> Iterator[tuple[Axes, str, list[tuple[int, Any]]]]:
    """A panel for each family with the indices of its targets and a colour for each, darker for stronger shifts.

    The legend has the severities, and what the dashed line is that the caller draws in every panel.
    """
    import seaborn as sns
    from matplotlib.lines import Line2D

    severities = arrays["severities"].tolist()
    levels = sorted({level for level in severities if level > 0})
    shade = {0: TRUTH} | dict(zip(levels, sns.color_palette("viridis_r", len(levels)), strict=True))
    options: dict[str, Any] = {"columns": (3, 5), "sharex": True, "sharey": True}
    for axes, family in panels(figure, families, size=size, margin=margin, **options):
        members = np.flatnonzero(arrays["families"] == family).tolist()
        yield axes, family, [(target, shade[severities[target]]) for target in members]
    keys = [Line2D([], [], color=shade[level], lw=1.2, label=f"severity {level}") for level in levels]
    keys.append(Line2D([], [], color=TRUTH, ls="--", lw=0.9, label=dashed))
    figure.legend(handles=keys, loc="outside right upper", fontsize=7)


def _area(severity: Any) -> Any:
    return 10 + 7 * severity
