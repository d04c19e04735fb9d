"""`projnorm figures` and `report`: theory figures, and the page that shows them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from projnorm.cli.experiment import run_context
from projnorm.cli.options import FigureOptions, OutOption, RunOptions
from projnorm.cli.output import announce, say, say_json, say_paths, write_figures
from projnorm.core.config import Config, seed_setting, setting
from projnorm.core.experiments import experiment
from projnorm.core.records import Record

if TYPE_CHECKING:
    from figures.page import Section


@dataclass(frozen=True)
class ReportOptions(Config):
    """What is computed."""

    full: bool = setting(False, "Publication quality: the paper's sizes and 100,000 designs.")
    seed: int = seed_setting()


def figures(options: ReportOptions, out: OutOption, drawing: FigureOptions, run: RunOptions) -> None:
    """Draw every theory figure, and write the tables beside them; records that are missing are computed first."""
    from figures.report import save_tables
    from figures.theory import theory_reports

    reports = theory_reports(_records(options, out, run))
    paths = [path for part in reports for path in write_figures(part, out.figures, drawing)]
    for part in reports:
        save_tables(part, out.figures)
    say_paths(paths, as_json=out.json)


def report(options: ReportOptions, out: OutOption, drawing: FigureOptions, run: RunOptions) -> None:
    """Put every theory figure and table on one page that opens in a browser without a network: start here.

    Records that are missing are computed first. Records of networks in the same folder are shown behind the theory.
    """
    from figures.theory import theory_page
    from projnorm.core.atomic import write_atomically
    from projnorm.core.environment import current_environment

    records = _records(options, out, run)
    html = theory_page(
        records,
        current_environment(),
        full=options.full,
        folder=out.figures,
        formats=drawing.formats,
        width=drawing.width or None,
        more=_network_sections(out.root),
    )
    page = Path(out.out) / "report.html"
    write_atomically(page, html.encode("utf-8"))
    if out.json:
        say_json({"report": str(page), "records": {name: record.id for name, record in records.items()}})
        return
    say(f"Records in {out.root}, figures in {out.figures}.\nOpen {page} in a browser.")


def _records(options: ReportOptions, out: OutOption, run: RunOptions) -> dict[str, Record]:
    from simulations.presets import theory_configs

    context, records = run_context(out, run), {}
    for name, (kind, config) in theory_configs(full=options.full, seed=options.seed).items():
        announce(name.replace("_", " ").replace("sibling:", "toy on the design "))
        records[name] = experiment(kind).compute(config, context)
    return records


def _network_sections(root: Path) -> list[Section]:
    """Sections about networks; torch is not imported where there are no records of them."""
    if not any(root.glob("deep-*/record.json")):
        return []
    from figures.comparison import network_sections

    return network_sections(root)
