"""The labelled source, and how other samples become what the model says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from projnorm.core.errors import InputError
from projnorm.core.statistics import Floats
from projnorm.estimate.options import EstimateOptions, device_of
from projnorm.estimators.base import Resources
from projnorm.estimators.registry import ESTIMATORS
from projnorm.models.batches import Batches, as_array, as_batches, is_tensor
from projnorm.models.classifiers import (
    ArrayClassifier,
    Classifier,
    as_classifier,
    is_network,
    outputs_of,
    require_model,
)
from projnorm.outputs.dataframes import as_text, is_table
from projnorm.outputs.output_tables import arrays_of_table
from projnorm.outputs.outputs import LABELS, LOGITS, PROBABILITIES, Outputs, read_outputs

if TYPE_CHECKING:
    from projnorm.estimate.calibration_sets import CalibrationSets

# Methods that need these see the inputs of calibration sets.
_LOOK_AT_INPUTS = frozenset({"inputs", "table", "network", "initial"})
# Known class shares add up to one within this.
_SUM_TOLERANCE = 1e-3


class SourceAndModel:
    """The labelled source, and how other samples are turned into what the model says of them.

    Attributes:
        source: Labelled outputs.
        model: The model; None where every set is outputs.
        classifier: The model as it was adapted to the form of the source; None where there is none, or no samples yet.
        others: More models of the same classes.
        options: Options of the estimate.
    """

    def __init__(self, model: Any, source: Any, options: EstimateOptions) -> None:
        """Read the source and run the model on it."""
        self.model, self.options = model, options
        self.classifier: Classifier | None = None
        self.others: tuple[Classifier, ...] = ()
        device = device_of(model, options.device)
        if model is not None:
            require_model(model)
            samples = as_batches(source, "source", collate=options.collate)
            self.classifier, *others = (
                as_classifier(any_model, samples, prepare=options.prepare, device=device)
                for any_model in (model, *options.others)
            )
            self.others = tuple(others)
            self.source = outputs_of(self.classifier, samples, "source", others=self.others)
        else:
            if options.others:
                raise InputError("`others` needs `model`; outputs of other models go with the outputs.")
            self.source = as_outputs(source, "source")
        if self.source.labels is None:
            remedy = "" if model is None else "; pass a pair of inputs and labels"
            raise InputError(f"{self.source.name}: the source must have `{LABELS}`{remedy}.")

    @classmethod
    def from_outputs(cls, model: Any, source: Outputs, options: EstimateOptions) -> SourceAndModel:
        """A source whose outputs are kept, with the model for samples to come."""
        samples = cls(None, source, options)
        samples.model = model
        return samples

    def outputs(self, data: Any, name: str, *, needs_labels: bool = False) -> Outputs:
        """What the model says of another set; outputs as they are."""
        if isinstance(data, Outputs):
            return data if data.name else replace(data, name=name)
        if self.model is None:
            return replace(as_outputs(data, name, needs_labels=needs_labels), name=name)
        samples = as_batches(data, name, collate=self.options.collate)
        classifier = self.classifier or self._adapted(samples)
        return outputs_of(classifier, samples, name, others=self.others, needs_labels=needs_labels)

    def _adapted(self, samples: Batches) -> Classifier:
        """The model for samples of this form, with the decision rule that it was found to have on the source."""
        device = device_of(self.model, self.options.device)
        classifier = as_classifier(self.model, samples, prepare=self.options.prepare, device=device)
        if isinstance(classifier, ArrayClassifier):
            return replace(classifier, decides=self.source.predictions is not None)
        return classifier

    def calibration_sets(self, held_out: Outputs) -> CalibrationSets | None:
        """Labelled shifted sets, given or made of what no method learns from; None where there can be none."""
        calibration = self.options.calibration
        if isinstance(calibration, str) and (calibration == "none" or self.classifier is None):
            return None
        from projnorm.estimate.calibration_sets import given_sets, shifted_sets

        if isinstance(calibration, Mapping):
            sets = {name: self.outputs(data, name, needs_labels=True) for name, data in calibration.items()}
            return given_sets({name: replace(outputs, name=name) for name, outputs in sets.items()}, held_out)
        assert self.classifier is not None
        keep_inputs = any(ESTIMATORS[name].needs & _LOOK_AT_INPUTS for name in self.options.methods_to_run)
        return shifted_sets(self.classifier, self.others, held_out, seed=self.options.seed, keep_inputs=keep_inputs)

    def resources(self) -> Resources:
        """What a network of torch gives besides its outputs."""
        init, seed = self.options.init, self.options.seed
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


def known_shares(shares: Sequence[float] | Mapping[Any, float] | None, source: Outputs) -> Floats | None:
    """Known class shares of the targets, one for each column of the outputs."""
    if shares is None:
        return None
    count = source.classes
    if isinstance(shares, Mapping):
        columns = source.class_names or tuple(map(str, range(count)))
        by_name = {as_text(name): share for name, share in shares.items()}
        if unknown := sorted(set(by_name) - set(columns)):
            raise InputError(f"`class_shares` has the class {unknown[0]!r}, which the model does not have.")
        shares = [by_name.get(name, 0.0) for name in columns]
    try:
        numbers = np.asarray(shares, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"`class_shares` must be numbers; got {shares!r}.") from None
    if numbers.shape != (count,) or not np.isfinite(numbers).all() or numbers.min() < 0.0:
        raise InputError(f"`class_shares` must be {count} numbers from 0 to 1, one for each class; got {shares!r}.")
    if abs(numbers.sum() - 1.0) > _SUM_TOLERANCE:
        raise InputError(f"`class_shares` must add up to 1; got {numbers.sum():g}.")
    return numbers / numbers.sum()


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
