"""`projnorm toy`: the Gaussian toy experiment and its siblings."""

from __future__ import annotations

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
    numbers,
    runs_folder,
    to_json,
)


def run(
    design: Annotated[
        str | None, typer.Option(help="gaussian (the paper's), power-law, spiked, overlap or label-noise.")
    ] = None,
    d1: Annotated[int | None, typer.Option(help="Coordinates that both sets see; the paper's 1000.")] = None,
    d2: Annotated[int | None, typer.Option(help="Coordinates that are zero in training; the paper's 500.")] = None,
    n: Annotated[int | None, typer.Option(help="Training examples; the paper's 500.")] = None,
    m: Annotated[int | None, typer.Option(help="Shifted examples; the paper's 500.")] = None,
    sigmas: Annotated[str | None, typer.Option(help="Values of the dial, such as 0,1,3,5; 11 from 0 to 5.")] = None,
    trials: Annotated[int | None, typer.Option(help="Independent repetitions; 20.")] = None,
    interval_trials: Annotated[
        int | None, typer.Option(help="Trials that also compute the three intervals; 5. They cost the most.")
    ] = None,
    seed: Seed = 0,
    workers: Workers = WORKERS,
    backend: BackendName = LOCAL,
    scheduler: Scheduler = None,
    out: Out = OUT,
    as_json: Json = False,
    fresh: Fresh = False,
) -> None:
    """Run the Gaussian toy experiment of the paper.

    Test error, ProjNormLinear, confidence and loss as coordinates unseen in training gain variance, simulated and in
    closed form; on the paper's design or on others.
    """
    from dataclasses import asdict

    from figures import style, toy, toy_table, tracking_table
    from simulations.toy import ToyConfig, run_toy
    from simulations.tracking import interval_tracking, score_tracking

    config = ToyConfig(
        **given(
            design=design,
            d1=d1,
            d2=d2,
            n=n,
            m=m,
            sigmas=numbers(sigmas, "--sigmas"),
            trials=trials,
            interval_trials=interval_trials,
            seed=seed,
        )
    )
    where = backend_of(backend, workers, scheduler)
    record = run_toy(config, root=runs_folder(out), backend=where, fresh=fresh)
    folder = runs_folder(out) / record.id
    paths = style.save(toy.draw(record), folder, "toy")
    if as_json:
        document = {
            "id": record.id,
            "config": dict(record.config),
            "wall_seconds": record.wall_seconds,
            "environment": dict(record.environment),
            "rows": toy_table.values(record),
            "scores": [asdict(row) for row in score_tracking(record)],
            "intervals": [asdict(row) for row in interval_tracking(record)],
            "record": str(folder),
            "figures": [str(path) for path in paths],
        }
        typer.echo(to_json(document))
        return
    typer.echo(
        f"Toy experiment, design {config.design}: mean ± standard error of {config.trials} trials [closed form]\n"
    )
    typer.echo(toy_table.build(record).text())
    typer.echo("\nHow they follow the loss, over all trials and sigmas; share of losses in each interval:\n")
    typer.echo(tracking_table.build([record]).text())
    typer.echo(f"\nRecord {folder}\nFigure {paths[-1]}")
