"""`projnorm deep text`: the comparison on pairs of sentences."""

from __future__ import annotations

from typing import Annotated

import typer

from projnorm.cli import on_paper
from projnorm.cli.deep_runs import report_run
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
    Out,
    Scheduler,
    Tflops,
    Workers,
    backend_of,
    given,
    integers,
    runs_folder,
    within,
    words,
)


def run_text(
    preset: Annotated[str, typer.Argument(help="templates, cpu-mnli-minilm, ...; `deep presets` lists them.")],
    data: Annotated[str | None, typer.Option(help="A .jsonl, .tsv or .txt file of labelled pairs; templates.")] = None,
    test: Annotated[str | None, typer.Option(help="In-distribution pairs to predict on; some of the data.")] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="Labelled pairs: FILE or NAME=FILE+FILE; repeatable; none.")
    ] = None,
    subsets: Annotated[str | None, typer.Option(help="Parts of sets: of overlap,negation,category; none.")] = None,
    model: Annotated[str | None, typer.Option(help="tiny, a folder, a package, or a name[@revision].")] = None,
    length: Annotated[int | None, typer.Option(help="Tokens of a pair that the network sees.")] = None,
    n_train: Annotated[int | None, typer.Option(help="Pairs to fine-tune on; 0 for all.")] = None,
    n_validation: Annotated[int | None, typer.Option(help="Labelled pairs held out of training.")] = None,
    m: Annotated[int | None, typer.Option("--m", help="Pairs of each target.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Of fine-tuning.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate of fine-tuning.")] = None,
    batch: Annotated[int | None, typer.Option(help="Of fine-tuning.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", "--T", help="Steps of ProjNorm.")] = None,
    projnorm_lr: Annotated[float | None, typer.Option(help="Learning rate of ProjNorm.")] = None,
    projnorm_batch: Annotated[int | None, typer.Option(help="Batch of ProjNorm.")] = None,
    projnorm_samples: Annotated[int | None, typer.Option(help="Pairs of a target that ProjNorm sees; 0: all.")] = None,
    projnorm_layers: Annotated[str | None, typer.Option(help="Layers that ProjNorm trains; all of them.")] = None,
    reference: Annotated[str | None, typer.Option(help="trained, or fine-tuned for the network itself.")] = None,
    reference_samples: Annotated[str | None, typer.Option(help="m or all training pairs of the reference.")] = None,
    labels: Annotated[str | None, typer.Option(help="pseudo, or true for the ablation.")] = None,
    trajectory: Annotated[str | None, typer.Option(help="Steps after which ProjNorm is kept too.")] = None,
    methods: Annotated[str | None, typer.Option(help="Such as ATC,ProjNorm; all for later ones too.")] = None,
    precision: Annotated[str | None, typer.Option(help="float32, or mixed on CUDA.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything drawn.", min=0)] = None,
    device: Device = "auto",
    compiled: Annotated[bool, typer.Option("--compile", help="Train through torch.compile.")] = False,
    download: Annotated[bool, typer.Option("--download", help="Fetch the model by its name.")] = False,
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
    """Fine-tune a classifier of sentence pairs and predict its error on other sets: start with `deep text templates`.

    Resumes like `deep run`; `deep table`, `figures`, `sweep`, `trajectory`, `residuals` and `ensemble` work on it too.
    """
    from dataclasses import replace

    from deep.experiments.comparison import run_comparison
    from deep.presets import text_preset
    from projnorm.text import download_checkpoint

    base = text_preset(preset)
    chosen = given(
        data=data,
        test=test,
        targets=None if target is None else () if target == ["none"] else tuple(target),
        subsets=words(subsets),
        model=model,
        length=length,
        n_train=n_train,
        n_validation=n_validation,
        m=m,
        epochs=epochs,
        lr=lr,
        batch=batch,
        steps=steps,
        projnorm_lr=projnorm_lr,
        projnorm_batch=projnorm_batch,
        projnorm_samples=projnorm_samples,
        projnorm_layers=words(projnorm_layers),
        reference=reference,
        reference_samples=reference_samples,
        labels=labels,
        trajectory=within(base.trajectory, steps) if trajectory is None else integers(trajectory, "--trajectory"),
        methods=base.MEMBERS["methods"] if methods == "all" else words(methods),
        precision=precision,
        seed=seed,
    )
    config = replace(base, **chosen)
    if dry_run:
        on_paper.say_run(config, devices=devices, tflops=tflops, gbps=gbps, as_json=as_json)
        return
    if download:
        download_checkpoint(config.model)
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
