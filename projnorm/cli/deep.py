"""`projnorm deep`: predict the error of a network on shifted images, and compare the predictors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from projnorm.cli import on_paper
from projnorm.cli.deep_runs import Run, described, draw_run, report_run, run_folder, scores_of
from projnorm.cli.options import (
    DEVICES,
    GBPS,
    LOCAL,
    OUT,
    TFLOPS,
    WORKERS,
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
    Tflops,
    Workers,
    backend_of,
    figures_folder,
    given,
    integers,
    runs_folder,
    to_json,
    within,
    words,
    workers_within,
)

app = typer.Typer(
    help="Predict the error of a network on shifted images, and compare predictors.", rich_markup_mode=None
)


@app.callback(invoke_without_command=True)
def _deep(context: typer.Context) -> None:
    """Predict the error of a network on shifted images, and compare predictors."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("run")
def run_run(
    preset: Annotated[str, typer.Argument(help="digits, cpu-cifar10-resnet18, ...; `deep presets` lists them.")],
    data: Annotated[
        str | None, typer.Option(help="digits, cifar10, cifar100, a CIFAR archive or folder, image folders or an .npz.")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="random, imagenet, or a .pth or .safetensors file.")] = None,
    corruptions: Annotated[str | None, typer.Option(help="generated, or the folder of the official CIFAR-C.")] = None,
    target: Annotated[list[str] | None, typer.Option(help="More labelled images: .npz or folder; repeatable.")] = None,
    families: Annotated[str | None, typer.Option(help="Such as fog,snow; none for no shift.")] = None,
    severities: Annotated[str | None, typer.Option(help="Such as 1,3,5.")] = None,
    n_train: Annotated[int | None, typer.Option(help="Images to fine-tune on; 0 for all.")] = None,
    n_validation: Annotated[int | None, typer.Option(help="Labelled images held out of training.")] = None,
    m: Annotated[int | None, typer.Option("--m", help="Images of each target.")] = None,
    architecture: Annotated[str | None, typer.Option(help="resnet18, resnet50, vgg11 or small-cnn.")] = None,
    size: Annotated[int | None, typer.Option(help="Pixels that the network sees.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Of fine-tuning.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate of fine-tuning.")] = None,
    momentum: Annotated[float | None, typer.Option(help="Of every training.")] = None,
    batch: Annotated[int | None, typer.Option(help="Of fine-tuning.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", "--T", help="Steps of ProjNorm.")] = None,
    projnorm_lr: Annotated[float | None, typer.Option(help="Learning rate of ProjNorm.")] = None,
    projnorm_batch: Annotated[int | None, typer.Option(help="Batch of ProjNorm.")] = None,
    projnorm_batch_norm: Annotated[str | None, typer.Option(help="batch, or frozen statistics in ProjNorm.")] = None,
    projnorm_samples: Annotated[int | None, typer.Option(help="Images of a target that ProjNorm sees; 0: all.")] = None,
    projnorm_layers: Annotated[str | None, typer.Option(help="Layers that ProjNorm trains; all of them.")] = None,
    reference: Annotated[str | None, typer.Option(help="trained, or fine-tuned for the network itself.")] = None,
    reference_samples: Annotated[str | None, typer.Option(help="m or all training images of the reference.")] = None,
    labels: Annotated[str | None, typer.Option(help="pseudo, or true for the ablation.")] = None,
    trajectory: Annotated[str | None, typer.Option(help="Steps after which ProjNorm is kept too.")] = None,
    methods: Annotated[str | None, typer.Option(help="Such as ATC,ProjNorm; all for later ones too.")] = None,
    rotation: Annotated[str | None, typer.Option(help="frozen, or joint with the classes.")] = None,
    rotation_samples: Annotated[int | None, typer.Option(help="Training images of a frozen rotation head.")] = None,
    precision: Annotated[str | None, typer.Option(help="float32, or mixed on CUDA.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything drawn.", min=0)] = None,
    device: Device = "auto",
    compiled: Annotated[bool, typer.Option("--compile", help="Train through torch.compile.")] = False,
    download: Annotated[
        bool, typer.Option("--download", help="Fetch cifar10 or cifar100 if they are missing.")
    ] = False,
    dry_run: DryRun = False,
    devices: Devices = DEVICES,
    tflops: Tflops = TFLOPS,
    gbps: Gbps = GBPS,
    workers: Workers = WORKERS,
    backend: BackendName = LOCAL,
    scheduler: Scheduler = None,
    out: Out = OUT,
    as_json: Json = False,
    fresh: Fresh = False,
) -> None:
    """Fine-tune a network, score every target with every method, and compare: start with `deep run digits`.

    Every stage is kept: the same command after an interruption goes on where it stopped. Options override the preset.
    """
    from dataclasses import replace

    from deep.experiments.comparison import run_comparison
    from deep.presets import preset as named
    from projnorm.vision import download_cifar
    from projnorm.vision.cifar import DOWNLOADS

    base = named(preset)
    chosen = given(
        data=data,
        weights=weights,
        corruptions=corruptions,
        targets=tuple(target) if target else None,
        families=words(families),
        severities=integers(severities, "--severities"),
        n_train=n_train,
        n_validation=n_validation,
        m=m,
        architecture=architecture,
        size=size,
        epochs=epochs,
        lr=lr,
        momentum=momentum,
        batch=batch,
        steps=steps,
        projnorm_lr=projnorm_lr,
        projnorm_batch=projnorm_batch,
        projnorm_batch_norm=projnorm_batch_norm,
        projnorm_samples=projnorm_samples,
        projnorm_layers=words(projnorm_layers),
        reference=reference,
        reference_samples=reference_samples,
        labels=labels,
        trajectory=within(base.trajectory, steps) if trajectory is None else integers(trajectory, "--trajectory"),
        methods=base.MEMBERS["methods"] if methods == "all" else words(methods),
        rotation=rotation,
        rotation_samples=rotation_samples,
        precision=precision,
        seed=seed,
    )
    config = replace(base, **chosen)
    if dry_run:
        on_paper.say_run(config, devices=devices, tflops=tflops, gbps=gbps, as_json=as_json)
        return
    if download:
        if config.data not in DOWNLOADS:
            raise ValueError(f"--download needs --data to be one of {', '.join(DOWNLOADS)}; got {config.data!r}.")
        download_cifar(config.data)
    where = backend_of(backend, workers, scheduler)
    record = run_comparison(
        config,
        root=runs_folder(out),
        backend=where,
        device=device,
        compiled=compiled,
        fresh=fresh,
    )
    report_run(record, runs_folder(out) / record.id, as_json=as_json)


