"""The error of a model on unlabelled data, with an interval and what it is based on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from projnorm.core.errors import InputError
from projnorm.data.tables import stem
from projnorm.estimate.error_estimator import ErrorEstimator, estimate_outputs, read_labels
from projnorm.estimate.options import EstimateOptions, one_thread_for
from projnorm.estimate.result import ErrorEstimate
from projnorm.estimate.source_and_model import SourceAndModel
from projnorm.models.batches import Collate
from projnorm.models.classifiers import is_network
from projnorm.outputs.dataframes import is_table
from projnorm.outputs.outputs import LOGITS, PROBABILITIES, Outputs, require_alike

if TYPE_CHECKING:
    from torch import nn

    from projnorm.models.preparation import Prepare
    from projnorm.models.recipe import Recipe


def estimate_error(
    model: Any,
    source: Any,
    target: Any,
    *,
    labelled: Any = None,
    interval: str = "auto",
    shift: str = EstimateOptions.shift,
    class_shares: Sequence[float] | Mapping[Any, float] | None = EstimateOptions.class_shares,
    methods: str | Sequence[str] = EstimateOptions.methods,
    calibration: str | Mapping[str, Any] = EstimateOptions.calibration,
    level: float = EstimateOptions.level,
    seed: int = EstimateOptions.seed,
    device: str = EstimateOptions.device,
    prepare: Prepare | None = EstimateOptions.prepare,
    init: nn.Module | tuple[nn.Module, Recipe] | None = EstimateOptions.init,
    others: Sequence[Any] = EstimateOptions.others,
    collate: Collate | None = EstimateOptions.collate,
    metrics: bool = False,
) -> ErrorEstimate:
    """Estimate the error of a model on one unlabelled set.

    Without calibration sets the numbers are those of `ErrorEstimator.fit` and then `estimate`. With calibration sets
    they differ a little: this function calibrates on draws that are as large as the target, and `fit`, which has seen
    no target, on draws of a few fixed sizes, the nearest of which is used. ``fit(..., sizes=[len(target)])`` gives the
    same numbers, as long as the target is not larger than the sets.

    >>> import numpy as np
    >>> import projnorm as pn
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(0, 3, 600)
    >>> logits = 2.0 * np.eye(3)[labels] + rng.normal(size=(600, 3))
    >>> source, target = {"logits": logits[:400], "labels": labels[:400]}, {"logits": logits[400:]}
    >>> estimate = pn.estimate_error(None, source, target)
    >>> print(f"{estimate.error:.2f}, from {estimate.low:.2f} to {estimate.high:.2f}")
    0.17, from 0.09 to 0.26

    Args:
        model: A network of torch or `transformers`, a classifier with `predict_proba` or `decision_function`, the path
            of an ONNX file; or None, and then both sets are outputs: `Outputs`; a mapping with `logits` or
            `probabilities` and perhaps `labels`, `predictions`, `features` and `other_logits`; a DataFrame with the
            columns that `projnorm.outputs.output_tables` lists; the path of a file of these; or what `Trainer.predict`
            returns.
        source: Labelled samples of the distribution the model was trained on, but not those it was trained on:
            `projnorm.models.batches.as_batches` lists the forms.
        target: Unlabelled samples; labels, if it has any, give `ErrorEstimate.truth` and nothing else.
        labelled: Labels of some samples of the target: a file that `choose_labels` made and a person filled in, its
            `LabelPlan`, or a table with `sample`, the row of the target, and `label`, of samples drawn uniformly. The
            estimate is then made of them, and its interval holds whatever the shift is.
        interval: Interval from labels: "fixed" for a number of labels decided beforehand, "anytime" for looking after
            every label and stopping when it is narrow enough, "guaranteed" for a coverage of at least the level
            whatever the errors are; "auto" is fixed where all samples that were chosen are labelled, else anytime.
        shift: What is known of the shift: "any", nothing; "classes" or "label", only class shares have changed;
            "inputs" or "covariate", class shares are those of the source.
        class_shares: Share of each class in the targets, where it is known: one number per class in the order of the
            columns (of a table: of the names of the classes), or numbers by class.
        methods: "default", which runs what the estimate is made of; "cheap", which also runs every method that needs
            no training, for comparison; "all"; or names, in upper or lower case, which the estimate is then made of.
        calibration: "auto" makes shifted copies of the source where it is images; "none" makes none; or labelled
            shifted sets by name. What stands before a last dash and number is the family: "fog-1" and "fog-3" are of
            one.
        level: Level of the intervals.
        seed: Seed of everything drawn.
        device: Device that networks of torch run on, or "auto".
        prepare: Function from a batch of inputs to what a network takes, such as
            `projnorm.data.ImageNetInput`; by default images as bytes with colours
            last become numbers from 0 to 1 with colours first.
        init: The same network with the weights that fine-tuning started from, for ProjNorm; or a pair of it and the
            `Recipe` of ProjNorm's trainings.
        others: More models of the same classes, for GDE and ALine.
        collate: Function from a list of samples to a batch, such as `transformers.DataCollatorWithPadding`.
        metrics: Whether to estimate recall and precision of the classes, balanced accuracy and more, too.

    Returns:
        The error with its interval, what it is based on and what it assumes.

    Raises:
        InputError: If something does not fit; the message says what.
        OSError: If a file cannot be read.
    """
    _require_one(target, model)
    name = stem(Path(target)) if model is None and isinstance(target, str | Path) else "target"
    options = EstimateOptions(
        shift=shift,
        class_shares=class_shares,
        methods=methods,
        calibration=calibration,
        level=level,
        seed=seed,
        device=device,
        prepare=prepare,
        init=init,
        others=others,
        collate=collate,
    )
    named = {name: target}
    return estimate_named(model, source, named, options, labelled=labelled, interval=interval, metrics=metrics)[name]


@overload
def estimate_errors(model: Any, source: Any, targets: list[Any], **options: Any) -> list[ErrorEstimate]: ...
@overload
def estimate_errors(
    model: Any, source: Any, targets: Mapping[str, Any], **options: Any
) -> dict[str, ErrorEstimate]: ...
def estimate_errors(  # type: ignore[misc]  # the overloads abbreviate the options
    model: Any,
    source: Any,
    targets: Mapping[str, Any] | list[Any],
    *,
    shift: str = EstimateOptions.shift,
    class_shares: Sequence[float] | Mapping[Any, float] | None = EstimateOptions.class_shares,
    methods: str | Sequence[str] = EstimateOptions.methods,
    calibration: str | Mapping[str, Any] = EstimateOptions.calibration,
    level: float = EstimateOptions.level,
    seed: int = EstimateOptions.seed,
    device: str = EstimateOptions.device,
    prepare: Prepare | None = EstimateOptions.prepare,
    init: nn.Module | tuple[nn.Module, Recipe] | None = EstimateOptions.init,
    others: Sequence[Any] = EstimateOptions.others,
    collate: Collate | None = EstimateOptions.collate,
    metrics: bool = False,
) -> dict[str, ErrorEstimate] | list[ErrorEstimate]:
    """Estimate the error of a model on each of several unlabelled sets.

    >>> import numpy as np
    >>> import projnorm as pn
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(0, 3, 600)
    >>> logits = 2.0 * np.eye(3)[labels] + rng.normal(size=(600, 3))
    >>> source, target = {"logits": logits[:400], "labels": labels[:400]}, {"logits": logits[400:]}
    >>> estimates = pn.estimate_errors(None, source, {"new": target, "same": source})
    >>> {name: round(estimate.error, 2) for name, estimate in estimates.items()}
    {'new': 0.17, 'same': 0.15}

    Args:
        model: The model, as in `estimate_error`; None where every set is outputs.
        source: Labelled samples of the distribution the model was trained on, but not those it was trained on.
        targets: Unlabelled samples by name, or a list of them, in the same forms.
        shift: As in `estimate_error`, like all that follow.
        class_shares: Known class shares of the targets.
        methods: Methods to run besides the default.
        calibration: Labelled shifted sets, or whether to make some.
        level: Level of the intervals.
        seed: Seed of everything that is drawn.
        device: Device of networks of torch.
        prepare: Function from a batch of inputs to what a network takes.
        init: The network with its initial weights.
        others: More models of the same classes.
        collate: Function from a list of samples to a batch.
        metrics: Whether to estimate recall and precision of the classes, balanced accuracy and more, too.

    Returns:
        An estimate for each target: by name for a mapping, else a list.

    Raises:
        InputError: If something does not fit; the message says what.
        OSError: If a file cannot be read.
    """
    named = _named(targets, has_model=model is not None)
    options = EstimateOptions(
        shift=shift,
        class_shares=class_shares,
        methods=methods,
        calibration=calibration,
        level=level,
        seed=seed,
        device=device,
        prepare=prepare,
        init=init,
        others=others,
        collate=collate,
    )
    estimates = estimate_named(model, source, named, options, metrics=metrics)
    return estimates if isinstance(targets, Mapping) else list(estimates.values())


def estimate_named(
    model: Any,
    source: Any,
    targets: Mapping[str, Any],
    options: EstimateOptions,
    *,
    labelled: Any = None,
    interval: str = "auto",
    metrics: bool = False,
) -> dict[str, ErrorEstimate]:
    """As `estimate_errors`, with the options in one object; labels, if there are any, are of the only target."""
    labels = read_labels(labelled)  # which are refused before the model is run
    with one_thread_for(model, options):
        # Sets that cannot be read are refused before the model is run on shifted copies of the source.
        samples = SourceAndModel(model, source, options)
        outputs = [replace(samples.outputs(target, name), name=name) for name, target in targets.items()]
        for target in outputs:
            require_alike(samples.source, target)
        fitted = ErrorEstimator.from_samples(samples).fitted
        estimates = [estimate_outputs(fitted, target, labels, interval, metrics=metrics) for target in outputs]
    return dict(zip(targets, estimates, strict=True))


def _require_one(target: Any, model: Any) -> None:
    """Refuse several sets where one is meant; a list of mappings is one set of samples if there is a model."""
    parts = list(target.values()) if isinstance(target, Mapping) else target if isinstance(target, list) else []
    several = (Outputs, Path, tuple) if model is not None else (Outputs, Path, tuple, str, Mapping)
    # A network may see a list of images, but no other model rows that are matrices.
    has_rows = isinstance(target, Mapping) or is_network(model)
    if any(
        isinstance(part, several) or is_table(part) or (not has_rows and getattr(part, "ndim", 0) > 1) for part in parts
    ):
        kind = type(target).__name__
        raise InputError(f"`target` must be one set; got a {kind} of {len(parts)}: use estimate_errors.")


def _named(targets: Any, *, has_model: bool) -> dict[str, Any]:
    """Targets by name; those of a list are called after their files, or numbered."""
    if isinstance(targets, Mapping):
        named = {str(name): target for name, target in targets.items()}
        if not has_model and (LOGITS in named or PROBABILITIES in named):
            raise InputError(
                "`targets` must be a mapping by name or a list; got the arrays of one set: use estimate_error."
            )
    elif isinstance(targets, list):
        names = [_name_of(target) or f"target {number}" for number, target in enumerate(targets, start=1)]
        is_clear = len(set(names)) == len(names)
        named = {
            name if is_clear else f"{name} ({number})": target
            for number, (name, target) in enumerate(zip(names, targets, strict=True), start=1)
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
