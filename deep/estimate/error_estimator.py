"""The estimate of an error: what is learnt from labelled sets, applied to the scores of a target."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from deep.calibration import Floats, Line, left_out_predictions
from deep.ensemble import Stack, signs
from deep.estimate.calibration_sets import CalibrationSets
from deep.estimate.conformal import Residuals, coverage
from deep.estimate.result import CalibrationSummary, ErrorEstimate, MethodResult, joined, percent
from deep.estimators import ESTIMATORS, Estimator, Resources, build
from deep.outputs import Outputs, are_probabilities
from projnorm.errors import InputError

# The default, with labelled shifted sets and without; both were chosen by held-out error, see docs/which-method.md.
CALIBRATED = ("COT", "COTT", "MI", "FeatureShift")
UNCALIBRATED = ("COTT", "DoC")
_FEWEST_TO_HALVE = 20
_DRAWS = 200
# A bootstrap draws so many rows at the most, and its spread is scaled to all of them.
_MOST_DRAWN = 2_000
# A target larger than the calibration sets is scored in so many parts at the most.
_MOST_PARTS = 10
# Fewer samples are warned of.
_FEW = 30


def offered_methods() -> tuple[str, ...]:
    """Every method but AgreeScore, which with outputs of another model at hand is GDE."""
    return tuple(name for name, one in ESTIMATORS.items() if "second network" not in one.needs)


@dataclass(frozen=True, eq=False)
class ErrorEstimator:
    """Everything about an estimate but the target.

    All of `methods` are run, and the estimate is made of those `wanted`, or of the default. They learn from
    `learnt_from`, a half of the source where there are calibration sets, which are made of the other half, and all of
    it where there are none; `remedy` then says how the user could have some.
    """

    methods: tuple[str, ...]
    wanted: tuple[str, ...] | None
    level: float
    resources: Resources
    remedy: str
    source: Outputs
    learnt_from: Outputs
    calibration: CalibrationSets | None
    _fitted: dict[int, dict[str, Estimator]] = field(default_factory=dict, init=False, repr=False)
    _tables: dict[int, dict[str, Floats]] = field(default_factory=dict, init=False, repr=False)

    @property
    def seed(self) -> int:
        """Seed of everything drawn."""
        return self.resources.seed

    def estimate(self, target: Outputs) -> ErrorEstimate:
        """The estimate for a target, whose labels are used for `ErrorEstimate.truth` alone."""
        truth = None if target.labels is None else target.error
        target = target.without_labels()
        m = len(target) if self.calibration is None else min(len(target), self.calibration.size)
        fitted = self._estimators(m)
        scores = dict.fromkeys(self.methods, math.nan)
        scores |= {method: part_score(estimator, target, m, self.seed) for method, estimator in fitted.items()}
        notes = {method: _note(self._lacking(method), score) for method, score in scores.items()}
        default = UNCALIBRATED if self.calibration is None else CALIBRATED
        chosen = tuple(method for method in self.wanted or default if math.isfinite(scores.get(method, math.nan)))
        if not chosen:
            reasons = "; ".join(f"{method}: {note}" for method, note in notes.items())
            raise InputError(f"{target.name}: nothing can be estimated ({reasons}).")
        if self.calibration is None:
            estimate = self._uncalibrated(target, scores, notes, chosen)
        else:
            estimate = self._calibrated(target, self.calibration, m, scores, notes, chosen)
        return replace(estimate, truth=truth, warnings=(*self._general_warnings(target), *estimate.warnings))

    def _lacking(self, method: str) -> str:
        return ESTIMATORS[method].lacking(self.learnt_from, self.resources)

    def _estimators(self, m: int) -> dict[str, Estimator]:
        """Methods that lack nothing, for sets of `m` samples."""
        if m not in self._fitted:
            resources = replace(self.resources, samples=m)
            runnable = [method for method in self.methods if not self._lacking(method)]
            self._fitted[m] = {method: build(method, resources, self.learnt_from) for method in runnable}
        return self._fitted[m]

    def _uncalibrated(
        self, target: Outputs, scores: Mapping[str, float], notes: Mapping[str, str], chosen: tuple[str, ...]
    ) -> ErrorEstimate:
        """The mean of methods whose scores are errors, with the sampling noise of both sets from bootstrap draws."""
        if raw := [method for method in chosen if not ESTIMATORS[method].is_error]:
            raise InputError(
                f"{joined(raw)}: scores that are no errors need calibration{f'; {self.remedy}' if self.remedy else ''}."
            )
        bias, spread = self._sampling_noise(target, chosen)
        error = float(np.clip(np.mean([scores[method] for method in chosen]) - bias, 0.0, 1.0))
        results = [
            MethodResult(method, score, score if ESTIMATORS[method].is_error else math.nan, note=notes[method])
            for method, score in scores.items()
        ]
        return self._estimate(target, error, _reach(self.level) * spread, chosen, results, sampling_noise=spread)

    def _sampling_noise(self, target: Outputs, methods: tuple[str, ...]) -> tuple[float, float]:
        """What the methods miss by on draws of the source as large as the target, and how much they vary.

        Some are biased on few samples: the classes of so few do not have the shares that COTT takes them to have. The
        spread is the standard deviation over draws of both sets, with replacement. It is no less than that of the error
        of the source, counted with half a sample more of each kind, and half a sample of the target: sets without any
        error, or of one sample, would have none.
        """
        rng = np.random.default_rng(self.seed)
        sets = tuple(replace(one, inputs=None) for one in (self.source, target))
        sizes = [min(len(one), _MOST_DRAWN) for one in sets]
        varied, missed = [], []
        for _ in range(_DRAWS):
            learnt, seen, like_source = (
                one.take(rng.integers(len(one), size=size))
                for one, size in zip((*sets, sets[0]), (*sizes, sizes[1]), strict=True)
            )
            estimators = [build(method, Resources(seed=self.seed), learnt) for method in methods]
            varied.append(np.mean([estimator.score(seen) for estimator in estimators]))
            there = np.mean([estimator.score(like_source) for estimator in estimators])
            missed.append(there - learnt.error)
        share = max(size / len(one) for one, size in zip(sets, sizes, strict=True))
        spread = _finite_or(np.std, varied, 1.0) * math.sqrt(share)
        noise = _binomial_noise(self.source.error, len(self.source))
        return _finite_or(np.mean, missed, 0.0), math.hypot(max(spread, noise), 0.5 / len(target))

    def _calibrated(
        self,
        target: Outputs,
        sets: CalibrationSets,
        m: int,
        scores: Mapping[str, float],
        notes: Mapping[str, str],
        chosen: tuple[str, ...],
    ) -> ErrorEstimate:
        """The estimate that is learnt from the scores and errors of labelled shifted sets of the same size."""
        if m not in self._tables:
            self._tables[m] = sets.scores(self._estimators(m), m=m, seed=self.seed)
        table = self._tables[m]
        chosen = tuple(method for method in chosen if np.isfinite(table[method]).all())
        if not chosen:
            raise InputError(f"{target.name}: no method is defined on all of the calibration sets.")
        turned = signs(chosen)
        values = np.column_stack([table[method] for method in chosen])
        here = np.array([scores[method] for method in chosen])
        known = (values * turned, sets.errors, sets.families, Stack.fitted, self.source.error)
        residuals, stack = Residuals.of(*known), Stack.fitted(*known[:2])
        raw = float(stack.predict((here * turned)[None])[0])
        error = min(1.0, max(0.0, raw))
        radius = float(residuals.radius(np.array(error), self.level))
        noise = _binomial_noise(error, len(target))
        weighty = tuple(method for method, weight in zip(chosen, stack.weights, strict=True) if weight > 0.0)
        held = coverage(*known, self.level, rng=np.random.default_rng(self.seed))
        warnings = (
            "" if math.isfinite(radius) else _too_few(sets, self.level),
            _outside(chosen, values, here),
            "" if weighty else "No method follows the error on the calibration sets; this is their mean.",
            "" if raw == error else f"The calibration gives {percent(raw)}, which was cut.",
        )
        return self._estimate(
            target,
            error,
            max(radius, _reach(self.level) * noise),
            weighty or chosen,
            [_by_line(method, score, table, sets, notes[method]) for method, score in scores.items()],
            sampling_noise=noise,
            warnings=tuple(filter(None, warnings)),
            calibration=CalibrationSummary(
                sets.origin, sets.names, sets.families, sets.errors, residuals.predicted, residuals.mae, held
            ),
        )

    def _general_warnings(self, target: Outputs) -> list[str]:
        """Warnings about sets that are small or look wrong."""
        warnings = [
            f"{what} has {len(one)} sample{'s' if len(one) > 1 else ''}; so few say little."
            for what, one in (("The source", self.source), ("The target", target))
            if len(one) < _FEW
        ]
        if are_probabilities(self.source.logits):
            warnings.append("What was given as logits looks like probabilities, and softmax is applied to logits.")
        return warnings

    def _estimate(
        self,
        target: Outputs,
        error: float,
        reach: float,
        chosen: tuple[str, ...],
        results: Sequence[MethodResult],
        **more: Any,
    ) -> ErrorEstimate:
        error, low, high = np.clip((error, error - reach, error + reach), 0.0, 1.0).tolist()
        return ErrorEstimate(
            target.name,
            len(target),
            error,
            low,
            high,
            self.level,
            chosen,
            self.source.error,
            len(self.source),
            (*results, *_not_asked(self.methods)),
            remedy=self.remedy,
            **more,
        )


def halves(source: Outputs, seed: int) -> tuple[Outputs, Outputs]:
    """What methods learn from and what is shifted to calibrate them: a score is better on what it was learnt from."""
    order = np.random.default_rng(seed).permutation(len(source))
    if len(order) < _FEWEST_TO_HALVE:
        return source, source
    first, second = (np.sort(part) for part in np.array_split(order, 2))
    return source.take(first), source.take(second)


def part_score(estimator: Estimator, outputs: Outputs, m: int, seed: int) -> float:
    """The mean over parts of `m` samples, since most scores depend on how many there are; costly ones see one part."""
    most = 1 if estimator.costly else _MOST_PARTS
    order = np.random.default_rng(seed).permutation(len(outputs))
    parts = [np.sort(order[start : start + m]) for start in range(0, len(outputs) - m + 1, m)][:most]
    return float(np.mean([estimator.score(outputs.take(part)) for part in parts]))


def _reach(level: float) -> float:
    """How many standard deviations an interval at this level reaches to either side."""
    return NormalDist().inv_cdf(0.5 + level / 2.0)


def _binomial_noise(error: float, n: int) -> float:
    """Standard deviation of an error counted on n samples, with half a sample more of each kind."""
    p = (n * error + 0.5) / (n + 1)
    return math.sqrt(p * (1.0 - p) / n)


def _finite_or(measure: Callable[[Floats], np.floating], values: list[np.floating], otherwise: float) -> float:
    """A measure of the values that are finite; `otherwise` if there are none."""
    finite = np.array(values)[np.isfinite(values)]
    return float(measure(finite)) if len(finite) else otherwise


def _by_line(method: str, score: float, table: Mapping[str, Floats], sets: CalibrationSets, note: str) -> MethodResult:
    """What a method says by a line of its own, from its score to the error."""
    if not math.isfinite(score):
        return MethodResult(method, note=note)
    if not np.isfinite(known := table[method]).all():
        return MethodResult(method, score, note="undefined on some of the calibration sets")
    missed = np.abs(left_out_predictions(known, sets.errors, sets.families) - sets.errors)
    predicted = float(Line.fitted(known, sets.errors).predict(np.array(score)))
    return MethodResult(method, score, predicted, float(missed.mean()))


def _note(missing: str, score: float) -> str:
    if missing:
        return f"not run: needs {missing}"
    return "" if math.isfinite(score) else "undefined on this set"


def _not_asked(asked: tuple[str, ...]) -> list[MethodResult]:
    """Methods that were not run, with the reason: the costly ones by default, all others where methods are named."""
    left_out = [method for method in offered_methods() if method not in asked]
    reasons = {True: "costly, name it in methods", False: "not asked for"}
    return [MethodResult(method, note=f"not run: {reasons[ESTIMATORS[method].costly]}") for method in left_out]


def _too_few(sets: CalibrationSets, level: float) -> str:
    """A warning that the families do not suffice for an interval."""
    families = len(set(sets.families.tolist()))
    reach = 100 * families / (families + 1)
    too_few = f"{families} families of calibration sets are too few for an interval at {100 * level:g} %"
    return f"{too_few}, which is then all from 0 to 100 %; they reach {reach:.0f} % at the most."


def _outside(chosen: tuple[str, ...], values: Floats, here: Floats) -> str:
    """A warning where the scores of a target lie outside those of the calibration sets; else empty."""
    outside = [
        f"{method} is {score:.4g}, and {low:.4g} to {high:.4g} on the calibration sets"
        for method, score, low, high in zip(chosen, here, values.min(axis=0), values.max(axis=0), strict=True)
        if not low <= score <= high
    ]
    where = f"The target lies outside the calibration sets ({'; '.join(outside)})"
    return f"{where}: the estimate is an extrapolation and the interval may not hold." if outside else ""
