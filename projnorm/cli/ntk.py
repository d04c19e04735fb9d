"""`projnorm ntk`: exact tangent kernels of a network, and the linear theory on them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from projnorm.cli import on_paper
from projnorm.cli.options import (
    DEVICES,
    GBPS,
    LOCAL,
    OUT,
    TFLOPS,
    BackendName,
    Device,
    Devices,
    DryRun,
    Fresh,
    Gbps,
    Json,
    MaybeWorkers,
    Memory,
    Out,
    Scheduler,
    Seed,
    Tflops,
    backend_of,
    device_counts,
    given,
    integers,
    runs_folder,
    to_json,
    words,
    workers_within,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ntk.experiment import NtkConfig
    from ntk.plan import Plan
    from projnorm.runs import Record

app = typer.Typer(help="Exact tangent kernels of a network and the linear theory on them.", rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def _ntk(context: typer.Context) -> None:
    """Exact tangent kernels of a network and the linear theory on them."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


class _Asked:
    """An experiment and the limits it is computed within."""

    def __init__(
        self,
        data: Annotated[
            str | None, typer.Option(help="digits, a CIFAR folder or an .npz; also sought under PROJNORM_DATA.")
        ] = None,
        target: Annotated[list[str] | None, typer.Option(help="An .npz with images and labels; repeatable.")] = None,
        n: Annotated[int | None, typer.Option("--n", help="Training images; 250.")] = None,
        m: Annotated[int | None, typer.Option("--m", help="Images of each target; 250.")] = None,
        families: Annotated[
            str | None, typer.Option(help="Shifts of the test set, such as contrast,brightness; none for no shift.")
        ] = None,
        severities: Annotated[str | None, typer.Option(help="Such as 1,3,5; all five.")] = None,
        architecture: Annotated[str | None, typer.Option(help="resnet18, resnet50, vgg11 or small-cnn.")] = None,
        weights: Annotated[
            str | None, typer.Option(help="random (default), imagenet, or a .pth or .safetensors file.")
        ] = None,
        size: Annotated[int | None, typer.Option(help="Pixels that the network sees; 32.")] = None,
        heads: Annotated[int | None, typer.Option(help="Last layers drawn, whose kernels are averaged; 1.")] = None,
        layers: Annotated[str | None, typer.Option(help="Parameters of these modules only, such as layer4,fc.")] = None,
        ridge: Annotated[float | None, typer.Option(help="Added to the kernels for ProjNormLinear; 0.")] = None,
        top: Annotated[int | None, typer.Option(help="Eigenvectors in the alignment; 300.")] = None,
        kind: Annotated[str | None, typer.Option(help="exact, coordinates or projection.")] = None,
        count: Annotated[int | None, typer.Option(help="Coordinates, or the projection's width; 500000.")] = None,
        accumulate: Annotated[str | None, typer.Option(help="Precision of products: float32 or float64.")] = None,
        memory: Memory = 4.0,
        device: Device = "auto",
        seed: Seed = 0,
        workers: MaybeWorkers = None,
        backend: BackendName = LOCAL,
        scheduler: Scheduler = None,
    ) -> None:
        from ntk.experiment import NtkConfig

        chosen = given(
            data=data,
            targets=tuple(target) if target else None,
            n=n,
            m=m,
            families=words(families),
            severities=integers(severities, "--severities"),
            architecture=architecture,
            weights=weights,
            size=size,
            heads=heads,
            layers=words(layers),
            ridge=ridge,
            top=top,
            kind=kind,
            count=count,
            accumulate=accumulate,
            seed=seed,
        )
        self.chosen = chosen
        self.config: NtkConfig = NtkConfig(**chosen)
        self.limits: dict[str, Any] = {"memory": memory * 1e9, "device": device}
        self.backend = backend_of(backend, workers or workers_within(memory), scheduler)


