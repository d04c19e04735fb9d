"""The run that a `projnorm deep` command is about, and what it says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from projnorm.cli.options import runs_folder

if TYPE_CHECKING:
    from deep.config import DeepConfig
    from deep.ledger import Scores
    from projnorm.runs import Record

_KIND = "deep"

Run = Annotated[str | None, typer.Argument(metavar="[ID]", help="Name of a run or its beginning; the only one there.")]


def run_folder(out: Path, run: str | None) -> Path:
    """The folder of the run asked for.

    Raises:
        ValueError: If there is not exactly one.
    """
    from projnorm.runs import folders_of

    root = runs_folder(out)
    found = [
        path for path in folders_of(root, _KIND) if (path / "run.json").exists() and path.name.startswith(run or "")
    ]
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise ValueError(f"ID must name one run in {root}; {run or 'no ID'} matches {names}.")
    return found[0]


def scores_of(folder: Path) -> tuple[DeepConfig, Scores]:
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
            f"{folder} has no target yet that every method has scored; `projnorm deep run` goes on with it."
        )
    return config, scores


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
