"""The paper's analyses of a run: `projnorm deep sweep`, `residuals`, `adversarial` and more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from projnorm.cli.deep_runs import Run, described, run_folder, scores_of
from projnorm.cli.options import (
    LOCAL,
    OUT,
    WORKERS,
    BackendName,
    Device,
    Fresh,
    Json,
    Out,
    Scheduler,
    Seed,
    Workers,
    backend_of,
    given,
    integers,
    numbers,
    runs_folder,
    to_json,
    words,
)

if TYPE_CHECKING:
    from projnorm.runs import Record


def run_sweep(
    run: Run = None,
    steps: Annotated[str | None, typer.Option("--steps", "--T", help="Such as 500,200; none.")] = None,
    m: Annotated[str | None, typer.Option("--m", help="Images of each target that ProjNorm sees; T in step.")] = None,
    lr: Annotated[str | None, typer.Option(help="Learning rates of ProjNorm, such as 5e-4,1e-4.")] = None,
    reference: Annotated[str | None, typer.Option(help="trained or fine-tuned.")] = None,
    labels: Annotated[str | None, typer.Option(help="pseudo or true.")] = None,
    batch_norm: Annotated[str | None, typer.Option(help="batch or frozen.")] = None,
    layers: Annotated[str | None, typer.Option(help="Layers that are trained, such as fc,layer4+fc.")] = None,
    device: Device = "auto",
    workers: Workers = WORKERS,
    backend: BackendName = LOCAL,
    scheduler: Scheduler = None,
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
    from figures import deep_scatter, style, sweep

    folder, root = run_folder(out, run), runs_folder(out)
    config, _ = open_run(folder)
    if any(option is not None for option in (steps, m, lr, reference, labels, batch_norm, layers)):
        asked = SweepConfig(
            folder.name,
            integers(steps, "--steps") or (),
            integers(m, "--m") or (),
            numbers(lr, "--lr") or (),
            words(reference) or (),
            words(labels) or (),
            words(batch_norm) or (),
            words(layers) or (),
        )
    else:
        asked = SweepConfig.like_the_paper(folder.name, config)
    where = backend_of(backend, workers, scheduler)
    record = swept(
        asked,
        root=root,
        backend=where,
        device=device,
        fresh=fresh,
        announce=lambda line: typer.echo(line, err=True),
    )
    paths = style.save(sweep.draw(record, heading=deep_scatter.heading(*scores_of(folder))), root / record.id, "sweep")
    if as_json:
        typer.echo(to_json({**described(record, paths), "settings": sweep.values(record)}))
        return
    typer.echo(sweep.build(record).text())
    typer.echo(f"\n{sweep.CAPTION}\n\nRecord and figure in {root / record.id}")


def run_trajectory(run: Run = None, out: Out = OUT) -> None:
    """Draw ProjNorm of a finished run along its training."""
    from figures import deep_scatter, style, trajectory
    from projnorm.runs import load

    folder = run_folder(out, run)
    figure = trajectory.draw(load(folder), heading=deep_scatter.heading(*scores_of(folder)))
    for path in style.save(figure, folder, "trajectory"):
        typer.echo(path)


def run_residuals(run: Run = None, out: Out = OUT, as_json: Json = False) -> None:
    """Correlate what the methods of a run get wrong."""
    from deep.residuals import residual_correlations
    from figures import deep_scatter, residuals, style

    folder = run_folder(out, run)
    config, scores = scores_of(folder)
    if len(scores.methods) < 2:
        raise ValueError(f"{folder.name} has one method; residuals need two to compare.")
    found = residual_correlations(scores)
    paths = style.save(residuals.draw(found, heading=deep_scatter.heading(config, scores)), folder, "residuals")
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
    from deep.ensemble import CAPTION, STACKED, ensembles
    from figures import deep_table
    from figures.table import form_named

    written, folder = form_named(form), run_folder(out, run)
    _, scores = scores_of(folder)
    together = ensembles(scores, None if subset is None else [words(text) or () for text in subset])
    if as_json:
        typer.echo(
            to_json({"run": folder.name, "methods": deep_table.values(qualities(together, predicting=(STACKED,)))})
        )
        return
    typer.echo(written(deep_table.build(together)))
    if form == "text":
        typer.echo(f"\n{deep_table.CAPTION} {CAPTION}")


def run_adversarial(
    run: Run = None,
    eps: Annotated[str | None, typer.Option(help="Sizes in 255ths, such as 0,1,2,4,8; the paper's fifteen.")] = None,
    m: Annotated[int | None, typer.Option("--m", help="Images to attack; all of the run.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of the attack; 20.")] = None,
    device: Device = "auto",
    workers: Workers = WORKERS,
    backend: BackendName = LOCAL,
    scheduler: Scheduler = None,
    out: Out = OUT,
    as_json: Json = False,
    fresh: Fresh = False,
) -> None:
    """Attack the network of a run, and predict its error under attack with every method.

    PGD inside a cube around each clean image. The line from score to error of each method is that of the run's targets.
    """
    from deep.experiments import adversarial
    from figures import stress

    config = adversarial.AdversarialConfig(
        run_folder(out, run).name, **given(eps=numbers(eps, "--eps"), m=m, steps=steps)
    )
    where = backend_of(backend, workers, scheduler)
    record = adversarial.run_adversarial(config, root=runs_folder(out), backend=where, device=device, fresh=fresh)
    _report_stress(record, stress.ADVERSARIAL, "adversarial", out, as_json)


def run_label_shift(
    run: Run = None,
    groups: Annotated[int | None, typer.Option(help="Groups of classes by difficulty; 5; 0 for none.")] = None,
    concentrations: Annotated[
        str | None, typer.Option(help="Dials of the Dirichlet law of the priors; 10,1,0.1; none.")
    ] = None,
    draws: Annotated[int | None, typer.Option(help="Priors drawn at each dial; 3.")] = None,
    m: Annotated[int | None, typer.Option("--m", help="Images of each set at most; as in the run.")] = None,
    seed: Seed = 0,
    device: Device = "auto",
    workers: Workers = WORKERS,
    backend: BackendName = LOCAL,
    scheduler: Scheduler = None,
    out: Out = OUT,
    as_json: Json = False,
    fresh: Fresh = False,
) -> None:
    """Mix the classes of the test images anew, and predict the error on each mixture with every method."""
    from deep.experiments import label_shift
    from figures import stress

    chosen = given(
        groups=groups, concentrations=numbers(concentrations, "--concentrations"), draws=draws, m=m, seed=seed
    )
    config = label_shift.LabelShiftConfig(run_folder(out, run).name, **chosen)
    where = backend_of(backend, workers, scheduler)
    record = label_shift.run_label_shift(config, root=runs_folder(out), backend=where, device=device, fresh=fresh)
    _report_stress(record, stress.LABEL_SHIFT, "label_shift", out, as_json)


def run_small_samples(
    run: Run = None,
    m: Annotated[str | None, typer.Option("--m", help="Samples of each target; 50,100,200,500.")] = None,
    draws: Annotated[int | None, typer.Option(help="Draws of each size; 20.")] = None,
    projnorm: Annotated[int | None, typer.Option(help="The size at which ProjNorm is trained too; 0 for none.")] = None,
    projnorm_steps: Annotated[int | None, typer.Option(help="Its steps; 10.")] = None,
    seed: Seed = 0,
    device: Device = "auto",
    workers: Workers = WORKERS,
    backend: BackendName = LOCAL,
    scheduler: Scheduler = None,
    out: Out = OUT,
    as_json: Json = False,
    fresh: Fresh = False,
) -> None:
    """Which method to use, and how many samples it needs: every method on few samples of each target of a run.

    The truth is the error on the whole target. Scores become errors through what was fitted to the other families at
    the same size; the default is that of `projnorm predict`.
    """
    from deep.experiments import small_samples as experiment
    from figures import small_samples, style

    chosen = given(
        sizes=integers(m, "--m"), draws=draws, projnorm_size=projnorm, projnorm_steps=projnorm_steps, seed=seed
    )
    config = experiment.SmallSamplesConfig(run_folder(out, run).name, **chosen)
    where = backend_of(backend, workers, scheduler)
    record = experiment.run_small_samples(config, root=runs_folder(out), backend=where, device=device, fresh=fresh)
    place = runs_folder(out) / record.id
    found = small_samples.measured(record)
    paths = style.save(small_samples.draw(found, heading=str(record.facts["run"])), place, "small_samples")
    if as_json:
        typer.echo(to_json({**described(record, paths), **small_samples.values(found)}))
        return
    typer.echo(small_samples.build(found).text())
    typer.echo(f"\n{small_samples.CAPTION}\n\n{small_samples.differences(found).text()}")
    typer.echo(f"\nRecord and figure in {place}")


def _report_stress(record: Record, title: str, name: str, out: Path, as_json: bool) -> None:
    from figures import stress, style

    place = runs_folder(out) / record.id
    paths = style.save(stress.draw(record, heading=f"{title}, {record.facts['run']}"), place, name)
    if as_json:
        typer.echo(to_json({**described(record, paths), **stress.values(record)}))
        return
    typer.echo(stress.build(record).text())
    typer.echo(f"\n{stress.CAPTION}\n\nRecord and figure in {place}")