def _experiment_command(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command whose options are those of an experiment and, behind them, its own."""

    def register(run: Callable[..., None]) -> Callable[..., None]:
        shared = list(inspect.signature(_Asked, eval_str=True).parameters.values())
        own = list(inspect.signature(run, eval_str=True).parameters.values())[1:]
        named = {parameter.name for parameter in shared}

        def command(**options: Any) -> None:
            asked = _Asked(**{key: value for key, value in options.items() if key in named})
            run(asked, **{key: value for key, value in options.items() if key not in named})

        command.__doc__ = run.__doc__
        command.__signature__ = inspect.Signature([*shared, *own])  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in (*shared, *own)}
        app.command(name)(command)
        return run

    return register


@_experiment_command("gram")
def run_gram(
    asked: _Asked,
    dry_run: DryRun = False,
    devices: Devices = DEVICES,
    tflops: Tflops = TFLOPS,
    gbps: Gbps = GBPS,
    out: Out = OUT,
    as_json: Json = False,
    fresh: Fresh = False,
) -> None:
    """Compute the kernels of an experiment.

    Tile by tile, within the memory ceiling; an interrupted run goes on where it stopped. A dry run needs no more images
    than one, and no weights.
    """
    from ntk.dry_run import plan_experiment
    from ntk.experiment import run_kernels
    from projnorm.runs.rates import Rates

    if dry_run:
        counts, rates = device_counts(devices), Rates(tflops, gbps)
        planned = plan_experiment(asked.config, **asked.limits)
        if as_json:
            rows = [on_paper.spread_values(planned.on(count), rates) for count in counts]
            document = _plan_document(planned.plan) | {"tflops": tflops, "gbps": gbps, "devices": rows}
            typer.echo(to_json(document))
            return
        table = on_paper.spread_table([planned.on(count) for count in counts], rates)
        typer.echo(f"{_plan_text(planned.plan)}\n\n{table.text()}\n\n{on_paper.ASSUMED.format(tflops, gbps)}")
        return
    _, kernels, record = run_kernels(
        asked.config, root=runs_folder(out), backend=asked.backend, fresh=fresh, **asked.limits
    )
    folder = runs_folder(out) / record.id
    if as_json:
        typer.echo(to_json(_document(record, folder, []) | {"plan": _plan_document(kernels.plan)}))
        return
    if kernels.damaged:
        typer.echo(f"Computed again, because they were damaged: {', '.join(kernels.damaged)}", err=True)
    typer.echo(f"{kernels.parameters:,} parameters, {kernels.plan.samples:,} images, {len(kernels.plan.tiles)} tiles")
    typer.echo(f"Spot check against autograd: {kernels.check_error:.2g} of the scale")
    typer.echo(f"Weights: {record.facts['weights']}\nRecord and tiles in {folder}")


@_experiment_command("analyse")
def run_analyse(asked: _Asked, out: Out = OUT, as_json: Json = False, fresh: Fresh = False) -> None:
    """Check the theory's assumptions and intervals on the kernels.

    Eigenvalue decay, alignment, norm ratio, overlap, and three intervals for the loss of the kernel regression, on
    every target.
    """
    from figures import ntk_decay_grid, ntk_intervals, ntk_norm_ratio, ntk_panels, ntk_table

    record = _analysed(asked, out, fresh)
    modules = (ntk_panels, ntk_norm_ratio, ntk_decay_grid, ntk_intervals)
    paths = _save(record, out, {module.__name__.rpartition(".")[2]: module.draw(record) for module in modules})
    if as_json:
        rows = {"rows": ntk_table.values(record), "train_exponent": float(record.arrays["train_decay"][0])}
        typer.echo(to_json(_document(record, runs_folder(out) / record.id, paths) | rows | _follows(record)))
        return
    typer.echo(ntk_table.build(record).text())
    typer.echo(f"\n{ntk_table.CAPTION}\n")
    _say_where(record, out, paths)


@_experiment_command("predict")
def run_predict(asked: _Asked, out: Out = OUT, as_json: Json = False, fresh: Fresh = False) -> None:
    """ProjNormLinear on tangent kernels against the error: start here.

    With no options: scikit-learn's digits and a network of random weights, no download, about a minute.
    """
    from figures import ntk_panels, ntk_table

    record = _analysed(asked, out, fresh)
    paths = _save(record, out, {"ntk_panels": ntk_panels.draw(record)})
    follows = _follows(record)
    if as_json:
        rows = {"rows": ntk_table.values(record)}
        typer.echo(to_json(_document(record, runs_folder(out) / record.id, paths) | rows | follows))
        return
    typer.echo(ntk_table.predictions(record).text())
    typer.echo(
        f"\nProjNormLinear against the error: R^2 = {follows['r_squared']:.3f}, Spearman {follows['spearman']:.3f}, "
        f"over {len(record.arrays['targets'])} targets.\n"
    )
    _say_where(record, out, paths)


@_experiment_command("subsample")
def run_subsample(
    asked: _Asked,
    counts: Annotated[str | None, typer.Option(help="Numbers of features, such as 1000,10000,500000.")] = None,
    draws: Annotated[int | None, typer.Option(help="Independent draws of each; 3.")] = None,
    out: Out = OUT,
    as_json: Json = False,
    fresh: Fresh = False,
) -> None:
    """Compare sampled kernels with the exact one.

    Relative error of the eigenvalues and of ProjNormLinear against the number of coordinates kept, on the clean test
    set and the strongest shift of each family unless others are asked for.
    """
    from dataclasses import replace

    from figures import ntk_subsample
    from ntk.subsample import SubsampleConfig
    from ntk.subsample import run_subsample as run

    experiment = asked.config if "severities" in asked.chosen else replace(asked.config, severities=(5,))
    config = SubsampleConfig(experiment, **given(counts=integers(counts, "--counts"), draws=draws))
    record = run(config, root=runs_folder(out), backend=asked.backend, fresh=fresh, **asked.limits)
    paths = _save(record, out, {"ntk_subsample": ntk_subsample.draw(record)})
    table = ntk_subsample.table(record)
    if as_json:
        rows = {"rows": ntk_subsample.values(record)}
        typer.echo(to_json(_document(record, runs_folder(out) / record.id, paths) | rows))
        return
    typer.echo(table.text())
    typer.echo(f"\n{ntk_subsample.CAPTION}\n")
    typer.echo(f"Weights: {record.facts['weights']}\nRecord {runs_folder(out) / record.id}\nFigure {paths[-1]}")


def _analysed(asked: _Asked, out: Path, fresh: bool) -> Record:
    from ntk.experiment import run_analysis

    return run_analysis(asked.config, root=runs_folder(out), backend=asked.backend, fresh=fresh, **asked.limits)


def _save(record: Record, out: Path, drawn: dict[str, Figure]) -> list[Path]:
    from figures import style

    folder = runs_folder(out) / record.id
    return [path for name, figure in drawn.items() for path in style.save(figure, folder, name)]


def _follows(record: Record) -> dict[str, float]:
    from dataclasses import asdict

    from projnorm.fit_quality import fit_quality

    return asdict(fit_quality(record.arrays["projnorm"], record.arrays["error"]))


def _say_where(record: Record, out: Path, paths: list[Path]) -> None:
    for warning in record.facts["warnings"]:
        typer.echo(f"Note: {warning}")
    pictures = [str(path) for path in paths if path.suffix == ".png"]
    typer.echo(f"Weights: {record.facts['weights']}")
    typer.echo(f"Record {runs_folder(out) / record.id}\nFigures {' '.join(pictures)}")


def _document(record: Record, folder: Path, paths: list[Path]) -> dict[str, Any]:
    return {
        "id": record.id,
        "config": dict(record.config),
        "wall_seconds": record.wall_seconds,
        "environment": dict(record.environment),
        "facts": dict(record.facts),
        "record": str(folder),
        "figures": [str(path) for path in paths],
    }


def _plan_document(plan: Plan) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "sets": dict(plan.sets),
        "cut": asdict(plan.cut),
        "tiles": len(plan.tiles),
        "panels": len(plan.panels),
        "panels_kept": plan.room,
        "pairs": plan.pairs,
        "multiply_adds": plan.multiply_adds,
        "fill_multiply_adds": plan.fill_multiply_adds,
        "passes": plan.passes,
        "samples": plan.samples,
        "sample_bytes": plan.sample_bytes,
        "tile_bytes": plan.tile_bytes,
        "peak_bytes": plan.peak_bytes,
        "memory": plan.memory,
        "layers": [asdict(layer) for layer in plan.layers],
    }


def _plan_text(plan: Plan) -> str:
    from figures.table import Table

    rows = [
        (
            layer.name,
            f"{layer.parameters:,}",
            layer.route,
            f"{layer.multiply_adds:,}",
            f"{layer.kept:,}",
            f"{layer.formed:,}",
        )
        for layer in plan.layers
    ]
    total = [sum(getattr(layer, key) for layer in plan.layers) for key in ("parameters", "multiply_adds", "kept")]
    rows.append(("total", f"{total[0]:,}", "", f"{total[1]:,}", f"{total[2]:,}", ""))
    header = ("layer", "parameters", "route", "multiply-adds a pair", "numbers kept a sample", "formed")
    cut = plan.cut
    cost = (
        f"{plan.samples:,} samples in {len(plan.panels)} panels of {cut.panel}, {plan.room} kept at once; "
        f"{len(plan.tiles)} tiles, {plan.pairs:,} pairs, {plan.tile_bytes / 1e9:.3g} GB on disk\n"
        f"{2 * plan.multiply_adds / 1e12:.3g} TFLOP in products; {plan.passes:,} samples through the network in "
        f"batches of {cut.batch}, {2 * plan.fill_multiply_adds / 1e9:.3g} GFLOP each\n"
        f"about {plan.peak_bytes / 1e9:.2f} GB at most, of the {plan.memory / 1e9:.3g} GB allowed"
    )
    return f"{Table(header, rows).text()}\n\n{cost}"
