"""Labelled shifted sets to calibrate on: copies of the source made here, or sets that were given."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from deep.estimators.evidence import Estimator
from deep.estimators.softmax import probabilities
from deep.outputs import Outputs
from deep.predict.data import given
from deep.predict.methods import NEED_INPUTS
from deep.predict.models import Classifier, TorchClassifier, assessed
from deep.predict.sets import OutputSet, require_alike
from deep.predict.shifts import SEVERITIES, corrupted, drawn_anew, is_images, moved
from deep.samples import few_indices
from projnorm.progress import tracked
from projnorm.vision import FAMILIES

Floats = NDArray[np.float64]
SOURCE = "source"
# Copies are made of so many samples of the source at the most.
MOST_SAMPLES = 1_000
_NUMBERED = re.compile(r"(.+)-\d+$")


@dataclass(frozen=True, slots=True, eq=False)
class MetaSet:
    """Labelled sets under shifts.

    Attributes:
        sets: What the model says of each, with labels.
        families: Of each.
        origin: Where they come from.
    """

    sets: tuple[OutputSet, ...]
    families: NDArray[np.str_]
    origin: str

    @property
    def names(self) -> tuple[str, ...]:
        """Of the sets."""
        return tuple(one.name for one in self.sets)

    @property
    def errors(self) -> Floats:
        """True error on the whole of each set."""
        return np.array([one.error for one in self.sets])

    @property
    def size(self) -> int:
        """Samples of a set of middling size."""
        return int(np.median([len(one) for one in self.sets]))

    def scores(self, estimators: Mapping[str, Estimator], *, m: int, seed: int) -> dict[str, Floats]:
        """Scores of each method on `m` drawn samples of every set, so that they are as noisy as those of a target.

        Nan for methods that train on inputs, where the set is one of features that were moved.
        """
        rows = []
        for place, one in enumerate(tracked(self.sets, description="scores", total=len(self.sets))):
            evidence = one.take(few_indices(len(one), m, seed + place)).evidence()
            blind = one.inputs is None
            rows.append(
                [
                    math.nan if blind and method in NEED_INPUTS else estimator.score(evidence)
                    for method, estimator in estimators.items()
                ]
            )
        return dict(zip(estimators, np.array(rows).T, strict=True))


def given_meta_set(sets: Mapping[str, OutputSet], source: OutputSet) -> MetaSet:
    """Sets that were given, and the source; "fog-1" and "fog-3" are of one family, "fog".

    Raises:
        ValueError: If there are fewer than two, one has no labels, or is not of the same model.
    """
    if len(sets) < 2:
        raise ValueError(f"`calibration` must hold two labelled sets or more; got {len(sets)}.")
    for one in sets.values():
        require_alike(source, one)
        if one.labels is None:
            raise ValueError(f"{one.name}: a calibration set must have labels.")
    families = [family_of(name) for name in sets]
    return MetaSet((*sets.values(), source), np.array([*families, SOURCE]), "given")


def family_of(name: str) -> str:
    """What stands before a last dash and number, or the name."""
    found = _NUMBERED.match(name)
    return found.group(1) if found else name


def own_meta_set(
    classifier: Classifier,
    others: tuple[Classifier, ...],
    source: OutputSet,
    *,
    seed: int,
) -> MetaSet | None:
    """Shifted copies of the source, as far as the model can be asked about them; None where it cannot.

    Images are corrupted. Else the features of a network are moved and sent through its last layer; of other models the
    inputs, if each is a row of numbers. Rows are also drawn in other shares.
    """
    few = source.take(few_indices(len(source), MOST_SAMPLES, seed))
    x = few.inputs
    labels = few.known_labels
    if x is not None and is_images(x):
        sets, families = [few], [SOURCE]
        total = len(FAMILIES) * len(SEVERITIES)
        for shift in tracked(corrupted(x, seed=seed), description="calibration", total=total):
            sets.append(assessed(classifier, given((shift.rows, labels), shift.name), shift.name, others=others))
            families.append(shift.family)
        return MetaSet(tuple(sets), np.array(families), "corruptions of the source images")
    if isinstance(classifier, TorchClassifier):
        if classifier.last is None:
            return None
        layer = classifier.model.get_submodule(classifier.last)
        assert isinstance(layer, nn.Linear)
        shifts = [(shift, _through(layer, shift.rows)) for shift in moved(few.outputs.features, seed=seed)]
        origin = "features of the source, moved and drawn anew"
    elif x is not None and x.ndim == 2 and x.dtype.kind in "fiu":
        shifts = [(shift, classifier.outputs(given(shift.rows, shift.name))) for shift in moved(x, seed=seed)]
        origin = "inputs of the source, moved and drawn anew"
    else:
        return None
    confidence = probabilities(few.outputs.logits).max(axis=1)
    shifts += [(shift, few.outputs.take(shift.indices)) for shift in drawn_anew(labels, confidence, seed=seed)]
    sets = [few, *(OutputSet(shift.name, _own(outputs), labels[shift.indices]) for shift, outputs in shifts)]
    return MetaSet(tuple(sets), np.array([SOURCE, *(shift.family for shift, _ in shifts)]), origin)


def _through(layer: nn.Linear, rows: NDArray[np.generic]) -> Outputs:
    """Features sent through the last layer."""
    with torch.no_grad():
        x = torch.from_numpy(rows).to(layer.weight)
        return Outputs(layer(x).float().cpu().numpy(), x.float().cpu().numpy())


def _own(outputs: Outputs) -> Outputs:
    """Without what other models say, which is not known of features that were moved."""
    return Outputs(outputs.logits, outputs.features)
