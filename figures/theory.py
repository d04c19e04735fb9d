"""The theory figures by name with the record each is drawn from, and the page that shows them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from matplotlib.figure import Figure

from figures import (
    blindness,
    bound,
    bound_table,
    counterexample,
    dials,
    spectra,
    tail_angle,
    tightness,
    toy,
    toy_table,
    tracking_table,
)
from figures.report import Section, page
from figures.table import Table
from projnorm.runs import Record


@dataclass(frozen=True, slots=True)
class TheoryFigure:
    """One figure.

    Attributes:
        name: File name without its ending.
        record: Name of the record it is drawn from, as `simulations.presets.theory_records` has it.
        title: Heading in the report.
        caption: What to read from it.
        draw: Draws it.
    """

    name: str
    record: str
    title: str
    caption: str
    draw: Callable[[Record], Figure]


def _of(module: ModuleType, record: str) -> TheoryFigure:
    return TheoryFigure(module.__name__.rpartition(".")[2], record, module.TITLE, module.CAPTION, module.draw)


THEORY_FIGURES = (
    _of(toy, "toy"),
    _of(blindness, "toy"),
    _of(bound, "bound"),
    _of(counterexample, "counterexample"),
    _of(tail_angle, "tail_angle"),
    _of(dials, "bound"),
    _of(tightness, "bound"),
    _of(spectra, "spectra"),
)


def _versions(record: Record) -> dict[str, Any]:
    """The versions behind a record."""
    return {"projnorm": record.environment["projnorm"], **record.environment["libraries"]}


def theory_page(
    records: Mapping[str, Record], environment: Mapping[str, Any], *, full: bool, more: Sequence[Section] = ()
) -> str:
    """The report: every figure with its caption and configuration, and the tables; then what `more` there is."""
    tables: dict[str, tuple[Table, str]] = {
        "toy": (toy_table.build(records["toy"]), toy_table.CAPTION),
        "bound": (bound_table.build(records["bound"]), bound_table.CAPTION),
        "dials": (bound_table.by_dial(records["bound"]), bound_table.DIAL_CAPTION),
    }
    sections = []
    for figure in THEORY_FIGURES:
        record = records[figure.record]
        table, table_caption = tables.get(figure.name, (None, ""))
        sections.append(
            Section(
                figure.title,
                figure.caption,
                figure.draw(record),
                table,
                table_caption,
                {"record": record.id, **record.config, **_versions(record)},
            )
        )
    siblings = [record for name, record in records.items() if name.startswith("sibling:")]
    configuration = {f"record {record.config['design']}": record.id for record in siblings}
    sections.insert(
        2,
        Section(
            "Other designs", tracking_table.CAPTION, table=tracking_table.build(siblings), configuration=configuration
        ),
    )
    quality = "at publication quality (--full)" if full else "in quick form; --full gives publication quality"
    introduction = (
        "How far the test loss of a linear model can be from the square of its Projection Norm, with no test labels: "
        f"simulations, bounds and what breaks them. Made by `projnorm report`, {quality}."
    )
    provenance = {**{k: v for k, v in environment.items() if k != "libraries"}, **environment["libraries"]}
    return page("projnorm: the theory in pictures", introduction, [*sections, *more], provenance)
