"""`projnorm runs`: the records there are, and what one holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from projnorm.cli.options import OUT, Json, Out, runs_folder, to_json

if TYPE_CHECKING:
    from projnorm.runs import Record

Name = Annotated[str, typer.Argument(metavar="ID", help="Name of the record, or its beginning.")]

app = typer.Typer(help="List earlier runs, show one, or compute it again and compare.", rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def list_runs(context: typer.Context, out: Out = OUT, as_json: Json = False) -> None:
    """List earlier runs, show one, or compute it again and compare."""
    if context.invoked_subcommand is not None:
        return
    from dataclasses import asdict

    from figures.table import Table
    from projnorm.runs import listing

    found = list(listing(runs_folder(out)))
    if as_json:
        typer.echo(to_json([asdict(entry) for entry in found]))
    elif not found:
        typer.echo(f"No records in {runs_folder(out)}.")
    else:
        rows = [
            (entry.id, entry.created, f"{entry.wall_seconds:.1f} s" if not entry.problem else "", entry.problem)
            for entry in found
        ]
        typer.echo(Table(("id", "finished", "took", "problem"), rows).text())


@app.command()
def show(
    name: Name,
    out: Out = OUT,
    as_json: Json = False,
) -> None:
    """Show one run: configuration, environment, arrays."""
    record = record_named(out, name)
    arrays = {
        key: {"shape": list(array.shape), "meaning": record.meanings[key]} for key, array in record.arrays.items()
    }
    if as_json:
        document = {
            "id": record.id,
            "kind": record.kind,
            "config": dict(record.config),
            "created": record.created,
            "wall_seconds": record.wall_seconds,
            "environment": dict(record.environment),
            "facts": dict(record.facts),
            "arrays": arrays,
        }
        typer.echo(to_json(document))
        return
    typer.echo(f"{record.id}, finished {record.created} after {record.wall_seconds:.1f} s")
    parts = {"Configuration": record.config, "Environment": record.environment, "Facts": record.facts}
    for title, entries in parts.items():
        if entries:
            typer.echo(f"\n{title}")
        for key, value in entries.items():
            typer.echo(f"  {key}: {value}")
    typer.echo("\nArrays")
    for key, entry in arrays.items():
        typer.echo(f"  {key} {tuple(entry['shape'])}: {entry['meaning']}")


def record_named(out: Path, name: str) -> Record:
    """The record of an output folder that has this name, or one that begins like this.

    Raises:
        ValueError: If there is not exactly one, or it is damaged.
    """
    from projnorm.runs import load

    root = runs_folder(out)
    matches = sorted(path.parent for path in root.glob("*/record.json") if path.parent.name.startswith(name))
    if len(matches) != 1:
        found = ", ".join(path.name for path in matches) or "none"
        raise ValueError(f"ID must name one record in {root}; {name!r} matches {found}.")
    return load(matches[0])