@app.command("table")
def run_table(
    run: Run = None,
    form: Annotated[str, typer.Option("--format", help="text, markdown, latex or csv.")] = "text",
    targets: Annotated[bool, typer.Option("--targets", help="One row a target instead of one a method.")] = False,
    out: Out = OUT,
) -> None:
    """Print the table of a run, finished or not, from its ledger."""
    from figures import deep_table
    from figures.table import form_named

    written = form_named(form)
    scores = scores_of(run_folder(out, run))[1]
    typer.echo(written(deep_table.targets(scores) if targets else deep_table.build(scores)))


@app.command("figures")
def run_figures(run: Run = None, out: Out = OUT) -> None:
    """Draw the figures of a run, finished or not, from its ledger."""
    for path in draw_run(run_folder(out, run)):
        typer.echo(path)


@app.command("ntk")
def run_ntk(
    run: Run = None,
    n: Annotated[int | None, typer.Option("--n", help="Training images; 1000, or all there are.")] = None,
    m: Annotated[int | None, typer.Option("--m", help="Images of each target; all.")] = None,
    body: Annotated[str | None, typer.Option(help="Weights: initial as in the paper, or fine-tuned.")] = None,
    heads: Annotated[int | None, typer.Option(help="Last layers drawn, whose kernels are averaged; 1.")] = None,
    layers: Annotated[str | None, typer.Option(help="Parameters of these modules only, such as layer4,fc.")] = None,
    size: Annotated[int | None, typer.Option(help="Pixels that the kernel's network sees; those of the run.")] = None,
    top: Annotated[int | None, typer.Option(help="Eigenvectors in the alignment; 300.")] = None,
    device: Device = "auto",
    memory: Memory = 4.0,
    workers: MaybeWorkers = None,
    backend: BackendName = LOCAL,
    scheduler: Scheduler = None,
    out: Out = OUT,
    as_json: Json = False,
    fresh: Fresh = False,
) -> None:
    """ProjNormLinear on tangent kernels against the error of a run's fine-tuned network.

    Adds two rows to the table of the run: ProjNormLinear as defined, and the variant that does best on the probe
    families. Kernels are computed tile by tile and an interrupted command goes on where it stopped.
    """
    from deep.calibration import qualities
    from deep.experiments.ntk_predict import NtkPredictConfig, kernel_rows, run_ntk_predict
    from deep.ledger import Scores
    from figures import deep_table, ntk_decay_grid, ntk_intervals, ntk_norm_ratio, ntk_variants, style
    from figures.networks import paper_panels

    folder = run_folder(out, run)
    chosen = given(n=n, m=m, body=body, heads=heads, layers=words(layers), size=size, top=top)
    config = NtkPredictConfig(folder.name, **chosen)
    record = run_ntk_predict(
        config,
        root=runs_folder(out),
        backend=backend_of(backend, workers or workers_within(memory), scheduler),
        device=device,
        memory=memory * 1e9,
        fresh=fresh,
    )
    drawn = {
        "ntk_panels": paper_panels(record),
        "ntk_decay_grid": ntk_decay_grid.draw(record),
        "ntk_norm_ratio": ntk_norm_ratio.draw(record),
        "ntk_intervals": ntk_intervals.draw(record),
    }
    place = runs_folder(out) / record.id
    paths = [path for name, figure in drawn.items() for path in style.save(figure, place, name)]
    if as_json:
        document = {
            **described(record, paths),
            "rows": deep_table.values(qualities(Scores.of(kernel_rows(folder)))),
            "variants": ntk_variants.values(record),
            "targets": {
                key: record.arrays[key].tolist()
                for key in ("targets", "families", "severities", "network_error", "error", "projnorm", "rho", "overlap")
            },
            "record": str(place),
        }
        typer.echo(to_json(document))
        return
    typer.echo(ntk_variants.build(record).text())
    typer.echo(f"\n{ntk_variants.CAPTION}\n\nRecord and figures in {place}")


@app.command("presets")
def run_presets(as_json: Json = False) -> None:
    """List the configurations that have a name."""
    from dataclasses import asdict

    from deep.domain import domain_of
    from deep.presets import PRESETS, TEXT_PRESETS
    from figures.table import Table

    presets = {**PRESETS, **TEXT_PRESETS}
    if as_json:
        typer.echo(to_json({name: asdict(config) for name, config in presets.items()}))
        return
    header = ("preset", "command", "data", "network", "m", "T", "epochs")
    rows = [
        (
            name,
            "deep text" if name in TEXT_PRESETS else "deep run",
            Path(config.data).name,
            domain_of(config).network.partition("@")[0],
            f"{config.m:,}",
            f"{config.steps:,}",
            str(config.epochs),
        )
        for name, config in presets.items()
    ]
    typer.echo(Table(header, rows).text())


@app.command("gallery")
def run_gallery(out: Out = OUT) -> None:
    """Draw one picture under every corruption."""
    from figures import corruption_gallery, style

    for path in style.save(corruption_gallery.draw(), figures_folder(out), "corruptions"):
        typer.echo(path)
