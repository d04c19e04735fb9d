"""The error of a model on unlabelled data, with an interval and what it is based on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from projnorm.core.errors import InputError
from projnorm.core.statistics import Interval
from projnorm.data.tables import stem
from projnorm.estimate.fitted_source import FittedSource, halves
from projnorm.estimate.options import EstimateOptions, asked_methods, check_options, one_thread_for
from projnorm.estimate.result import ErrorEstimate
from projnorm.estimate.source_and_model import SourceAndModel, known_shares
from projnorm.estimators.registry import ESTIMATORS
from projnorm.labels.labelled import AUTO, Labelled, LabelledError, labelled_error, metrics_from_labels
from projnorm.labels.metrics import MetricEstimate
from projnorm.models.batches import Collate
from projnorm.models.classifiers import is_network
from projnorm.outputs.outputs import LOGITS, PROBABILITIES, Outputs, require_alike
from projnorm.outputs.tables import is_table

if TYPE_CHECKING:
    from torch import nn

    from projnorm.models.preparation import Prepare
    from projnorm.models.recipe import Recipe

_REFUTED = (
    "The labels refute the estimate without labels: the shift is of a kind that outputs do not show. Do not trust "
    "label-free estimates under it."
)
_GAPS = (
    "The labelled samples are not the first that were chosen; the interval holds only if which were left out has "
    "nothing to do with their labels."
)


def estimate_error(
    model: Any,
    source: Any,
    target: Any,
    *,
    labelled: Any = None,
    interval: str = AUTO,
    **options: Unpack[EstimateOptions],
) -> ErrorEstimate:
    """Estimate the error of a model on one unlabelled set.

    Args:
        model: A network of torch or `transformers`, a classifier with `predict_proba` or `decision_function`, the path
            of an ONNX file; or None, and then both sets are outputs.
        source: Labelled samples of the distribution the model was trained on, but not those it was trained on.
        target: Unlabelled samples; labels, if it has any, give `ErrorEstimate.truth` and nothing else.
        labelled: Labels of some samples of the target: a file that `choose_labels` made and a person filled in, its
            `LabelPlan`, or a table with `sample`, the row of the target, and `label`, of samples drawn uniformly. The
            estimate is then made of them, and its interval holds whatever the shift is.
        interval: Interval from labels: "fixed" for a number of labels decided beforehand, "anytime" for looking after
            every label and stopping when it is narrow enough, "guaranteed" for a coverage of at least the level
            whatever the errors are; "auto" is fixed where all samples that were chosen are labelled, else anytime.
        options: `shift`, `class_shares`, `methods`, `calibration`, `level`, `seed`, `device`, `prepare`, `init`,
            `others`, `collate` and `metrics`, as in `estimate_errors`.

    Raises:
        InputError: If something does not fit; the message says what.
        OSError: If a file cannot be read.
    """
    _require_one(target, model)
    name = stem(Path(target)) if model is None and isinstance(target, str | Path) else "target"
    if labelled is None:
        return estimate_errors(model, source, {name: target}, **options)[0]
    known = Labelled.from_input(labelled)
    check_options(options)
    with one_thread_for(model, options):
        sets = SourceAndModel.of_options(model, source, options)
        outputs = sets.of(target, name, needs_labels=False)
        require_alike(sets.source, outputs)
        estimator = estimator_of(sets, options)
        return with_labels(estimator, outputs, known, interval, metrics=options.get("metrics", False))


def with_labels(
    estimator: FittedSource, outputs: Outputs, known: Labelled, interval: str, *, metrics: bool
) -> ErrorEstimate:
    """The estimate for a target of which some labels are known, if asked for with metrics besides the error."""
    free = estimator.estimate(outputs)
    rows = estimator.class_probabilities(outputs, free.error)
    said = Interval(free.error, free.low, free.high)
    found = labelled_error(known, outputs, rows, said, interval=interval, level=estimator.level)
    warnings_for = {_REFUTED: found.refutes_label_free, _GAPS: not known.is_beginning}
    return replace(
        free,
        error=found.error,
        low=found.low,
        high=found.high,
        based_on=("labels",),
        warnings=(
            *estimator.general_warnings(outputs),
            *(warning for warning, holds in warnings_for.items() if holds),
        ),
        labelled=found,
        metrics=_labelled_metrics(estimator, outputs, known, found) if metrics else (),
    )


def _labelled_metrics(
    estimator: FittedSource, outputs: Outputs, known: Labelled, found: LabelledError
) -> tuple[MetricEstimate, ...]:
    """Metrics from labels; the accuracy is that of the estimate, whose interval is exact."""
    accuracy, *others = metrics_from_labels(known, outputs, level=estimator.level, seed=estimator.seed)
    exact = replace(accuracy, value=1.0 - found.error, low=1.0 - found.high, high=1.0 - found.low)
    return (exact, *others)


def estimate_errors(
    model: Any,
    source: Any,
    targets: Mapping[str, Any] | list[Any],
    *,
    shift: str = "any",
    class_shares: Sequence[float] | Mapping[Any, float] | None = None,
    methods: str | Sequence[str] = "default",
    calibration: str | Mapping[str, Any] = "auto",
    level: float = 0.9,
    seed: int = 0,
    device: str = "auto",
    prepare: Prepare | None = None,
    init: nn.Module | tuple[nn.Module, Recipe] | None = None,
    others: Sequence[Any] = (),
    collate: Collate | None = None,
    metrics: bool = False,
) -> list[ErrorEstimate]:
    """Estimate the error of a model on each of several unlabelled sets.

    Args:
        model: A network of torch or `transformers`, a classifier with `predict_proba` or `decision_function`, the path
            of an ONNX file; or None, and then every set is outputs: `Outputs`; a mapping with `logits` or
            `probabilities` and perhaps `labels`, `predictions`, `features` and `other_logits`; a DataFrame with the
            columns that `projnorm.outputs.output_tables` lists; the path of a file of these; or what `Trainer.predict`
            returns.
        source: Labelled samples of the distribution the model was trained on, but not those it was trained on:
            `projnorm.models.batches.as_batches` lists the forms.
        targets: Unlabelled samples by name, or a list of them, in the same forms.
        shift: What is known of the shift: "any", nothing; "classes", only class shares have changed; "inputs", class
            shares are those of the source.
        class_shares: Share of each class in the targets, where it is known: one number per class in the order of the
            columns (of a table: of the names of the classes), or numbers by class.
        methods: "default"; "cheap", which also runs every method that needs no training; "all"; or names, in upper or
            lower case, which the estimate is then made of.
        calibration: "auto" makes shifted copies of the source where it is images; "none" makes none; or labelled
            shifted sets by name. What stands before a last dash and number is the family: "fog-1" and "fog-3" are of
            one.
        level: Level of the intervals.
        seed: Seed of everything drawn.
        device: Device that networks of torch run on, or "auto".
        prepare: Function from a batch of inputs to what a network takes, such as `projnorm.data.ImageNetInput`; by
            default images as bytes with colours last become numbers from 0 to 1 with colours first.
        init: The same network with the weights that fine-tuning started from, for ProjNorm; or a pair of it and the
            `Recipe` of ProjNorm's trainings.
        others: More models of the same classes, for GDE and ALine.
        collate: Function from a list of samples to a batch, such as `transformers.DataCollatorWithPadding`.
        metrics: Whether to estimate recall and precision of the classes, balanced accuracy and more, too.

    Raises:
        InputError: If something does not fit; the message says what.
        OSError: If a file cannot be read.
    """
    named = _named(targets, has_model=model is not None)
    options: EstimateOptions = {
        "shift": shift,
        "class_shares": class_shares,
        "methods": methods,
        "calibration": calibration,
        "level": level,
        "seed": seed,
        "device": device,
        "prepare": prepare,
        "init": init,
        "others": others,
        "collate": collate,
        "metrics": metrics,
    }
    check_options(options)
    with one_thread_for(model, options):
        # Sets that cannot be read are refused before the model is run on shifted copies of the source.
        sets = SourceAndModel.of_options(model, source, options)
        outputs = [sets.of(data, name, needs_labels=False) for name, data in named.items()]
        for one in outputs:
            require_alike(sets.source, one)
        estimator = estimator_of(sets, options)
        return [estimator.estimate(one, metrics=metrics) for one in outputs]


def estimator_of(sets: SourceAndModel, options: EstimateOptions) -> FittedSource:
    """What is learnt from the source; the options are those of `estimate_errors`, checked before."""
    calibration, seed = options.get("calibration", "auto"), options.get("seed", 0)
    asked, wanted = asked_methods(options.get("methods", "default"))
    learnt_from, held_out = halves(sets.source, seed)
    shifted = sets.shifted(calibration, held_out, seed, keep_inputs=_look_at_inputs(asked))
    return FittedSource(
        asked,
        wanted,
        options.get("shift", "any"),
        known_shares(options.get("class_shares"), sets),
        options.get("level", 0.9),
        sets.resources(options.get("init"), seed),
        _how_to_calibrate(has_model=sets.classifier is not None, calibration=calibration),
        sets.source,
        sets.source if shifted is None else learnt_from,
        shifted,
    )


def _require_one(target: Any, model: Any) -> None:
    """Refuse several sets where one is meant; a list of mappings is one set of samples if there is a model."""
    parts = list(target.values()) if isinstance(target, Mapping) else target if isinstance(target, list) else []
    several = (Outputs, Path, tuple) if model is not None else (Outputs, Path, tuple, str, Mapping)
    # A network may see a list of images, but no other model rows that are matrices.
    has_rows = isinstance(target, Mapping) or is_network(model)
    if any(
        isinstance(one, several) or is_table(one) or (not has_rows and getattr(one, "ndim", 0) > 1) for one in parts
    ):
        kind = type(target).__name__
        raise InputError(f"`target` must be one set; got a {kind} of {len(parts)}: use estimate_errors.")


def _named(targets: Any, *, has_model: bool) -> dict[str, Any]:
    """Targets by name; those of a list are called after their files, or numbered."""
    if isinstance(targets, Mapping):
        named = {str(name): one for name, one in targets.items()}
        if not has_model and (LOGITS in named or PROBABILITIES in named):
            raise InputError(
                "`targets` must be a mapping by name or a list; got the arrays of one set: use estimate_error."
            )
    elif isinstance(targets, list):
        names = [_name_of(one) or f"target {number}" for number, one in enumerate(targets, start=1)]
        is_clear = len(set(names)) == len(names)
        named = {
            name if is_clear else f"{name} ({number})": one
            for number, (name, one) in enumerate(zip(names, targets, strict=True), start=1)
        }
    else:
        kind = type(targets).__name__
        raise InputError(f"`targets` must be a mapping by name or a list; got {kind}: use estimate_error for one set.")
    if not named:
        raise InputError("`targets` must hold one set or more; got none.")
    return named


def _name_of(target: Any) -> str:
    """The name that a set brings along."""
    if isinstance(target, str | Path):
        return stem(Path(target))
    name = getattr(target, "name", "")
    return name if isinstance(name, str) else ""


def _look_at_inputs(methods: tuple[str, ...] | None) -> bool:
    """Whether a method looks at the inputs of calibration sets."""
    return any(ESTIMATORS[name].needs & {"inputs", "table", "network", "initial"} for name in methods or ())


def _how_to_calibrate(*, has_model: bool, calibration: Any) -> str:
    """How a user could have calibration sets."""
    remedy = "pass labelled shifted sets as `calibration`"
    if not has_model:
        return f"{remedy}, or the model with its inputs"
    return f'{remedy}, or calibration="auto"' if calibration == "none" else remedy
