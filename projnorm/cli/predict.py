"""`projnorm predict`: the error of your model on your unlabelled data, with an interval."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from projnorm.cli.output import say, say_json
from projnorm.config import Config, seed_setting, setting
from projnorm.errors import InputError
from projnorm.files import locate
from projnorm.tables import is_table_file, stem

if TYPE_CHECKING:
    from deep.estimate import ErrorEstimate

LOGGER = logging.getLogger("projnorm")
_SIZE = 224


@dataclass(frozen=True)
class DataOptions(Config):
    """Samples, or what the model said of them."""

    source: str = setting(
        help="Labelled samples like those of training: an .npz, .npy, .csv, .csv.gz or .parquet file, or class folders."
    )
    target: tuple[str, ...] = setting(help="Unlabelled samples, a file for each set.", repeat=True, nonempty=True)
    calibration: tuple[str, ...] = setting(
        (), "Labelled shifted sets, a file each; fog-1.npz and fog-3.npz are of one family.", repeat=True
    )
    label_column: str = setting(
        "",
        "Column of the labels in .csv and .parquet files; label, labels, y or target need not be named.",
    )

    def check(self) -> None:
        """Refuse a column where there is no table."""
        if self.label_column and not any(map(is_table_file, map(Path, (self.source, *self.target, *self.calibration)))):
            raise InputError("`label_column` is for .csv and .parquet files.")


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
            for name in ("weights", "init", "second", "preprocess"):
                if getattr(self, name) not in ("", (), "auto"):
                    raise InputError(f"`{name}` needs `model` to be FILE.py:FUNCTION.")
        if self.size is not None and self.preprocess != "imagenet":
            raise InputError("`size` is for `preprocess` imagenet.")


@dataclass(frozen=True)
class AnswerOptions(Config):
    """What is estimated and printed."""

    shift: str = setting(
        "any",
        "What is known of the shift: nothing; only class shares changed; or class shares are those of the source.",
        choices=("any", "classes", "inputs"),
    )
    class_shares: tuple[float, ...] = setting(
        (),
        "Class shares of the targets, where known, in the order of the columns (of a table: by name), as 0.3,0.7.",
    )
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

    A file of outputs holds `logits` (or `probabilities`) and, where they are known, `features`, `labels`,
    `predictions`, and `other_logits` of other models; a table has a column prob_NAME for each class, and `label`. With
    --model a file holds `images` or `inputs`, and `labels`; a table has the columns that the model takes, and `label`.
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
    read: Callable[[Path], Any] = partial(options.pop("read"), label_column=data.label_column)
    source = _labelled(read, Path(data.source))
    targets = {name: read(path) for name, path in _named(data.target).items()}
    sets = {name: _labelled(read, path) for name, path in _named(data.calibration).items()}
    estimates = estimate_errors(
        options.pop("model"),
        source,
        targets,
        shift=answer.shift,
        class_shares=answer.class_shares or None,
        methods=_methods(answer),
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


def _methods(answer: AnswerOptions) -> str | tuple[str, ...]:
    """Methods as `estimate_errors` takes them; all that cost little where they are to be printed."""
    if answer.methods[0] not in ("default", "cheap", "all"):
        return answer.methods
    return "cheap" if answer.methods[0] == "default" and answer.all_methods else answer.methods[0]


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
        return {"model": None, "read": _read_outputs}
    from deep.estimate.sample_files import preparation, read_samples
    from projnorm.vision.model_files import build_model, initial_network, with_weights

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
        if stem(path) in found:
            raise InputError(f"two sets are called {stem(path)!r}: {found[stem(path)]} and {path}; rename one.")
        found[stem(path)] = path
    return found


def _read_outputs(path: Path, *, label_column: str) -> Any:
    """The arrays in a table of outputs; for another file its path, which is read later."""
    path = locate(path)
    if not is_table_file(path):
        return path
    from deep.output_tables import arrays_of_table
    from projnorm.tables import read_table

    return arrays_of_table(read_table(path), str(path), label_column=label_column)


def _labelled(read: Callable[[Path], Any], path: Path) -> Any:
    """What is in a file; a table must have labels, which is said before anything is computed."""
    found = read(path)
    is_labelled = isinstance(found, tuple) or (isinstance(found, dict) and "labels" in found)
    if is_table_file(path) and not is_labelled:
        raise InputError(f"{path}: has no labels in a column called label; name the column as `label_column`.")
    return found
