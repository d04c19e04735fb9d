"""Labelled shifted sets to calibrate on: copies of the source made here, or sets of the user; each in several shares.

A set of shifted copies of labelled samples on which errors are regressed is the meta-set of Deng and Zheng, "Are Labels
Always Necessary for Classifier Accuracy Evaluation?" (CVPR 2021).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from projnorm.core.errors import InputError
from projnorm.core.progress import tracked
from projnorm.core.statistics import subsample_indices
from projnorm.data.class_draws import drawn_with_shares
from projnorm.estimate.shifted_images import LEAST_SHARE, image_shifts, is_images, other_shares, shifted_images
from projnorm.models.batches import as_batches
from projnorm.models.classifiers import Classifier, outputs_of
from projnorm.outputs.outputs import Outputs, joined_outputs, require_alike

SOURCE, MIXTURE = "source", "mixture with clean samples"
# Largest number of samples of the source that are copied.
MOST_SAMPLES = 1_000
# Least number of samples of a draw with other class shares.
_FEWEST_DRAWN = 20
# Every fifth set is also mixed with clean samples, which are about half of the mixture.
_MIXED, _MIXED_PART = 5, 0.5
_NUMBERED = re.compile(r"(.+)-\d+$")


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationSets:
    """Outputs of the model on labelled sets under shifts.

    Attributes:
        sets: Labelled outputs.
        families: Family of shifts of each set.
        origin: Where they come from, in words.
    """

    sets: tuple[Outputs, ...]
    families: NDArray[np.str_]
    origin: str

    @property
    def size(self) -> int:
        """Median number of samples in a set."""
        return int(np.median([len(outputs) for outputs in self.sets]))

    def size_for(self, count: int) -> int:
        """Number of samples in the draws that a target of this many is compared with."""
        return min(count, self.size)

    def part_size(self, count: int) -> int:
        """Number of samples of the parts in which a target of this many is scored."""
        return self.size_for(count)

    def draws(self, m: int, *, seed: int) -> list[Draw]:
        """Draws of `m` samples, so that scores are as noisy as those of a target, in the set's and in other shares."""
        draws: list[Draw] = []
        for number, (outputs, family) in enumerate(zip(self.sets, self.families.tolist(), strict=True)):
            rng = np.random.default_rng((seed, number))
            indices = subsample_indices(len(outputs), m, seed + number)
            draws.append(Draw(outputs, indices, family, has_other_shares=False))
            for shares in other_shares(outputs.classes, rng):
                indices = drawn_with_shares(outputs.known_labels, shares, m, rng, least_share=LEAST_SHARE)
                if len(indices) >= min(_FEWEST_DRAWN, m):
                    draws.append(Draw(outputs, indices, family, has_other_shares=True))
        return draws


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """Samples that were drawn of a calibration set.

    Attributes:
        drawn_from: The set.
        indices: Indices of the samples.
        family: Family of shifts of the set.
        has_other_shares: Whether they have other class shares than the set.
    """

    drawn_from: Outputs
    indices: NDArray[np.intp]
    family: str
    has_other_shares: bool

    @property
    def outputs(self) -> Outputs:
        """Labelled outputs on the samples."""
        return self.drawn_from.take(self.indices)

    @property
    def error(self) -> float:
        """True error on the samples."""
        wrong = self.drawn_from.predicted != self.drawn_from.known_labels
        return float(np.mean(wrong[self.indices]))


def given_sets(sets: Mapping[str, Outputs], source: Outputs) -> CalibrationSets:
    """Sets of the user, and the source; "fog-1" and "fog-3" are of one family, "fog"."""
    if len(sets) < 2:
        raise InputError(f"`calibration` must hold two labelled sets or more; got {len(sets)}.")
    for outputs in sets.values():
        require_alike(source, outputs)
        if outputs.labels is None:
            raise InputError(f"{outputs.name}: a calibration set must have labels.")
    families = [family_of(name) for name in sets]
    return CalibrationSets((*sets.values(), source), np.array([*families, SOURCE]), "given")


def family_of(name: str) -> str:
    """What stands before a last dash and number, or the name."""
    match = _NUMBERED.match(name)
    return match.group(1) if match else name


def shifted_sets(
    classifier: Classifier, others: tuple[Classifier, ...], source: Outputs, *, seed: int, keep_inputs: bool
) -> CalibrationSets | None:
    """Shifted copies of the images of the source, and mixtures of them with clean ones; None for other inputs.

    Tables and texts are not shifted: noise that is made up teaches nothing about the shifts that they meet. Images are
    kept beside the outputs where a method asks for them, with `keep_inputs`.
    """
    few = source.take(subsample_indices(len(source), MOST_SAMPLES, seed))
    if not isinstance(few.inputs, np.ndarray) or not is_images(few.inputs):
        return None
    images, few = few.inputs, few if keep_inputs else replace(few, inputs=None)
    sets, families = [few], [SOURCE]
    for shift in tracked(shifted_images(images, seed=seed), description="calibration", total=len(image_shifts())):
        outputs = outputs_of(classifier, as_batches(shift.images, shift.name), shift.name, others=others)
        sets.append(replace(outputs, labels=few.labels, inputs=outputs.inputs if keep_inputs else None))
        families.append(shift.family)
    for number, outputs in enumerate(sets[_MIXED::_MIXED]):
        shifted = np.random.default_rng((seed, number)).random(len(few)) < _MIXED_PART
        sets.append(joined_outputs(few.take(np.flatnonzero(~shifted)), outputs.take(np.flatnonzero(shifted))))
        families.append(MIXTURE)
    return CalibrationSets(tuple(sets), np.array(families), "corruptions and other changes of the source images")
