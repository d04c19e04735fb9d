"""`projnorm figures` and `projnorm report`: every theory figure, and the page that shows them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from projnorm.cli.options import (
    LOCAL,
    OUT,
    WORKERS,
    BackendName,
    Fresh,
    Out,
    Scheduler,
    Seed,
    Workers,
    backend_of,
    figures_folder,
    runs_folder,
)

if TYPE_CHECKING:
    from figures.report import Section
    from projnorm.runs import Backend, Record

Full = Annotated[bool, typer.Option("--full", help="Publication quality: the paper's sizes, 100,000 designs.")]


def run_figures(
    full: Full = False,
    seed: Seed = 0,
    workers: Workers = WORKERS,
    backend: BackendName = LOCAL,
    scheduler: Scheduler = None,
    out: Out = OUT,
    fresh: Fresh = False,
) -> None:
    """Draw every theory figure.

    As PDF, SVG and PNG, from records; those that are missing are computed first.
    """
    for path in _save_figures(_records(full, seed, backend_of(backend, workers, scheduler), out, fresh), out):
        typer.echo(path)


def run_report(
    full: Full = False,
    seed: Seed = 0,
    workers: Workers = WORKERS,
    backend: BackendName = LOCAL,
    scheduler: Scheduler = None,
    out: Out = OUT,
    fresh: Fresh = False,
) -> None:
    """Every theory figure and table on one page: start here.

    Runs what is missing, draws, and writes a page that opens in a browser with no network. What `projnorm deep` has
    found in the same folder is shown behind it.
    """
    from dataclasses import asdict

    from figures.theory import theory_page
    from projnorm.runs import current_environment, write_atomically

    records = _records(full, seed, backend_of(backend, workers, scheduler), out, fresh)
    _save_figures(records, out)
    page = out / "report.html"
    html = theory_page(records, asdict(current_environment()), full=full, more=_network_sections(runs_folder(out)))
    write_atomically(page, html.encode("utf-8"))
    typer.echo(f"Records in {runs_folder(out)}, figures in {figures_folder(out)}.\nOpen {page} in a browser.")


def _network_sections(root: Path) -> list[Section]:
    """What was found on networks; torch is not imported where there is nothing to show."""
    from figures.report import Section

    if not any(root.glob("deep-*/record.json")):
        return []
    try:
        from figures.networks import network_sections
    except ModuleNotFoundError as missing:
        return [Section("Networks", f"There are records of networks here; showing them needs {missing.name}.")]
    return network_sections(root)


def _records(full: bool, seed: int, backend: Backend, out: Path, fresh: bool) -> dict[str, Record]:
    from simulations.presets import theory_records, theory_runs

    def announce(what: str) -> None:
        typer.echo(f"{what} ...", err=True)

    return theory_records(
        theory_runs(full=full, seed=seed), root=runs_folder(out), backend=backend, announce=announce, fresh=fresh
    )


def _save_figures(records: dict[str, Record], out: Path) -> list[Path]:
    from figures import style
    from figures.theory import THEORY_FIGURES

    return [
        path
        for figure in THEORY_FIGURES
        for path in style.save(figure.draw(records[figure.record]), figures_folder(out), figure.name)
    ]
