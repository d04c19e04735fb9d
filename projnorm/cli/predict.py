"""`projnorm predict`: the error of your model on your unlabelled data, with an interval."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from projnorm.cli.options import Device, Json, Seed, to_json, words

if TYPE_CHECKING:
    from deep.predict import ErrorEstimate


def run(
    source: Annotated[Path, typer.Option(help="Labelled samples like those of training.")],
    target: Annotated[list[Path], typer.Option(help="Unlabelled samples; repeatable.")],
    more: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="More sets, behind --calibration.")
    ] = None,
    calibration: Annotated[
        list[Path] | None,
        typer.Option(help="Labelled shifted sets, a file each; fog-1.npz and fog-3.npz are of one family."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="FILE.py:FUNCTION that builds the model, or an .onnx file; none for outputs.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Of the model: .pth or .safetensors.")] = None,
    init: Annotated[Path | None, typer.Option(help="Weights that fine-tuning began with, for ProjNorm.")] = None,
    second: Annotated[
        list[Path] | None, typer.Option(help="Weights of another training, for GDE; two or more for ALine.")
    ] = None,
    preprocess: Annotated[
        str, typer.Option(help="unit: bytes to 0..1, colours first; imagenet; none; auto: the model's own, or unit.")
    ] = "auto",
    size: Annotated[int, typer.Option(help="Pixels that a network with --preprocess imagenet sees.", min=1)] = 224,
    methods: Annotated[str, typer.Option(help="default, all, or names such as COT,ATC.")] = "default",
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate/--no-calibrate", help="On shifted copies of the source, with --model."),
    ] = True,
    level: Annotated[float, typer.Option(help="Of the interval.")] = 0.9,
    fail_above: Annotated[
        float | None, typer.Option(help="Exit with 1 if the error is likely above this, such as 0.2.")
    ] = None,
    fail_probability: Annotated[float, typer.Option(help="How likely that must be for --fail-above.")] = 0.5,
    card: Annotated[Path | None, typer.Option(help="Write an HTML page with the picture of the calibration.")] = None,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Estimate the error of your model on your unlabelled data, with an interval: start with two .npz files of outputs.

    A file of outputs holds `logits` (or `probabilities`), and if they are known `features`, `labels`, and
    `other_logits` of other models. With --model it holds `images` or `inputs`, and `labels`.
    """
    from deep.predict import estimate_errors
    from figures import error_card

    _require_between("--level", level)
    _require_between("--fail-probability", fail_probability)
    if fail_above is not None:
        _require_between("--fail-above", fail_above)
    if more and not calibration:
        raise ValueError(f"{more[0]}: name each file with --source, --target or --calibration.")
    sets = [*(calibration or ()), *(more or ())]
    built: dict[str, Any] = {"model": None}
    if model is not None:
        built = _model(model, weights, init, second or [], preprocess, size, seed)
    elif weights or init or second:
        raise ValueError("--weights, --init and --second need --model.")
    read = _reader(has_model=model is not None)
    given = {name: read(path) for name, path in _named(sets).items()}
    found = estimate_errors(
        built.pop("model"),
        read(source),
        {name: read(path) for name, path in _named(target).items()},
        methods=methods if methods in ("default", "all") else words(methods) or (),
        calibration=given or ("auto" if calibrate else "none"),
        level=level,
        seed=seed,
        device=device,
        **built,
    )
    if as_json:
        typer.echo(to_json({"estimates": [error_card.values(one, fail_above) for one in found]}))
    else:
        _print(found, fail_above)
        if sets:
            typer.echo(f"\nCalibrated on {', '.join(path.name for path in sets)} and half of the source.")
    if card is not None:
        _write_card(card, found)
        if not as_json:
            typer.echo(f"\nOpen {card} in a browser.")
    if fail_above is not None and any(one.probability_above(fail_above) >= fail_probability for one in found):
        raise typer.Exit(1)


def _print(found: list[ErrorEstimate], threshold: float | None) -> None:
    from figures import error_card
    from figures.table import Table

    for one in found:
        typer.echo(f"{one.target}\n")
        typer.echo(error_card.build(one).text() + "\n")
        typer.echo(one.sentence)
        for warning in one.warnings:
            typer.echo(f"Warning: {warning}")
        typer.echo("")
    rows = [
        (
            one.target,
            f"{one.m:,}",
            f"{100 * one.error:.1f} %",
            f"{100 * one.low:.1f} to {100 * one.high:.1f} %",
            "" if threshold is None else f"{one.probability_above(threshold):.2f}",
        )
        for one in found
    ]
    header = ("target", "samples", "error", f"{100 * found[0].level:g} % interval")
    if threshold is None:
        typer.echo(Table(header, [row[:-1] for row in rows]).text())
    else:
        typer.echo(Table((*header, f"P(error > {100 * threshold:g} %)"), rows).text())


def _write_card(path: Path, found: list[ErrorEstimate]) -> None:
    from dataclasses import asdict

    from figures import error_card
    from figures.report import page
    from projnorm.runs import current_environment, write_atomically

    names = ", ".join(one.target for one in found)
    html = page(
        f"Estimated error on {names}",
        "What error to expect of a model on data without labels, how sure that is, and what it rests on.",
        [error_card.section(one) for one in found],
        asdict(current_environment()),
    )
    write_atomically(path, html.encode("utf-8"))


def _model(
    place: str, weights: Path | None, init: Path | None, second: list[Path], preprocess: str, size: int, seed: int
) -> dict[str, Any]:
    """The arguments of `estimate_errors` that come from a user's model."""
    from deep.predict.files import build_model, initial_network, preparation, with_weights
    from projnorm.files import locate

    if place.endswith(".onnx"):
        if weights or init or second:
            raise ValueError("--weights, --init and --second need --model to be FILE.py:FUNCTION.")
        return {"model": locate(place)}
    built = build_model(place, weights, seed=seed)
    return {
        "model": built.model,
        "prepare": preparation(preprocess, size, built.prepare),
        "init": None if init is None else initial_network(built, init, seed=seed),
        "others": [with_weights(built, path) for path in second],
    }


def _reader(*, has_model: bool) -> Any:
    from deep.predict.files import read_samples
    from projnorm.files import locate

    return read_samples if has_model else locate


def _named(paths: list[Path]) -> dict[str, Path]:
    """Files by their names without ending.

    Raises:
        ValueError: If two have one name.
    """
    found: dict[str, Path] = {}
    for path in paths:
        if path.stem in found:
            raise ValueError(f"two sets are called {path.stem!r}: {found[path.stem]} and {path}; rename one.")
        found[path.stem] = path
    return found


def _require_between(option: str, value: float) -> None:
    if not 0.0 < value < 1.0:
        raise ValueError(f"{option} must be above 0 and below 1; got {value:g}.")
