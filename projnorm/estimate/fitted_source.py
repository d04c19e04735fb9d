"""What is learnt from the labelled source, once for all targets: scaling, tests of the shift, methods."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from projnorm.core.statistics import Floats
from projnorm.estimate.hypotheses import Assessment, HypothesisTests
from projnorm.estimate.options import EstimateOptions
from projnorm.estimate.slices import slice_spread
from projnorm.estimators.base import Estimator, Resources
from projnorm.estimators.registry import ESTIMATORS, build
from projnorm.estimators.scaling import Scaling
from projnorm.estimators.softmax import probabilities
from projnorm.outputs.outputs import Outputs

if TYPE_CHECKING:
    from projnorm.estimate.calibration_by_size import CalibrationAtSize, CalibrationBySize
    from projnorm.estimate.calibration_sets import CalibrationSets

_FEWEST_TO_HALVE = 20
# Largest number of parts in which a target is scored that is larger than the calibration sets.
_MOST_PARTS = 10


@dataclass(frozen=True, slots=True, eq=False)
class MethodScores:
    """What the methods that were run say of a target.

    Attributes:
        values: Score of each method; nan where it could not be run or is undefined.
        notes: Why a method has no score; empty where it has one.
    """

    values: dict[str, float]
    notes: dict[str, str]

    def defined(self, methods: Sequence[str]) -> tuple[str, ...]:
        """Those of the methods that have a score."""
        return tuple(name for name in methods if math.isfinite(self.values[name]))


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedSource:
    """Everything about an estimate but the outputs on a target.

    Attributes:
        options: Options of the estimate.
        source: Labelled outputs.
        learnt_from: The part of them that methods learn from: half where calibration sets are made of the other half.
        calibration: Labelled shifted sets, or what was learnt from them for some sizes; None where there are none.
        class_shares: Class shares of the targets, one for each column, where they are known.
        scaling: Calibration of the probabilities.
        tests: The tests of hypotheses against the source.
        resources: What methods may be built from besides outputs.
        how_to_calibrate: How the user could have calibration sets, in words.
        known_spread: `slice_spread` where the inputs of the source, which it may need, are not kept; else None.
        estimators_by_size: Methods for the sizes of targets that were seen; `estimators` fills it in.
    """

    options: EstimateOptions
    source: Outputs
    learnt_from: Outputs
    scaling: Scaling
    tests: HypothesisTests
    calibration: CalibrationSets | CalibrationBySize | None = None
    class_shares: Floats | None = None
    resources: Resources = field(default_factory=Resources)
    how_to_calibrate: str = ""
    known_spread: float | None = None
    estimators_by_size: dict[int, dict[str, Estimator]] = field(default_factory=dict, repr=False)

    @classmethod
    def fit(
        cls,
        options: EstimateOptions,
        source: Outputs,
        learnt_from: Outputs,
        *,
        calibration: CalibrationSets | CalibrationBySize | None = None,
        class_shares: Floats | None = None,
        resources: Resources | None = None,
        how_to_calibrate: str = "",
        known_spread: float | None = None,
    ) -> FittedSource:
        """Fit the calibration of the probabilities and the tests; arguments are the attributes of the class."""
        scaling = Scaling.fit(learnt_from)
        tests = HypothesisTests.fit(scaling(source), source, class_shares)
        return cls(
            options=options,
            source=source,
            learnt_from=learnt_from,
            scaling=scaling,
            tests=tests,
            calibration=calibration,
            class_shares=class_shares,
            resources=resources or Resources(),
            how_to_calibrate=how_to_calibrate,
            known_spread=known_spread,
        )

    @property
    def seed(self) -> int:
        """Seed of everything drawn."""
        return self.options.seed

    @property
    def level(self) -> float:
        """Level of the intervals."""
        return self.options.level

    @cached_property
    def slice_spread(self) -> float:
        """How much confidence misses the errors of slices of the source by."""
        if self.known_spread is not None:
            return self.known_spread
        # Confidence looks at logits and predictions alone.
        scaled, raw = (
            Outputs(outputs.logits, predictions=outputs.predicted) for outputs in (self.tests.source, self.source)
        )
        return slice_spread(
            self.source,
            lambda indices: self.tests.expected(scaled.take(indices), raw.take(indices)),
            seed=self.options.seed,
        )

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """Methods that are run: those that are asked for, or those that calibration sets are regressed on."""
        if self.options.methods_to_run or self.calibration is None:
            return self.options.methods_to_run
        from projnorm.estimate.calibrated_mixture import FOR_BOTH, FOR_INPUTS

        return tuple(dict.fromkeys([*FOR_INPUTS, *FOR_BOTH]))

    def calibrated_rows(self, scaled: Outputs, assessment: Assessment) -> Floats:
        """Probabilities of the classes, adapted to other class shares where only these changed.

        Args:
            scaled: Outputs on the target that `scaling` calibrated.
            assessment: What they say under each hypothesis.
        """
        only_shares = assessment.accepts_class_shares and not assessment.accepts_no_shift
        return self.tests.test.adapted(scaled, assessment.shares) if only_shares else probabilities(scaled.logits)

    def size_for(self, count: int) -> int:
        """Number of samples of the sets that a target of this many is compared with."""
        return count if self.calibration is None else self.calibration.size_for(count)

    def estimators(self, m: int) -> dict[str, Estimator]:
        """Methods that lack nothing, for sets of `m` samples."""
        if m not in self.estimators_by_size:
            resources, source = replace(self.resources, samples=m), self.scaling(self.learnt_from)
            runnable = [method for method in self.methods if not self._lacking(method)]
            self.estimators_by_size[m] = {method: build(method, resources, source) for method in runnable}
        return self.estimators_by_size[m]

    def scores(self, scaled: Outputs) -> MethodScores:
        """Score of every method that is run on a target that `scaling` calibrated, and why it has none."""
        if not self.methods:
            return MethodScores({}, {})
        count = len(scaled)
        part = count if self.calibration is None else self.calibration.part_size(count)
        values = dict.fromkeys(self.methods, math.nan)
        for method, estimator in self.estimators(self.size_for(count)).items():
            values[method] = part_score(estimator, scaled, part, self.seed)
        return MethodScores(values, {method: _note(self._lacking(method), score) for method, score in values.items()})

    @cached_property
    def calibration_by_size(self) -> dict[int, CalibrationAtSize]:
        """What calibration sets taught of the sizes of targets that were seen; `calibration_at` fills it in."""
        return {}

    def _lacking(self, method: str) -> str:
        return ESTIMATORS[method].lacking(self.learnt_from, self.resources)


def halves(source: Outputs, seed: int) -> tuple[Outputs, Outputs]:
    """Split the source into a half that methods learn from and a half whose shifted copies calibrate them.

    Scores are better on the samples that a method learnt from than on others.
    """
    order = np.random.default_rng(seed).permutation(len(source))
    if len(order) < _FEWEST_TO_HALVE:
        return source, source
    first, second = (np.sort(part) for part in np.array_split(order, 2))
    return source.take(first), source.take(second)


def part_score(estimator: Estimator, outputs: Outputs, m: int, seed: int) -> float:
    """Mean score over parts of `m` samples, since most scores depend on that number; costly methods score one part."""
    most = 1 if estimator.costly else _MOST_PARTS
    order = np.random.default_rng(seed).permutation(len(outputs))
    parts = [np.sort(order[start : start + m]) for start in range(0, len(outputs) - m + 1, m)][:most]
    return float(np.mean([estimator.score(outputs.take(part)) for part in parts]))


def _note(missing: str, score: float) -> str:
    if missing:
        return f"not run: needs {missing}"
    return "" if math.isfinite(score) else "undefined on this set"
