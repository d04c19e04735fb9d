"""`projnorm predict`: the error of your model on your unlabelled data, with an interval."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from projnorm.cli.output import say, say_json
from projnorm.config import Config, seed_setting, setting
from projnorm.errors import InputError
from projnorm.files import locate

if TYPE_CHECKING:
    from deep.estimate import ErrorEstimate

LOGGER = logging.getLogger("projnorm")
_SIZE = 224


@dataclass(frozen=True)
class DataOptions(Config):
    """Samples, or what the model said of them."""

    source: str = setting(help="Labelled samples like those of training: an .npz or .npy file, or class folders.")
    target: tuple[str, ...] = setting(help="Unlabelled samples, a file for each set.", repeat=True, nonempty=True)
    calibration: tuple[str, ...] = setting(
        (), "Labelled shifted sets, a file each; fog-1.npz and fog-3.npz are of one family.", repeat=True
    )


@dataclass(frozen=True)
class ModelOptions(Config):
    """The model, unless the files hold its outputs."""

    model: str = setting("", "FILE.py:FUNCTION that builds the model, or an .onnx file.")
    weights: str = setting("", "Weights of the model: a .pth or .safetensors file.")
    init: str = setting("", "Weights that fine-tuning began with, for ProjNorm.")
    second: tuple[str, ...] = setting((), "Weights of another training, for GDE; two or more for ALine.", repeat=True)
    preprocess: str = setting(
        "auto",
        "Preparation of a batch: unit scales bytes to 0..1 with colours first; auto is the model's own, or unit.",
        choices=("auto", "unit", "imagenet", "none"),
    )
    size: int | None = setting(
        None, f"Pixels that a network sees with --preprocess imagenet; {_SIZE} by default.", least=1
    )
    device: str = setting("auto", "Device: auto, cpu, cuda or mps.")

    def check(self) -> None:
        """Refuse options that would be ignored."""
        if not self.model or self.model.endswith(".onnx"):
            for name in ("weights", "init", "second"):
                if getattr(self, name):
                    raise InputError(f"`{name}` needs `model` to be FILE.py:FUNCTION.")
        if self.size is not None and self.preprocess != "imagenet":
            raise InputError("`size` is for `preprocess` imagenet.")


@dataclass(frozen=True)
class AnswerOptions(Config):
    """What is estimated and printed."""

    methods: tuple[str, ...] = setting(("default",), "default, all, or names such as COT,ATC.", nonempty=True)
    calibrate: bool = setting(True, "Calibrate on shifted copies of the source, where there is a model.")
    level: float = setting(0.9, "Level of the interval.", above=0.0, below=1.0)
    fail_above: float | None = setting(
        None, "Exit with 1 if the error is likely above this, such as 0.2.", above=0.0, below=1.0
    )
    fail_probability: float | None = setting(
        None, "Probability that --fail-above asks for; 0.5 by default.", above=0.0, below=1.0
    )
    all_methods: bool = setting(False, "Print what every method says.")
    card: str = setting("", "File for an HTML page with the answer and the picture of the calibration.")
    seed: int = seed_setting()
    json: bool = setting(False, "Print machine-readable output only.")

    def check(self) -> None:
        """Refuse a probability without a threshold."""
        if self.fail_probability is not None and self.fail_above is None:
            raise InputError("`fail_probability` is for `fail_above`.")


def predict(data: DataOptions, model: ModelOptions, answer: AnswerOptions) -> int:
    """Estimate the error of your model on your unlabelled data, with an interval: start with two .npz files of outputs.

    A file of outputs holds `logits` (or `probabilities`) and, where they are known, `features`, `labels`, and
    `other_logits` of other models. With --model it holds `images` or `inputs`, and `labels`.
    """
    files = [*(data.source, *data.target, *data.calibration), *(model.weights, model.init, *model.second)]
    for name in [*files, model.model.rpartition(":")[0] or model.model]:
        if name and not locate(name).exists():
            raise InputError(f"{name}: there is no such file or folder.")
    if not model.model:
        # POT would import torch, jax and more for tensors that are not used here.
        os.environ.update({f"POT_BACKEND_DISABLE_{name}": "1" for name in ("PYTORCH", "JAX", "CUPY", "TENSORFLOW")})
    from deep.estimate import estimate_errors

    if data.calibration and not answer.calibrate:
        raise InputError("`calibration` and --no-calibrate exclude each other; leave one out.")
    options: dict[str, Any] = _model(model, answer.seed)
    read: Callable[[Path], Any] = options.pop("read")
    sets = {name: read(path) for name, path in _named(data.calibration).items()}
    estimates = estimate_errors(
        options.pop("model"),
        read(Path(data.source)),
        {name: read(path) for name, path in _named(data.target).items()},
        methods=answer.methods[0] if answer.methods[0] in ("default", "all") else answer.methods,
        calibration=sets or ("auto" if answer.calibrate else "none"),
        level=answer.level,
        seed=answer.seed,
        device=model.device,
        **options,
    )
    if answer.json:
        above = answer.fail_above
        extra = [{} if above is None else {"probability_above": one.probability_above(above)} for one in estimates]
        say_json({"estimates": [one.to_dict() | more for one, more in zip(estimates, extra, strict=True)]})
    else:
        _print(estimates, answer)
    if answer.card:
        _write_card(Path(answer.card), estimates, data, model)
        if not answer.json:
            say(f"\nOpen {answer.card} in a browser.")
    if answer.fail_above is None:
        return 0
    likely = answer.fail_probability or 0.5
    return int(any(one.probability_above(answer.fail_above) >= likely for one in estimates))


def _print(estimates: list[ErrorEstimate], answer: AnswerOptions) -> None:
    for one in estimates:
        say(f"{one.target}: {one}\n")
        for warning in one.warnings:
            say(f"Warning: {warning}")
        if answer.fail_above is not None:
            above = one.probability_above(answer.fail_above)
            say(f"Probability that the error is above {100 * answer.fail_above:g} %: {above:.2f}")
        if answer.all_methods:
            from figures.error_card import build

            say(f"\n{build(one).text()}\n")
    if not answer.all_methods:
        say("--all-methods prints what every method says.")


def _write_card(path: Path, estimates: list[ErrorEstimate], data: DataOptions, model: ModelOptions) -> None:
    from figures.error_card import card
    from projnorm.atomic import write_atomically

    names = {"source": Path(data.source).name, "targets": ", ".join(Path(name).name for name in data.target)}
    command = shlex.join(["projnorm", *sys.argv[1:]])
    html = card(estimates, command=command, model=model.model or "the model behind the outputs", data=names)
    write_atomically(path, html.encode("utf-8"))


def _model(options: ModelOptions, seed: int) -> dict[str, Any]:
    """The arguments of `estimate_errors` that come from a user's model, and the function that reads its files."""
    if not options.model:
        return {"model": None, "read": locate}
    from deep.estimate.model_files import build_model, initial_network, preparation, read_samples, with_weights

    if options.model.endswith(".onnx"):
        return {"model": locate(options.model), "read": read_samples}

    built = build_model(options.model, Path(options.weights) if options.weights else None, seed=seed)
    if not options.weights:
        LOGGER.warning("no --weights were given: the model is used with the weights that %s gave it.", options.model)
    return {
        "model": built.model,
        "read": read_samples,
        "prepare": preparation(options.preprocess, options.size or _SIZE, built.prepare),
        "init": initial_network(built, Path(options.init), seed=seed) if options.init else None,
        "others": [with_weights(built, Path(path)) for path in options.second],
    }


def _named(paths: Iterable[str]) -> dict[str, Path]:
    """Files by their names without ending, each of which must be another."""
    found: dict[str, Path] = {}
    for path in map(Path, paths):
        if path.stem in found:
            raise InputError(f"two sets are called {path.stem!r}: {found[path.stem]} and {path}; rename one.")
        found[path.stem] = path
    return found
