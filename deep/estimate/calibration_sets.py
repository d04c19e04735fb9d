"""Labelled shifted sets to calibrate on: copies of the source made here, or sets of the user.

A set of shifted copies of labelled samples on which errors are regressed is the meta-set of Deng and Zheng, "Are Labels
Always Necessary for Classifier Accuracy Evaluation?" (CVPR 2021).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deep.calibration import Floats
from deep.estimate.batches import as_batches
from deep.estimate.classifiers import Classifier, outputs_of
from deep.estimate.shifts import SEVERITIES, corrupted, corruption_families, drawn_anew, is_images, moved
from deep.estimators import Estimator
from deep.estimators.softmax import probabilities
from deep.outputs import Outputs, require_alike
from deep.samples import few_indices
from projnorm.errors import InputError
from projnorm.progress import tracked

SOURCE = "source"
# Copies are made of so many samples of the source at the most.
MOST_SAMPLES = 1_000
_NUMBERED = re.compile(r"(.+)-\d+$")


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationSets:
    """Outputs of the model on labelled sets under shifts, the family of each, and where they come from, in words."""

    sets: tuple[Outputs, ...]
    families: NDArray[np.str_]
    origin: str

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each set."""
        return tuple(one.name for one in self.sets)

    @property
    def errors(self) -> Floats:
        """True error on the whole of each set."""
        return np.array([one.error for one in self.sets])

    @property
    def size(self) -> int:
        """Median number of samples in a set."""
        return int(np.median([len(one) for one in self.sets]))

    def scores(self, estimators: Mapping[str, Estimator], *, m: int, seed: int) -> dict[str, Floats]:
        """Scores of each method on `m` drawn samples of every set, so that they are as noisy as those of a target.

        Nan where a set lacks what the method looks at: moved features have no inputs and no outputs of other models.
        """
        rows = []
        for number, one in enumerate(tracked(self.sets, description="scores", total=len(self.sets))):
            drawn = one.take(few_indices(len(one), m, seed + number)).without_labels()
            rows.append([e.score(drawn) if e.applies_to(drawn) else math.nan for e in estimators.values()])
        return dict(zip(estimators, np.array(rows).T, strict=True))


def given_sets(sets: Mapping[str, Outputs], source: Outputs) -> CalibrationSets:
    """Sets of the user, and the source; "fog-1" and "fog-3" are of one family, "fog"."""
    if len(sets) < 2:
        raise InputError(f"`calibration` must hold two labelled sets or more; got {len(sets)}.")
    for one in sets.values():
        require_alike(source, one)
        if one.labels is None:
            raise InputError(f"{one.name}: a calibration set must have labels.")
    families = [family_of(name) for name in sets]
    return CalibrationSets((*sets.values(), source), np.array([*families, SOURCE]), "given")


def family_of(name: str) -> str:
    """What stands before a last dash and number, or the name."""
    match = _NUMBERED.match(name)
    return match.group(1) if match else name


def shifted_sets(
    classifier: Classifier, others: tuple[Classifier, ...], source: Outputs, *, seed: int
) -> CalibrationSets | None:
    """Shifted copies of the source, as far as the model can be asked about them; None where it cannot.

    Images are corrupted. Else the features of a network are moved and sent through its last layer; of other models the
    inputs, if each is a row of numbers. Rows are also drawn in other shares.
    """
    few = source.take(few_indices(len(source), MOST_SAMPLES, seed))
    x, labels = few.inputs, few.known_labels
    if isinstance(x, np.ndarray) and is_images(x):
        sets, families, count = [few], [SOURCE], len(corruption_families()) * len(SEVERITIES)
        for shift in tracked(corrupted(x, seed=seed), description="calibration", total=count):
            samples = as_batches((shift.rows, labels), shift.name)
            sets.append(outputs_of(classifier, samples, shift.name, others=others))
            families.append(shift.family)
        return CalibrationSets(tuple(sets), np.array(families), "corruptions of the source images")
    if (through_last := getattr(classifier, "through_last", None)) is not None:
        if few.features is None:
            return None
        shifts = [(shift, through_last(shift.rows)) for shift in moved(few.features, seed=seed)]
        origin = "features of the source, moved and drawn anew"
    elif isinstance(x, np.ndarray) and x.ndim == 2 and x.dtype.kind in "fiu" and np.isfinite(x).all():
        shifts = [(shift, classifier.outputs(as_batches(shift.rows, shift.name))) for shift in moved(x, seed=seed)]
        origin = "inputs of the source, moved and drawn anew"
    else:
        return None
    confidence = probabilities(few.logits).max(axis=1)
    shifts += [(shift, few.take(shift.indices)) for shift in drawn_anew(labels, confidence, seed=seed)]
    copies = [
        Outputs.of(one.logits, features=one.features, labels=labels[shift.indices], name=shift.name)
        for shift, one in shifts
    ]
    return CalibrationSets((few, *copies), np.array([SOURCE, *(shift.family for shift, _ in shifts)]), origin)
