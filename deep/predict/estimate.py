"""The error of a model on unlabelled data, with an interval and what it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from deep.predict.answer import ErrorEstimate
from deep.predict.data import Given, given
from deep.predict.meta_set import MetaSet, given_meta_set, own_meta_set
from deep.predict.methods import ALL_METHODS, COSTLY, Network
from deep.predict.models import Classifier, TorchClassifier, as_classifier, assessed
from deep.predict.question import Question
from deep.predict.sets import LABELS, OutputSet, outputs_from, read_outputs, require_alike
from deep.training import Hardware, Prepare, Recipe, one_thread
from projnorm.device import choose_device

_FEWEST_TO_HALVE = 20
_NOT_SHIFTED = (
    "The source could not be shifted to calibrate on: that takes images, a network with a linear last layer, or rows "
    "of numbers."
)


def estimate_error(
    model: Any,
    source: Any,
    target: Any,
    *,
    methods: str | Sequence[str] = "default",
    calibration: Any = "auto",
    init: nn.Module | None = None,
    others: Sequence[Any] = (),
    prepare: Prepare | None = None,
    recipe: Recipe | None = None,
    level: float = 0.9,
    seed: int = 0,
    device: str = "auto",
) -> ErrorEstimate:
    """Estimate the error of a model on one unlabelled set; `estimate_errors` has the arguments."""
    (found,) = estimate_errors(
        model,
        source,
        {"target": target},
        methods=methods,
        calibration=calibration,
        init=init,
        others=others,
        prepare=prepare,
        recipe=recipe,
        level=level,
        seed=seed,
        device=device,
    )
    return found


def estimate_errors(
    model: Any,
    source: Any,
    targets: Mapping[str, Any],
    *,
    methods: str | Sequence[str] = "default",
    calibration: Any = "auto",
    init: nn.Module | None = None,
    others: Sequence[Any] = (),
    prepare: Prepare | None = None,
    recipe: Recipe | None = None,
    level: float = 0.9,
    seed: int = 0,
    device: str = "auto",
) -> list[ErrorEstimate]:
    """Estimate the error of a model on each of several unlabelled sets.

    Args:
        model: A network of torch or `transformers`, a classifier with `predict_proba`, the path of an ONNX file; or
            None, and then every set is outputs: an `OutputSet`, the path of an ``.npz`` or ``.npy`` file, or a mapping
            with `logits` and perhaps `features`, `labels` and `other_logits`.
        source: Labelled samples of the distribution the model was trained on, not those it was trained on: see
            `deep.predict.data.given` for the forms.
        targets: Unlabelled samples by name, in the same forms.
        methods: "default"; "all"; or names.
        calibration: "auto" makes shifted copies of the source where the model can be asked about them: corruptions of
            images, else moved features or inputs; "none" makes none; or labelled shifted sets by name. What stands
            before a last dash and number is the family: "fog-1" and "fog-3" are of one.
        init: The same network with the weights that fine-tuning started from, for ProjNorm.
        others: More models of the same classes, for GDE and ALine.
        prepare: From a batch of inputs to what a network takes, such as `projnorm.vision.ImageNetInput`.
        recipe: Of ProjNorm.
        level: Of the intervals.
        seed: Of everything drawn.
        device: "auto", or a device that torch knows.

    Raises:
        ValueError: If something does not fit; the message says what.
        OSError: If a file cannot be read.
    """
    if not 0.0 < level < 1.0:
        raise ValueError(f"`level` must be above 0 and below 1; got {level}.")
    asked, wanted = _asked(methods)
    hardware = Hardware(str(choose_device(device)))
    with one_thread(hardware) if model is not None else one_thread(Hardware()):
        sets = _Sets(model, source, others, prepare, hardware)
        network = sets.network(init, recipe)
        held = [sets.of(data, name, labelled=False) for name, data in targets.items()]
        for one in held:
            require_alike(sets.source, one)
        learnt, held_out = _halves(sets.source, seed)
        meta = _meta_set(sets, held_out, calibration, seed)
        if meta is None:
            learnt = sets.source
        question = Question(sets.source, learnt, meta, network, asked, wanted, level, seed)
        found = [question.answered(one) for one in held]
    if meta is None and sets.classifier is not None and calibration == "auto":
        found = [replace(one, warnings=(*one.warnings, _NOT_SHIFTED)) for one in found]
    return found


class _Sets:
    """The source, and how other samples are turned into what the model says of them."""

    def __init__(
        self, model: Any, source: Any, others: Sequence[Any], prepare: Prepare | None, hardware: Hardware
    ) -> None:
        self.classifier: Classifier | None = None
        self.others: tuple[Classifier, ...] = ()
        if model is not None:
            samples = given(source, "source")
            self.classifier, *rest = (
                as_classifier(one, samples, prepare=prepare, hardware=hardware) for one in (model, *others)
            )
            self.others = tuple(rest)
            self.source = self._assessed(samples, "source")
        else:
            if others:
                raise ValueError("`others` needs `model`; outputs of other models go with the outputs.")
            self.source = _outputs(source, "source")
        if self.source.labels is None:
            raise ValueError(f"{self.source.name}: the source must have `{LABELS}`.")

    def of(self, data: Any, name: str, *, labelled: bool = True) -> OutputSet:
        """Samples of another set; labels of a target are not looked at."""
        if self.classifier is None:
            return replace(_outputs(data, name, labelled=labelled), name=name)
        samples = given(data, name)
        return self._assessed(samples if labelled else replace(samples, labels=None), name)

    def network(self, init: nn.Module | None, recipe: Recipe | None) -> Network | None:
        """What a network of torch gives besides."""
        if isinstance(self.classifier, TorchClassifier):
            if init is not None:
                _require_same_network(self.classifier.model, init)
            return Network(self.classifier, init, recipe)
        if init is not None:
            raise ValueError("`init` needs `model` to be a network of torch.")
        return None

    def _assessed(self, samples: Given, name: str) -> OutputSet:
        assert self.classifier is not None
        return assessed(self.classifier, samples, name, others=self.others)


def _require_same_network(model: nn.Module, init: nn.Module) -> None:
    own, first = ({name: tuple(p.shape) for name, p in one.named_parameters()} for one in (model, init))
    if own != first:
        differs = sorted(name for name in own.keys() | first.keys() if own.get(name) != first.get(name))
        raise ValueError(f"`init` must be the same network as `model` with other weights; {differs[0]} differs.")


def _outputs(data: Any, name: str, *, labelled: bool = True) -> OutputSet:
    if isinstance(data, OutputSet):
        return data if labelled else replace(data, labels=None)
    if isinstance(data, str | Path):
        return read_outputs(Path(data), labelled=labelled)
    if isinstance(data, Mapping):
        return outputs_from(data, name, labelled=labelled)
    raise ValueError(
        f"{name}: without a model this must be outputs, the path of a file of them, or a mapping with logits; got "
        f"{type(data).__name__}."
    )


def _asked(methods: str | Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """Methods to run, and those the estimate is to be made of if they were named."""
    if isinstance(methods, str) and methods in ("default", "all"):
        return tuple(m for m in ALL_METHODS if methods == "all" or m not in COSTLY), None
    names = (methods,) if isinstance(methods, str) else tuple(methods)
    for name in names:
        if name not in ALL_METHODS:
            raise ValueError(f"`methods` must be default, all, or of {', '.join(ALL_METHODS)}; got {name!r}.")
    if not names or len(set(names)) < len(names):
        raise ValueError("`methods` must name at least one method, each once.")
    return names, names


def _halves(source: OutputSet, seed: int) -> tuple[OutputSet, OutputSet]:
    """What methods learn from and what is shifted to calibrate them: a score is better on what it was learnt from."""
    order = np.random.default_rng(seed).permutation(len(source))
    if len(order) < _FEWEST_TO_HALVE:
        return source, source
    first, second = (np.sort(part) for part in np.array_split(order, 2))
    return source.take(first), source.take(second)


def _meta_set(sets: _Sets, held_out: OutputSet, calibration: Any, seed: int) -> MetaSet | None:
    """`held_out` is the half of the source that no method learns from."""
    if not isinstance(calibration, Mapping):
        if calibration not in ("auto", "none"):
            raise ValueError(f"`calibration` must be auto, none, or labelled sets by name; got {calibration!r}.")
        if calibration == "none" or sets.classifier is None:
            return None
        return own_meta_set(sets.classifier, sets.others, held_out, seed=seed)
    return given_meta_set({name: sets.of(data, name) for name, data in calibration.items()}, held_out)
