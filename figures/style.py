"""One look for all figures: legible in a paper's column, safe for colour-blind readers and grey print.

Matplotlib is imported when a figure is drawn, not before: what only prints numbers does not wait for it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from projnorm.atomic import write_atomically
from projnorm.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:  # names for annotations
    Axes = Figure = object

FORMATS = ("pdf", "svg", "png")
# Width that most figures are drawn at, in inches, and the widths that a paper asks for.
WIDTH = 4.8
WIDTHS = {"column": 3.3, "page": 6.8}

# Seaborn's palette "colorblind". Its blue, orange, green and grey also differ in lightness.
CYCLE = ("#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#ca9161", "#fbafe4", "#949494", "#ece133", "#56b4e9")
GENERALISED, PAPER, SHARP = CYCLE[:3]
TRUTH = "0.15"
OTHERS = "0.75"

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
    # Journals refuse Type 3 fonts; text in an SVG stays text.
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
}
_POINTS = 72
_SVG_SIZE = re.compile(rb'(?<= )(width|height)="([\d.]+)pt"')


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
    import seaborn as sns

    return list(sns.color_palette("viridis_r", count))


def rendered(figure: Figure, extension: str, *, scale: float = 1.0) -> bytes:
    """The figure as bytes, the same for the same figure: no date is written into it.

    Args:
        figure: The figure.
        extension: "pdf", "svg" or "png".
        scale: Size of the result over that of the figure as drawn, text and lines included.
    """
    import matplotlib as mpl

    buffer = io.BytesIO()
    with mpl.rc_context(_RC):
        if extension == "pdf":
            _write_pdf(figure, buffer, scale)
        elif extension == "svg":
            figure.savefig(buffer, format="svg", metadata={"Date": None})
            return _SVG_SIZE.sub(lambda size: b'%s="%gpt"' % (size[1], scale * float(size[2])), buffer.getvalue(), 2)
        else:
            figure.savefig(buffer, format=extension, dpi=scale * mpl.rcParams["savefig.dpi"])
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
        figure: The figure.
        folder: Folder to write into.
        name: File name without its ending.
        formats: Endings of the files: "pdf", "svg", "png".
        width: "column" (3.3 inches), "page" (6.8 inches), or a number of inches, to which the whole figure is scaled;
            as drawn by default.

    Raises:
        InputError: If there is no such format or width.
        OSError: If a file cannot be written.
    """
    if unknown := [form for form in formats if form not in FORMATS]:
        raise InputError(f"`formats` must be of {', '.join(FORMATS)}; got {unknown[0]!r}.")
    scale = 1.0 if width is None else inches(width) / figure.get_figwidth()
    paths = [folder / f"{name}.{extension}" for extension in formats]
    for path, extension in zip(paths, formats, strict=True):
        write_atomically(path, rendered(figure, extension, scale=scale))
    return paths


def inches(width: str | float) -> float:
    """A width in inches, from the name of a paper's width or a number.

    Raises:
        InputError: If it is neither.
    """
    try:
        size = WIDTHS[width] if isinstance(width, str) and width in WIDTHS else float(width)
    except ValueError:
        size = 0.0
    if not 1.0 <= size <= 50.0:
        raise InputError(f"`width` must be {', '.join(WIDTHS)} or a number of inches from 1 to 50; got {width!r}.")
    return size


def _write_pdf(figure: Figure, buffer: io.BytesIO, scale: float) -> None:
    """As `savefig` does, on a page of another size, whose coordinates are scaled."""
    pdf: Any = import_module("matplotlib.backends.backend_pdf")
    width, height = figure.get_size_inches()
    dpi = figure.dpi
    file = pdf.PdfFile(buffer, metadata={"CreationDate": None})
    try:
        figure.dpi = _POINTS
        file.newPage(scale * width, scale * height)
        file.output(scale, 0, 0, scale, 0, 0, pdf.Op.concat_matrix)
        page = pdf.RendererPdf(file, _POINTS, height, width)
        renderer = pdf.MixedModeRenderer(figure, width, height, _POINTS, page)
        figure.draw(renderer)
        renderer.finalize()
        file.finalize()
    finally:
        figure.dpi = dpi
        file.close()


def _lay_out(figure: Figure) -> None:
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
