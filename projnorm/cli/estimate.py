"""`projnorm estimate`: the error of your model on your unlabelled data, with an interval."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from projnorm.cli.model_data import (
    EstimateFlags,
    EstimatorOption,
    ModelData,
    ModelOptions,
    SourceOptions,
    named,
    require_source,
)
from projnorm.cli.output import require_not_input, say, say_json
from projnorm.core.config import Config, setting
from projnorm.core.errors import InputError

if TYPE_CHECKING:
    from projnorm.estimate.result import ErrorEstimate


@dataclass(frozen=True)
class TargetOptions(Config):
    """The new samples."""

    target: tuple[str, ...] = setting(help="Unlabelled samples, a file for each set.", repeat=True, nonempty=True)
    labelled: str = setting(
        "",
        "CSV file with labels of some samples of the target: one that `projnorm label` wrote and you filled in, or "
        "columns sample (row of the target, from 0) and label of samples that were drawn uniformly.",
    )
    interval: str = setting(
        "auto",
        "Interval from labels: fixed for a number decided beforehand, anytime for looking after every label, "
        "guaranteed for at least the level; auto is fixed where all that were chosen are labelled, else anytime.",
        choices=("auto", "fixed", "anytime", "guaranteed"),
    )

    def check(self) -> None:
        """Labels are of one target."""
        if self.labelled and len(self.target) > 1:
            raise InputError("`labelled` is for one `target`.")
        if self.interval != "auto" and not self.labelled:
            raise InputError("`interval` is for `labelled`.")


@dataclass(frozen=True)
class AnswerOptions(Config):
    """What is printed."""

    methods: tuple[str, ...] = setting(("default",), "default, all, or names such as COT,ATC.", nonempty=True)
    metrics: bool = setting(False, "Also estimate recall and precision of the classes, macro F1 and more.")
    fail_above: float | None = setting(
        None, "Exit with 1 if the error is likely above this, such as 0.2.", above=0.0, below=1.0
    )
    fail_probability: float | None = setting(
        None, "Probability that --fail-above asks for; 0.5 by default.", above=0.0, below=1.0
    )
    all_methods: bool = setting(False, "Print what every method says.")
    card: str = setting("", "File for an HTML page with the answer and the picture of the calibration.")
    json: bool = setting(False, "Print machine-readable output only.")

    def check(self) -> None:
        """Refuse a probability without a threshold."""
        if self.fail_probability is not None and self.fail_above is None:
            raise InputError("`fail_probability` is for `fail_above`.")


def estimate(
    data: SourceOptions,
    targets: TargetOptions,
    estimator: EstimatorOption,
    model: ModelOptions,
    settings: EstimateFlags,
    answer: AnswerOptions,
) -> int:
    """Estimate the error of your model on your unlabelled data, with an interval: start with two .npz files of outputs.

    A file of outputs holds `logits` (or `probabilities`) and, where they are known, `features`, `labels`,
    `predictions`, and `other_logits` of other models; a table has a column prob_NAME for each class, and `label`. With
    --model a file holds `images` or `inputs`, and `labels`; a table has the columns that the model takes, and `label`.
    """
    require_source(data, estimator)
    files = [*filter(None, [data.source, estimator.estimator, targets.labelled, *targets.target, *data.calibration])]
    if answer.card:
        require_not_input(Path(answer.card), "card", files)
        if Path(answer.card).exists() and Path(answer.card).suffix.lower() not in (".html", ".htm"):
            raise InputError(f"{answer.card}: exists, and is no page; name a file that ends in .html as `card`.")
    opened = ModelData(model, files, label_column=data.label_column, seed=settings.seed)
    estimates = _estimates(opened, data, targets, estimator, settings, answer)
    if answer.json:
        above = answer.fail_above
        documents = [estimate.to_dict() for estimate in estimates]
        if above is not None:
            for document, estimate in zip(documents, estimates, strict=True):
                document["probability_above"] = estimate.probability_above(above)
        say_json({"estimates": documents})
    else:
        _print(estimates, answer)
    if answer.card:
        source = data.source or estimator.estimator
        _write_card(Path(answer.card), estimates, {"source": source, "targets": ", ".join(targets.target)}, model)
        if not answer.json:
            say(f"\nOpen {answer.card} in a browser.")
    if answer.fail_above is None:
        return 0
    likely = answer.fail_probability or 0.5
    return int(any(estimate.probability_above(answer.fail_above) >= likely for estimate in estimates))


def _estimates(
    opened: ModelData,
    data: SourceOptions,
    targets: TargetOptions,
    estimator: EstimatorOption,
    settings: EstimateFlags,
    answer: AnswerOptions,
) -> list[ErrorEstimate]:
    if estimator.estimator:
        if settings != EstimateFlags() or answer.methods != ("default",):
            raise InputError("an estimator has its settings from `projnorm fit`; leave them out here.")
        fitted = opened.load(estimator.estimator)
        apply = partial(
            fitted.estimate, labelled=targets.labelled or None, interval=targets.interval, metrics=answer.metrics
        )
        return [apply(opened.read(path), name=name) for name, path in named(targets.target).items()]
    from projnorm.estimate.estimate import estimate_named

    source = opened.labelled(data.source)
    sets = {name: opened.read(path) for name, path in named(targets.target).items()}
    estimates = estimate_named(
        opened.model,
        source,
        sets,
        opened.options(data.calibration, settings, methods=_methods(answer)),
        labelled=targets.labelled or None,
        interval=targets.interval,
        metrics=answer.metrics,
    )
    return list(estimates.values())


def _methods(answer: AnswerOptions) -> str | tuple[str, ...]:
    """Methods as `estimate_errors` takes them; all that cost little where they are printed or drawn."""
    if answer.methods[0] not in ("default", "cheap", "all"):
        return answer.methods
    return "cheap" if answer.methods[0] == "default" and (answer.all_methods or answer.card) else answer.methods[0]


def _print(estimates: list[ErrorEstimate], answer: AnswerOptions) -> None:
    shows_methods = answer.all_methods or answer.methods[0] in ("cheap", "all")
    for estimate in estimates:
        say(f"{estimate.target}: {estimate}\n")
        if answer.fail_above is not None:
            above = estimate.probability_above(answer.fail_above)
            say(f"Probability that the error is above {100 * answer.fail_above:g} %: {above:.2f}")
        if answer.metrics:
            from figures.error_card import build_metrics

            say(f"\n{build_metrics(estimate).text()}\n")
        if shows_methods:
            from figures.error_card import build

            say(f"\n{build(estimate).text()}\n")
    if not shows_methods:
        say("--all-methods prints the estimate of every method.")


def _write_card(path: Path, estimates: list[ErrorEstimate], data: dict[str, str], model: ModelOptions) -> None:
    from figures.error_card import card
    from projnorm.core.atomic import write_atomically

    names = {what: ", ".join(Path(name).name for name in names.split(", ")) for what, names in data.items()}
    command = shlex.join(["projnorm", *sys.argv[1:]])
    html = card(estimates, command=command, model=model.model or "the model behind the outputs", data=names)
    write_atomically(path, html.encode("utf-8"))
