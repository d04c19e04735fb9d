"""The run that a `projnorm deep` command is about, and what it says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from projnorm.cli.options import runs_folder, to_json

if TYPE_CHECKING:
    from deep.config import RunConfig
    from deep.ledger import Scores
    from projnorm.runs import Record

# As in deep.domain, which would import torch.
_KINDS = ("deep", "deep-text")

Run = Annotated[str | None, typer.Argument(metavar="[ID]", help="Name of a run or its beginning; the only one there.")]


def run_folder(out: Path, run: str | None) -> Path:
    """The folder of the run asked for.

    Raises:
        ValueError: If there is not exactly one.
    """
    from projnorm.runs import folders_of

    root = runs_folder(out)
    found = [
        path
        for kind in _KINDS
        for path in folders_of(root, kind)
        if (path / "run.json").exists() and path.name.startswith(run or "")
    ]
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise ValueError(f"ID must name one run in {root}; {run or 'no ID'} matches {names}.")
    return found[0]


def scores_of(folder: Path) -> tuple[RunConfig, Scores]:
    """The configuration of a run and its scores, with those of kernels if they were computed.

    Raises:
        ValueError: If there are none yet.
    """
    from deep.experiments.comparison import open_run
    from deep.experiments.ntk_predict import kernel_rows
    from deep.ledger import Scores

    config, ledger = open_run(folder)
    scores = Scores.of([*ledger.rows, *kernel_rows(folder)])
    if not len(scores.targets):
        raise ValueError(
            f"{folder} has no target yet that every method has scored; the command that began it goes on with it."
        )
    return config, scores


def remarks(record: Record) -> list[str]:
    """What a reader of the table must know of the data."""
    facts, found = record.facts, []
    if two_way := facts.get("two_way_targets"):
        found.append(f"Of {', '.join(two_way)}: {facts['merged']}.")
    if small := facts.get("sets_of_fewer_than_m_pairs"):
        found.append(f"Fewer than m pairs: {', '.join(small)}; ProjNorm depends on m.")
    if known := facts.get("pairs_that_were_trained_on"):
        found.append(f"Pairs that were trained on: {', '.join(f'{n} of {name}' for name, n in known.items())}.")
    return found


def described(record: Record, paths: list[Path]) -> dict[str, object]:
    """What the JSON of a record begins with."""
    return {
        "id": record.id,
        "config": dict(record.config),
        "created": record.created,
        "wall_seconds": record.wall_seconds,
        "environment": dict(record.environment),
        "facts": dict(record.facts),
        "figures": [str(path) for path in paths],
    }


def draw_run(folder: Path) -> list[Path]:
    """Draw the figures of a run into its folder."""
    from figures import deep_scatter, severity, style

    config, scores = scores_of(folder)
    heading = deep_scatter.heading(config, scores)
    figures = {"scatter": deep_scatter}
    if len(set(scores.severities.tolist())) > 1:
        figures["severity"] = severity
    return [
        path
        for name, module in figures.items()
        for path in style.save(module.draw(scores, heading=heading), folder, name)
    ]


def report_run(record: Record, folder: Path, *, as_json: bool) -> None:
    """Write the tables and figures of a finished run into its folder, and print what was found."""
    from dataclasses import asdict

    from deep.calibration import qualities
    from figures import deep_scatter, deep_table
    from figures.table import FORMATS
    from projnorm.runs import write_atomically

    config, scores = scores_of(folder)
    table = deep_table.build(scores)
    endings = {"text": "txt", "markdown": "md", "latex": "tex", "csv": "csv"}
    for form, ending in endings.items():
        write_atomically(folder / f"table.{ending}", (FORMATS[form](table) + "\n").encode())
    write_atomically(folder / "targets.csv", (deep_table.targets(scores).csv() + "\n").encode())
    paths = draw_run(folder)
    falling = deep_table.not_rising(scores)
    if as_json:
        document = {
            **described(record, paths),
            "config": asdict(config),
            "rows": deep_table.values(qualities(scores)),
            "not_rising": falling,
            "record": str(folder),
        }
        typer.echo(to_json(document))
        return
    typer.echo(deep_scatter.heading(config, scores) + "\n")
    typer.echo(table.text())
    typer.echo(f"\n{deep_table.CAPTION}\n")
    typer.echo(f"Weights: {record.facts['weights']}")
    for line in remarks(record):
        typer.echo(line)
    if falling:
        typer.echo(f"The error does not rise with every severity of {', '.join(falling)}.")
    typer.echo(f"Ledger, tables and record in {folder}")
    typer.echo(f"Figures {' '.join(str(path) for path in paths if path.suffix == '.png')}")
