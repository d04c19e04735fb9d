"""One look for all figures: legible in a paper's column, safe for colour-blind readers and grey print.

Matplotlib is imported when a figure is drawn, not before: what only prints numbers does not wait for it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from projnorm.atomic import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("pdf", "svg", "png")
# Width that most figures are drawn at, in inches, and the widths that a paper asks for.
WIDTH = 5.5
WIDTHS = {"column": 3.3, "page": 6.8}

# Seaborn's palette "colorblind". Its blue, orange, green and grey also differ in lightness.
CYCLE = ("#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#ca9161", "#fbafe4", "#949494", "#ece133", "#56b4e9")
GENERALISED, PAPER, SHARP = CYCLE[:3]
TRUTH = "0.15"
OTHERS = "0.75"

_RC: dict[str, Any] = {
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
    # Journals refuse Type 3 fonts; text in an SVG stays text.
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
}
_SMALLEST_FONT = 6.0


@contextmanager
def drawing(width: float, height: float, *, heading: str = "", x: str = "", y: str = "") -> Iterator[Figure]:
    """A new figure in the house style, laid out when the block ends; the caller's settings are left alone.

    The layout is computed once and kept, because one that is computed at every drawing drifts by a hair.

    Args:
        width: Width in inches.
        height: Height in inches.
        heading: What was run, in small print above the figure.
        x: Label under all panels together.
        y: Label beside all panels together.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_RC):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        if heading:
            figure.suptitle(heading, fontsize=7)
        if x:
            figure.supxlabel(x, fontsize=9)
        if y:
            figure.supylabel(y, fontsize=9)
        _lay_out(figure)


def grid_size(count: int, few: int = 3, many: int = 4) -> tuple[int, int]:
    """Rows and columns of a grid of panels: `few` columns up to nine panels, `many` for more."""
    columns = min(count, few if count <= 9 else many)
    return -(-count // columns), columns


def panels(figure: Figure, count: int, columns: int, **options: Any) -> list[Axes]:
    """As many panels as asked for, row by row; the places left over stay empty."""
    grid = figure.subplots(-(-count // columns), columns, squeeze=False, **options)
    for axes in grid.flat[count:]:
        axes.set_axis_off()
    return list(grid.flat[:count])


def shades(count: int) -> list[Any]:
    """Colours from light to dark for things that have an order."""
    from matplotlib import colormaps

    return [colormaps["viridis_r"]((i + 1) / (count + 1)) for i in range(count)]


def rendered(figure: Figure, extension: str) -> bytes:
    """The figure as bytes, the same for the same figure: no date is written into it."""
    import matplotlib as mpl

    buffer = io.BytesIO()
    dateless = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(extension)
    with mpl.rc_context(_RC):
        figure.savefig(buffer, format=extension, metadata=dateless)
    return buffer.getvalue()


def save(
    figure: Figure,
    folder: Path,
    name: str,
    *,
    formats: Sequence[str] = FORMATS,
    width: str | float | None = None,
) -> list[Path]:
    """Write the figure into `folder`, a file for each format.

    Args:
        figure: The figure; with a `width` it is changed to that.
        folder: Folder to write into.
        name: File name without its ending.
        formats: Endings of the files: "pdf", "svg", "png".
        width: "column" (3.3 inches), "page" (6.8 inches), or a number of inches; the height follows. As drawn by
            default.

    Raises:
        ValueError: If there is no such format or width.
        OSError: If a file cannot be written.
    """
    if unknown := [form for form in formats if form not in FORMATS]:
        raise ValueError(f"`formats` must be of {', '.join(FORMATS)}; got {unknown[0]!r}.")
    if width is not None:
        _resize(figure, inches(width))
    paths = [folder / f"{name}.{extension}" for extension in formats]
    for path, extension in zip(paths, formats, strict=True):
        write_atomically(path, rendered(figure, extension))
    return paths


def inches(width: str | float) -> float:
    """A width in inches, from the name of a paper's width or a number.

    Raises:
        ValueError: If it is neither.
    """
    try:
        found = WIDTHS[width] if isinstance(width, str) and width in WIDTHS else float(width)
    except ValueError:
        found = 0.0
    if not 1.0 <= found <= 50.0:
        raise ValueError(f"`width` must be {', '.join(WIDTHS)} or a number of inches from 1 to 50; got {width!r}.")
    return found


def _resize(figure: Figure, width: float) -> None:
    """Another width at the same aspect; text shrinks less than the rest, so that it stays legible, and never grows."""
    import matplotlib as mpl
    from matplotlib.collections import PathCollection
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

    scale = width / figure.get_figwidth()
    for text in figure.findobj(Text):
        text.set_fontsize(min(text.get_fontsize(), max(_SMALLEST_FONT, scale * text.get_fontsize())))
    for line in figure.findobj(Line2D):
        line.set_linewidth(scale * line.get_linewidth())
        line.set_markersize(scale * line.get_markersize())
    for points in figure.findobj(PathCollection):
        points.set_sizes(scale**2 * points.get_sizes())
    figure.set_size_inches(figure.get_size_inches() * scale)
    with mpl.rc_context(_RC):
        _lay_out(figure)


def _lay_out(figure: Figure) -> None:
    figure.set_layout_engine("constrained")
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
