"""`projnorm bound`: verification of the intervals for the test loss."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from projnorm.cli.options import (
    LOCAL,
    OUT,
    WORKERS,
    BackendName,
    Fresh,
    Json,
    Out,
    Scheduler,
    Seed,
    Workers,
    backend_of,
    given,
    runs_folder,
    to_json,
)

_SAVED_AT_MOST = 10


def run(
    instances: Annotated[int | None, typer.Option(help="Small designs to draw; 100000.")] = None,
    large: Annotated[int | None, typer.Option(help="Designs with n = m = 200 and d = 1000; 200.")] = None,
    replay: Annotated[Path | None, typer.Option(help="Check one saved instance instead.")] = None,
    seed: Seed = 0,
    workers: Workers = WORKERS,
    backend: BackendName = LOCAL,
    scheduler: Scheduler = None,
    out: Out = OUT,
    as_json: Json = False,
    fresh: Fresh = False,
) -> None:
    """Verify the bounds on the test loss.

    Checks the paper's interval and ours on drawn designs. Exit code 1 if one fails where it must hold; the design is
    then saved, and --replay looks at it again.
    """
    if replay is not None:
        _replay(replay, as_json)
        return

    from figures import bound, bound_table, dials, style, tightness
    from simulations.bound_check import BoundConfig, draw_instance, run_bound_check, save_instance, violations

    config = BoundConfig(**given(instances=instances, large=large, seed=seed))
    where = backend_of(backend, workers, scheduler)
    record = run_bound_check(config, root=runs_folder(out), backend=where, fresh=fresh)
    folder = runs_folder(out) / record.id
    figures = [
        path
        for name, module in (("bound", bound), ("dials", dials), ("tightness", tightness))
        for path in style.save(module.draw(record), folder, name)
    ]
    broken = violations(record)
    saved = []
    for index in list(broken)[:_SAVED_AT_MOST]:
        saved.append(folder / f"violation-{index}.npz")
        save_instance(draw_instance(config, index), saved[-1])
    if as_json:
        document = {
            "id": record.id,
            "config": dict(record.config),
            "wall_seconds": record.wall_seconds,
            "environment": dict(record.environment),
            "deficient": int(record.arrays["deficient"].sum()),
            "rows": bound_table.values(record),
            "violations": {str(index): names for index, names in broken.items()},
            "saved": [str(path) for path in saved],
            "record": str(folder),
            "figures": [str(path) for path in figures],
        }
        typer.echo(to_json(document))
    else:
        typer.echo(bound_table.build(record).text())
        typer.echo(f"\n{bound_table.CAPTION}\n")
        typer.echo(bound_table.by_dial(record).text())
        typer.echo(f"\nRecord and figures in {folder}")
        deficient = int(record.arrays["deficient"].sum())
        total = len(record.arrays["loss"])
        typer.echo(f"{total:,} designs, {deficient:,} of them with d < n + m or rank deficient.")
        if broken:
            typer.echo(f"{len(broken)} designs break an interval that must hold; the first ones are saved.")
            typer.echo(f"Look at one with: projnorm bound --replay {saved[0]}")
        else:
            typer.echo("No interval was broken where it must hold.")
    if broken:
        raise typer.Exit(1)


def _replay(path: Path, as_json: bool) -> None:
    import numpy as np

    from figures.table import Table
    from simulations.bound_check import INTERVALS, MUST_HOLD, holds, load_instance, measure

    instance = load_instance(path)
    measured = measure(instance)
    rows = [
        {
            "interval": name,
            "lower": measured[name][0],
            "loss": measured["loss"],
            "upper": measured[name][1],
            "holds": bool(holds(measured["loss"], np.array(measured[name]))),
            "must_hold": instance.family in MUST_HOLD.get(name, ()),
        }
        for name in INTERVALS
    ]
    if as_json:
        typer.echo(to_json({"family": instance.family, "dial": instance.dial, "rows": rows}))
    else:
        typer.echo(f"Instance of the family {instance.family}, dial {instance.dial:.6g}\n")
        cells = [[f"{row[key]:.9g}" if isinstance(row[key], float) else str(row[key]) for key in row] for row in rows]
        typer.echo(Table(list(rows[0]), cells).text())
    if any(row["must_hold"] and not row["holds"] for row in rows):
        raise typer.Exit(1)
