"""`projnorm deep sweep`, `trajectory`, `residuals` and `ensemble`: the paper's analyses of a run."""

from __future__ import annotations

from typing import Annotated

import typer

from projnorm.cli.deep_runs import Run, heading_of, run_folder, scores_of
from projnorm.cli.options import (
    OUT,
    WORKERS,
    Fresh,
    Json,
    Out,
    Workers,
    integers,
    numbers,
    runs_folder,
    to_json,
    words,
)


def run_sweep(
    run: Run = None,
    steps: Annotated[str | None, typer.Option("--steps", "--T", help="Such as 500,200; none.")] = None,
    m: Annotated[str | None, typer.Option("--m", help="Images of each target that ProjNorm sees; T in step.")] = None,
    lr: Annotated[str | None, typer.Option(help="Learning rates of ProjNorm, such as 5e-4,1e-4.")] = None,
    reference: Annotated[str | None, typer.Option(help="trained or fine-tuned.")] = None,
    labels: Annotated[str | None, typer.Option(help="pseudo or true.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    workers: Workers = WORKERS,
    out: Out = OUT,
    as_json: Json = False,
    fresh: Fresh = False,
) -> None:
    """ProjNorm of a run under other settings, one changed at a time.

    With no option, the settings and ablations of the paper, scaled to the run. Networks and pseudo-labels are those of
    the run; an interrupted sweep goes on where it stopped.
    """
    from deep.experiments.comparison import open_run
    from deep.experiments.sweep import SweepConfig
    from deep.experiments.sweep import run_sweep as swept
    from figures import style, sweep

    folder, root = run_folder(out, run), runs_folder(out)
    config, _ = open_run(folder)
    if any(option is not None for option in (steps, m, lr, reference, labels)):
        asked = SweepConfig(
            folder.name,
            integers(steps, "--steps") or (),
            integers(m, "--m") or (),
            numbers(lr, "--lr") or (),
            words(reference) or (),
            words(labels) or (),
        )
    else:
        asked = SweepConfig.like_the_paper(folder.name, config)
    record = swept(
        asked,
        root=root,
        workers=workers,
        device=device,
        fresh=fresh,
        announce=lambda line: typer.echo(line, err=True),
    )
    paths = style.save(sweep.draw(record, heading=heading_of(*scores_of(folder))), root / record.id, "sweep")
    if as_json:
        typer.echo(
            to_json(
                {
                    "id": record.id,
                    "config": dict(record.config),
                    "created": record.created,
                    "wall_seconds": record.wall_seconds,
                    "environment": dict(record.environment),
                    "facts": dict(record.facts),
                    "settings": sweep.values(record),
                    "figures": [str(path) for path in paths],
                }
            )
        )
        return
    typer.echo(sweep.build(record).text())
    typer.echo(f"\n{sweep.CAPTION}\n\nRecord and figure in {root / record.id}")


def run_trajectory(run: Run = None, out: Out = OUT) -> None:
    """Draw ProjNorm of a finished run along its training."""
    from figures import style, trajectory
    from projnorm.runs import load

    folder = run_folder(out, run)
    figure = trajectory.draw(load(folder), heading=heading_of(*scores_of(folder)))
    for path in style.save(figure, folder, "trajectory"):
        typer.echo(path)


def run_residuals(run: Run = None, out: Out = OUT, as_json: Json = False) -> None:
    """Correlate what the methods of a run get wrong."""
    from deep.residuals import residual_correlations
    from figures import residuals, style

    folder = run_folder(out, run)
    config, scores = scores_of(folder)
    found = residual_correlations(scores)
    paths = style.save(residuals.draw(found, heading=heading_of(config, scores)), folder, "residuals")
    if as_json:
        typer.echo(to_json({"run": folder.name, **residuals.values(found), "figures": [str(path) for path in paths]}))
        return
    typer.echo(residuals.build(found).text())
    typer.echo(f"\n{residuals.CAPTION}\n\nFigure in {folder}")


def run_ensemble(
    run: Run = None,
    subset: Annotated[
        list[str] | None, typer.Option("--methods", help="Such as ProjNorm,ATC; repeatable; every pair, and all.")
    ] = None,
    form: Annotated[str, typer.Option("--format", help="text, markdown, latex or csv.")] = "text",
    out: Out = OUT,
    as_json: Json = False,
) -> None:
    """Predict with several methods of a run together: means of standardised scores, and stacking."""
    from deep.calibration import qualities
    from deep.ensemble import CAPTION, ensembles
    from figures import deep_table
    from figures.table import formatted

    folder = run_folder(out, run)
    _, scores = scores_of(folder)
    together = ensembles(scores, None if subset is None else [words(text) or () for text in subset])
    if as_json:
        typer.echo(to_json({"run": folder.name, "methods": deep_table.values(qualities(together))}))
        return
    typer.echo(formatted(deep_table.build(together), form))
    if form == "text":
        typer.echo(f"\n{deep_table.CAPTION} {CAPTION}")
