"""The error of a model on unlabelled data, with an interval and what it is based on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np
from threadpoolctl import threadpool_limits

from deep.calibration import Floats
from deep.estimate.batches import Collate, as_array, as_batches, is_tensor
from deep.estimate.calibration_sets import CalibrationSets, given_sets, shifted_sets
from deep.estimate.classifiers import Classifier, as_classifier, is_network, outputs_of
from deep.estimate.error_estimator import OutputsEstimator, halves, offered_methods
from deep.estimate.metrics import MetricEstimate
from deep.estimate.result import ErrorEstimate
from deep.estimators import ESTIMATORS, Resources
from deep.estimators.base import has_torch
from deep.labels.counts import ErrorInterval
from deep.labels.labelled import AUTO, Labelled, LabelledError, labelled_error, metrics_from_labels
from deep.output_tables import arrays_of_table
from deep.outputs import LABELS, LOGITS, PROBABILITIES, Outputs, read_outputs, require_alike
from deep.tables import as_text, is_table
from projnorm.errors import InputError
from projnorm.tables import stem

if TYPE_CHECKING:
    from torch import nn

    from deep.recipe import Recipe
    from deep.training import Prepare

SHIFTS = ("any", "classes", "inputs")
# Known class shares add up to one within this.
_SUM_TOLERANCE = 1e-3
_REFUTED = (
    "The labels refute the estimate without labels: the shift is of a kind that outputs do not show. Do not trust "
    "label-free estimates under it."
)
_GAPS = (
    "The labelled samples are not the first that were chosen; the interval holds only if which were left out has "
    "nothing to do with their labels."
)


class EstimateOptions(TypedDict, total=False):
    """Options of `estimate_error` and `estimate_errors`, which describes them."""

    shift: str
    class_shares: Sequence[float] | Mapping[Any, float] | None
    methods: str | Sequence[str]
    calibration: str | Mapping[str, Any]
    level: float
    seed: int
    device: str
    prepare: Prepare | None
    init: nn.Module | tuple[nn.Module, Recipe] | None
    others: Sequence[Any]
    collate: Collate | None
    metrics: bool


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
    known = Labelled.of(labelled)
    check_options(options)
    with one_thread_for(model, options):
        sets = ModelSamples.of_options(model, source, options)
        outputs = sets.of(target, name, needs_labels=False)
        require_alike(sets.source, outputs)
        estimator = estimator_of(sets, options)
        return with_labels(estimator, outputs, known, interval, metrics=options.get("metrics", False))


def with_labels(
    estimator: OutputsEstimator, outputs: Outputs, known: Labelled, interval: str, *, metrics: bool
) -> ErrorEstimate:
    """The estimate for a target of which some labels are known, if asked for with metrics besides the error."""
    free = estimator.estimate(outputs)
    rows = estimator.class_probabilities(outputs, free.error)
    said = ErrorInterval(free.error, free.low, free.high)
    found = labelled_error(known, outputs, rows, said, interval=interval, level=estimator.level)
    doubts = {_REFUTED: found.refutes_label_free, _GAPS: not known.is_beginning}
    return replace(
        free,
        error=found.error,
        low=found.low,
        high=found.high,
        based_on=("labels",),
        warnings=(
            *estimator.general_warnings(outputs),
            *(warning for warning, holds in doubts.items() if holds),
        ),
        labelled=found,
        metrics=_labelled_metrics(estimator, outputs, known, found) if metrics else (),
    )


def _labelled_metrics(
    estimator: OutputsEstimator, outputs: Outputs, known: Labelled, found: LabelledError
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
            columns that `deep.output_tables` lists; the path of a file of these; or what `Trainer.predict` returns.
        source: Labelled samples of the distribution the model was trained on, but not those it was trained on:
            `deep.estimate.batches.as_batches` lists the forms.
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
        prepare: Function from a batch of inputs to what a network takes, such as `projnorm.vision.ImageNetInput`; by
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
        sets = ModelSamples.of_options(model, source, options)
        outputs = [sets.of(data, name, needs_labels=False) for name, data in named.items()]
        for one in outputs:
            require_alike(sets.source, one)
        estimator = estimator_of(sets, options)
        return [estimator.estimate(one, metrics=metrics) for one in outputs]


def estimator_of(sets: ModelSamples, options: EstimateOptions) -> OutputsEstimator:
    """What is learnt from the source; the options are those of `estimate_errors`, checked before."""
    calibration, seed = options.get("calibration", "auto"), options.get("seed", 0)
    asked, wanted = _methods(options.get("methods", "default"))
    learnt_from, held_out = halves(sets.source, seed)
    shifted = sets.shifted(calibration, held_out, seed, keep_inputs=_look_at_inputs(asked))
    return OutputsEstimator(
        asked,
        wanted,
        options.get("shift", "any"),
        _known_shares(options.get("class_shares"), sets),
        options.get("level", 0.9),
        sets.resources(options.get("init"), seed),
        _remedy(has_model=sets.classifier is not None, calibration=calibration),
        sets.source,
        sets.source if shifted is None else learnt_from,
        shifted,
    )


def check_options(options: EstimateOptions) -> None:
    """Refuse options that are wrong by themselves."""
    level, seed, shift = options.get("level", 0.9), options.get("seed", 0), options.get("shift", "any")
    calibration = options.get("calibration", "auto")
    if not 0.0 < level < 1.0:
        raise InputError(f"`level` must be above 0 and below 1; got {level}.")
    if seed < 0:
        raise InputError(f"`seed` must be at least 0; got {seed}.")
    if shift not in SHIFTS:
        raise InputError(f"`shift` must be one of {', '.join(SHIFTS)}; got {shift!r}.")
    if not isinstance(calibration, Mapping) and str(calibration) not in ("auto", "none"):
        shown = repr(calibration) if isinstance(calibration, str) else type(calibration).__name__
        raise InputError(f"`calibration` must be auto, none, or labelled sets by name; got {shown}.")
    _, wanted = _methods(options.get("methods", "default"))
    if wanted is not None and (shift != "any" or options.get("class_shares") is not None):
        raise InputError("`shift` and `class_shares` are for the default; leave them out, or `methods`.")


def one_thread_for(model: Any, options: EstimateOptions) -> AbstractContextManager[Any]:
    """One thread on the CPU, so that numbers do not depend on the machine; of torch too, where it is used."""
    methods, _ = _methods(options.get("methods", "default"))
    uses_torch = is_network(model) or any("torch" in ESTIMATORS[name].needs for name in methods or ())
    if not uses_torch or not has_torch():
        return threadpool_limits(1)
    from deep.training import one_thread

    return one_thread(device_of(model, options.get("device", "auto")))


class ModelSamples:
    """The source, and how other samples are turned into what the model says of them."""

    def __init__(
        self,
        model: Any,
        source: Any,
        others: Sequence[Any],
        prepare: Prepare | None,
        device: str,
        collate: Collate | None,
    ) -> None:
        """Read the source and run the model on it."""
        self.classifier: Classifier | None = None
        self.others: tuple[Classifier, ...] = ()
        self.collate = collate
        if model is not None:
            samples = as_batches(source, "source", collate=collate)
            self.classifier, *rest = (
                as_classifier(one, samples, prepare=prepare, device=device) for one in (model, *others)
            )
            self.others = tuple(rest)
            self.source = outputs_of(self.classifier, samples, "source", others=self.others)
        else:
            if others:
                raise InputError("`others` needs `model`; outputs of other models go with the outputs.")
            self.source = as_outputs(source, "source")
        if self.source.labels is None:
            remedy = "" if model is None else "; pass a pair of inputs and labels"
            raise InputError(f"{self.source.name}: the source must have `{LABELS}`{remedy}.")

    @classmethod
    def of_options(cls, model: Any, source: Any, options: EstimateOptions) -> ModelSamples:
        """The source with a model, run as the options of `estimate_errors` say."""
        device = device_of(model, options.get("device", "auto"))
        others, prepare = options.get("others", ()), options.get("prepare")
        return cls(model, source, others, prepare, device, options.get("collate"))

    def of(self, data: Any, name: str, *, needs_labels: bool = True) -> Outputs:
        """Outputs on another set."""
        if self.classifier is None:
            return replace(as_outputs(data, name, needs_labels=needs_labels), name=name)
        samples = as_batches(data, name, collate=self.collate)
        return outputs_of(self.classifier, samples, name, others=self.others, needs_labels=needs_labels)

    def shifted(
        self, calibration: str | Mapping[str, Any], held_out: Outputs, seed: int, *, keep_inputs: bool
    ) -> CalibrationSets | None:
        """Labelled shifted sets, given or made of what no method learns from; None where there can be none."""
        if isinstance(calibration, Mapping):
            return given_sets({name: self.of(data, name) for name, data in calibration.items()}, held_out)
        if calibration == "none" or self.classifier is None:
            return None
        return shifted_sets(self.classifier, self.others, held_out, seed=seed, keep_inputs=keep_inputs)

    def resources(self, init: Any, seed: int) -> Resources:
        """What a network of torch gives besides its outputs."""
        initial, recipe = init if isinstance(init, tuple) else (init, None)
        network: Any = getattr(self.classifier, "model", None)
        if not is_network(network):
            if initial is not None:
                raise InputError("`init` needs `model` to be a network of torch.")
            return Resources(seed=seed)
        own: Any = self.classifier
        if initial is not None:
            initial = own.alike(initial)
        return Resources(
            seed=seed,
            network=network,
            last=own.last,
            initial=initial,
            prepare=own.prepare,
            device=own.device,
            recipe=recipe,
        )


def as_outputs(data: Any, name: str, *, needs_labels: bool = True) -> Outputs:
    """Outputs of a model that is not there, in one of the forms that `estimate_errors` takes."""
    if isinstance(data, Outputs):
        return data if data.name else replace(data, name=name)
    if isinstance(data, str | Path):
        return read_outputs(Path(data), needs_labels=needs_labels)
    if is_table(data):
        data = arrays_of_table(data, name)
    elif hasattr(data, "predictions") and hasattr(data, "label_ids"):  # of `Trainer.predict` of transformers
        logits = data.predictions[0] if isinstance(data.predictions, tuple) else data.predictions
        data = {LOGITS: logits} if data.label_ids is None else {LOGITS: logits, LABELS: data.label_ids}
    if isinstance(data, Mapping):
        arrays = {key: as_array(value) if is_tensor(value) else value for key, value in data.items()}
        return Outputs.from_arrays(arrays, name, needs_labels=needs_labels)
    hint = f'; pass {{"{LOGITS}": array}} or {{"{PROBABILITIES}": array}}' if hasattr(data, "shape") else ""
    raise InputError(
        f"{name}: without a model this must be outputs, the path of a file of them, or a mapping with logits; got "
        f"{type(data).__name__}{hint}."
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


def _known_shares(shares: Sequence[float] | Mapping[Any, float] | None, sets: ModelSamples) -> Floats | None:
    """Known class shares of the targets, one for each column."""
    if shares is None:
        return None
    count = sets.source.classes
    if isinstance(shares, Mapping):
        columns = sets.source.class_names or tuple(map(str, range(count)))
        by_name = {as_text(name): share for name, share in shares.items()}
        if unknown := sorted(set(by_name) - set(columns)):
            raise InputError(f"`class_shares` has the class {unknown[0]!r}, which the model does not have.")
        shares = [by_name.get(name, 0.0) for name in columns]
    try:
        found = np.asarray(shares, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"`class_shares` must be numbers; got {shares!r}.") from None
    if found.shape != (count,) or not np.isfinite(found).all() or found.min() < 0.0:
        raise InputError(f"`class_shares` must be {count} numbers from 0 to 1, one for each class; got {shares!r}.")
    if abs(found.sum() - 1.0) > _SUM_TOLERANCE:
        raise InputError(f"`class_shares` must add up to 1; got {found.sum():g}.")
    return found / found.sum()


def _look_at_inputs(methods: tuple[str, ...] | None) -> bool:
    """Whether a method looks at the inputs of calibration sets."""
    return any(ESTIMATORS[name].needs & {"inputs", "table", "network", "initial"} for name in methods or ())


def _methods(methods: str | Sequence[str]) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Methods to run if they are not those of the default, and those the estimate is to be made of if named."""
    offered = offered_methods()
    if isinstance(methods, str) and methods.lower() == "default":
        return None, None
    if isinstance(methods, str) and methods.lower() in ("cheap", "all"):
        return tuple(name for name in offered if methods.lower() == "all" or not ESTIMATORS[name].costly), None
    known = {name.lower(): name for name in offered}
    asked = (methods,) if isinstance(methods, str) else tuple(methods)
    for name in asked:
        if name.lower() not in known:
            raise InputError(f"`methods` must be default, cheap, all, or of {', '.join(offered)}; got {name!r}.")
    names = tuple(known[name.lower()] for name in asked)
    if not names or len(set(names)) < len(names):
        raise InputError("`methods` must name at least one method, each once.")
    return names, names


def _remedy(*, has_model: bool, calibration: Any) -> str:
    """How a user could have calibration sets."""
    remedy = "pass labelled shifted sets as `calibration`"
    if not has_model:
        return f"{remedy}, or the model with its inputs"
    return f'{remedy}, or calibration="auto"' if calibration == "none" else remedy


def device_of(model: Any, device: str) -> str:
    """The device of a network of torch; the CPU for any other model."""
    if not is_network(model):
        if device not in ("auto", "cpu"):
            raise InputError(f"`device` {device!r} needs `model` to be a network of torch.")
        return "cpu"
    from projnorm.device import choose_device

    return str(choose_device(device))
