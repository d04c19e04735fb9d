"""The figures of the theory, and the page that shows them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from figures import bound, interval_widths, toy
from figures.page import Section, page, section
from figures.report import Report
from figures.style import FORMATS
from figures.theory_figures import show_counterexample, show_spectra, show_tail_angle
from projnorm.core.records import Record

# In the order of the report; "siblings" are the toy experiments of other designs.
_SHOWS: dict[str, Callable[[Record, Path | None], Report]] = {
    "toy": toy.show,
    "bound": bound.show,
    "intervals": interval_widths.show,
    "counterexample": show_counterexample,
    "tail_angle": show_tail_angle,
    "spectra": show_spectra,
}


def theory_reports(records: Mapping[str, Record], root: Path | None = None) -> list[Report]:
    """What the records of the theory say, by the names that `simulations.presets.theory_configs` gives them.

    Designs that break an interval are saved in the folders of their records under `root`; None saves none.
    """
    shows = [show(records[name], root and root / records[name].id) for name, show in _SHOWS.items()]
    shows.insert(1, toy.show_designs([record for name, record in records.items() if name.startswith("sibling:")]))
    return shows


def theory_page(
    records: Mapping[str, Record],
    environment: Mapping[str, Any],
    *,
    full: bool,
    root: Path | None = None,
    folder: Path | None = None,
    formats: Sequence[str] = FORMATS,
    width: str | float | None = None,
    more: Sequence[Section] = (),
) -> str:
    """The report: every figure of the theory with its caption and configuration, the tables, and then `more`.

    Args:
        records: Records of the theory by name, as in `theory_reports`.
        environment: Machine and versions.
        full: Whether the records are at publication quality.
        root: Folder of the records, as in `theory_reports`.
        folder: Folder that the figures are saved in, as in `figures.page.section`, like `formats` and `width`.
        formats: File formats of the figures.
        width: Width of the figures.
        more: Further sections, such as those of networks.
    """
    quality = "at publication quality (`--full`)" if full else "in quick form; `--full` gives publication quality"
    introduction = (
        "How far the test loss of a linear model can be from the square of its Projection Norm, without test labels: "
        f"simulations, bounds, and what breaks them. Made by `projnorm report`, {quality}."
    )
    provenance = {**{k: v for k, v in environment.items() if k != "libraries"}, **environment["libraries"]}
    sections = [section(report, folder, formats=formats, width=width) for report in theory_reports(records, root)]
    return page("projnorm: the theory in pictures", introduction, [*sections, *more], provenance)
