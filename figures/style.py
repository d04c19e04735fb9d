"""One look for all figures: legible at column width, safe for colour-blind readers and grey print."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import seaborn as sns
from matplotlib.figure import Figure

from projnorm.runs import write_atomically

COLUMN_WIDTH = 5.5
FORMATS = ("pdf", "svg", "png")

_PALETTE = sns.color_palette("colorblind")
# Blue, orange, green and grey of the colour-blind palette also differ in lightness.
PAPER = _PALETTE[1]
GENERALISED = _PALETTE[0]
SHARP = _PALETTE[2]
TRUTH = "0.15"
CYCLE = tuple(_PALETTE)

_RC: dict[Any, Any] = {
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "svg.hashsalt": "projnorm",
}


@contextmanager
def house_style() -> Iterator[None]:
    """Draw in the house style inside the block and leave the caller's settings alone."""
    with mpl.rc_context(_RC):
        yield


def settled(figure: Figure) -> Figure:
    """The figure with its layout computed once and kept; a layout computed at every drawing drifts by a hair."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def rendered(figure: Figure, extension: str) -> bytes:
    """The figure as bytes, the same for the same figure: no date is written into it."""
    buffer = io.BytesIO()
    dateless = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(extension)
    with mpl.rc_context(_RC):
        figure.savefig(buffer, format=extension, metadata=dateless)
    return buffer.getvalue()


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write ``name.pdf``, ``.svg`` and ``.png`` into `folder`."""
    paths = [folder / f"{name}.{extension}" for extension in FORMATS]
    for path, extension in zip(paths, FORMATS, strict=True):
        write_atomically(path, rendered(figure, extension))
    return paths
