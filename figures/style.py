"""One look for all figures: legible in a paper's column, safe for colour-blind readers and grey print.

Matplotlib is imported when a figure is drawn, not before: what only prints numbers does not wait for it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from projnorm.core.atomic import write_atomically
from projnorm.core.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:  # names for annotations
    Axes = Figure = object

P = ParamSpec("P")
Group = TypeVar("Group")

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
    "figure.titlesize": 7,
    "figure.labelsize": 9,
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


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure that is drawn when it is called.

    Attributes:
        title: Heading of the figure.
        caption: What to see in it.
        draw: Function that draws it.
    """

    title: str
    caption: str
    draw: Callable[[], Figure]

    def __call__(self) -> Figure:
        """Draw it."""
        return self.draw()


@dataclass(frozen=True, slots=True)
class Plot(Generic[P]):
    """A kind of figure, made by the decorator `plot`; called with what it shows, it gives the figure.

    It is of this size, width and height in inches, unless the function that fills an empty figure sets another.
    """

    title: str
    caption: str
    size: tuple[float, float]
    paint: Callable[Concatenate[Figure, P], None]

    def __call__(self, *args: P.args, **options: P.kwargs) -> Figure:
        """Draw it in the house style; the caller's settings are left alone."""
        import matplotlib as mpl
        from matplotlib.figure import Figure

        with mpl.rc_context(_RC):
            figure = Figure(figsize=self.size, layout="constrained")
            self.paint(figure, *args, **options)
            _lay_out(figure)
        return figure

    def later(self, *args: P.args, **options: P.kwargs) -> Drawing:
        """The figure of these arguments, to be drawn later."""
        return Drawing(self.title, self.caption, partial(self, *args, **options))


def plot(
    title: str, caption: str, width: float = WIDTH, height: float = 3.4
) -> Callable[[Callable[Concatenate[Figure, P], None]], Plot[P]]:
    """Decorator of the function that fills an empty figure of this size in inches."""
    return partial(Plot, title, caption, (width, height))


def panels(
    figure: Figure,
    groups: Sequence[Group],
    *,
    size: tuple[float, float],
    margin: tuple[float, float],
    columns: tuple[int, int] = (3, 4),
    **options: Any,
) -> list[tuple[Axes, Group]]:
    """A panel for each group, row by row; the places left over stay empty.

    The figure becomes as large as panels of this size need, in inches, with a margin for labels and legends. The first
    number of columns is for up to nine panels, the second for more.
    """
    width = min(len(groups), columns[len(groups) > 9])
    height = -(-len(groups) // width)
    figure.set_size_inches(margin[0] + size[0] * width, margin[1] + size[1] * height)
    grid = figure.subplots(height, width, squeeze=False, **options)
    for axes in grid.flat[len(groups) :]:
        axes.set_axis_off()
    return list(zip(grid.flat, groups, strict=False))


def rendered(figure: Figure, extension: str, *, scale: float = 1.0) -> bytes:
    """The figure as the bytes of a "pdf", "svg" or "png" file, the same for the same figure: without a date.

    The whole figure is scaled, text and lines included.
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
    """
    if unknown := [form for form in formats if form not in FORMATS]:
        raise InputError(f"`formats` must be of {', '.join(FORMATS)}; got {unknown[0]!r}.")
    scale = 1.0 if width is None else inches(width) / figure.get_figwidth()
    paths = [folder / f"{name}.{extension}" for extension in formats]
    for path, extension in zip(paths, formats, strict=True):
        write_atomically(path, rendered(figure, extension, scale=scale))
    return paths


def inches(width: str | float) -> float:
    """A width in inches, from the name of a paper's width or a number."""
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
    (width, height), dpi = figure.get_size_inches(), figure.dpi
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
    """Lay the figure out once and keep that, because a layout computed at every drawing drifts by a hair."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
