"""The estimate of an error: what is learnt from labelled sets, applied to a target."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from projnorm.core.errors import InputError
from projnorm.core.formatting import joined, percent
from projnorm.core.progress import tracked
from projnorm.core.statistics import Floats, Interval, Line, family_draws, left_out_predictions, normal_reach
from projnorm.estimate.answers import answer_from_methods, answer_from_outputs, sampling_noise
from projnorm.estimate.calibrated import FEWEST_SETS, FOR_BOTH, FOR_INPUTS, CalibratedAnswers
from projnorm.estimate.calibration_by_size import CalibrationAtSize, CalibrationBySize
from projnorm.estimate.calibration_sets import CalibrationSets, Draw
from projnorm.estimate.hypotheses import INPUTS, Assessment, HypothesisResult, HypothesisTests
from projnorm.estimate.recalibration import Recalibration
from projnorm.estimate.result import CalibrationSummary, Coverage, ErrorEstimate, MethodResult
from projnorm.estimate.slices import slice_spread
from projnorm.estimate.warnings import calibrated_warnings_for, warnings_for
from projnorm.estimators.base import Estimator, Resources
from projnorm.estimators.registry import ESTIMATORS, build
from projnorm.estimators.scaling import Scaling
from projnorm.estimators.softmax import probabilities
from projnorm.labels.metrics import MetricEstimate, estimated_metrics, tempered
from projnorm.outputs.outputs import Outputs, are_probabilities

# What is run by default, besides the tests of hypotheses: the usual estimates from confidence, for comparison.
SHOWN = ("AC", "ATC", "CBPE", "COT", "DoC", "MLLS")
_FEWEST_TO_HALVE = 20
# A target larger than the calibration sets is scored in so many parts at the most.
_MOST_PARTS = 10
# Fewer samples are warned of.
_FEW = 30
# A predicted class without labelled samples is warned of from this part of the target on, and a source error from this
# much above that of the most frequent class on.
_UNSEEN, _ABOVE_CHANCE = 0.01, 0.01
# "Inputs" is refuted where fewer calibration sets with their own class shares look less like such than this part.
_INPUTS_ALPHA = 0.05
# A prediction whose deviation is larger than that on calibration sets by this factor is an extrapolation. The interval
# grows with the deviation, so a smaller factor warns of intervals that hold.
_EXTRAPOLATION = 3.0


def offered_methods() -> tuple[str, ...]:
    """Every method but AgreeScore, which with outputs of another model at hand is GDE."""
    return tuple(name for name, one in ESTIMATORS.items() if "second network" not in one.needs)


@dataclass(frozen=True, slots=True, eq=False)
class PerSampleEstimate:
    """The estimate for a target, and what it expects of each sample.

    Attributes:
        estimate: The estimate.
        predicted: Predicted class of each sample, shape ``(m,)``.
        rows: Calibrated probabilities of the classes of each sample, shape ``(m, classes)``.
    """

    estimate: ErrorEstimate
    predicted: NDArray[np.int64]
    rows: Floats

    @property
    def wrong(self) -> Floats:
        """Probability that each sample is wrong, with the estimate as its mean, shape ``(m,)``."""
        rows = tempered(self.rows, self.predicted, self.estimate.error)
        return 1.0 - rows[np.arange(len(rows)), self.predicted]

    def corrected(self, recalibration: Recalibration | None) -> PerSampleEstimate:
        """The same after the correction that labels of earlier batches give; None for no correction."""
        return self if recalibration is None else replace(self, estimate=recalibration.apply(self.estimate))


@dataclass(frozen=True, eq=False)
class FittedSource:
    """Everything about an estimate but the outputs on a target.

    Attributes:
        methods: Methods to run; None for those of the default.
        wanted: Methods that the estimate is to be made of; None for the default.
        shift: What the user says of the shift: "any", "classes" or "inputs".
        class_shares: Class shares of the targets, where they are known.
        level: Level of the intervals.
        resources: What methods may be built from besides outputs.
        how_to_calibrate: How the user could have calibration sets, in words.
        source: Labelled outputs.
        learnt_from: The part of them that methods learn from: half where calibration sets are made of the other half.
        calibration: Labelled shifted sets, or what was learnt from them for some sizes; None where there are none.
        known_spread: `slice_spread` where the inputs of the source, which it may need, are not kept; else None.
    """

    methods: tuple[str, ...] | None
    wanted: tuple[str, ...] | None
    shift: str
    class_shares: Floats | None
    level: float
    resources: Resources
    how_to_calibrate: str
    source: Outputs
    learnt_from: Outputs
    calibration: CalibrationSets | CalibrationBySize | None
    known_spread: float | None = None
    _cache: dict[tuple[str, int], object] = field(default_factory=dict, init=False, repr=False)

    @property
    def seed(self) -> int:
        """Seed of everything drawn."""
        return self.resources.seed

    def estimate(self, target: Outputs, *, metrics: bool = False) -> ErrorEstimate:
        """The estimate for a target, whose labels are used for `ErrorEstimate.truth` alone."""
        found = self._estimated(target, self._assessed(target))
        return replace(found, metrics=self._metrics(target, found)) if metrics else found

    def estimate_per_sample(self, target: Outputs) -> PerSampleEstimate:
        """The estimate, and what it expects of each sample."""
        assessment = self._assessed(target)
        estimate = self._estimated(target, assessment)
        return PerSampleEstimate(estimate, target.predicted, self._calibrated_rows(target, assessment))

    def class_probabilities(self, target: Outputs, error: float) -> Floats:
        """Probabilities of the classes of each sample, which expect this error on the target.

        They are the calibrated ones, adapted to other class shares where only these changed, and as sharp or as blunt
        as the error asks for.
        """
        return tempered(self._calibrated_rows(target, self._assessed(target)), target.predicted, error)

    def _calibrated_rows(self, target: Outputs, assessment: Assessment) -> Floats:
        """Calibrated probabilities of the classes, adapted to other class shares where only these changed."""
        scaled, test = self._scaling(target.without_labels()), self._tests.test
        only_shares = assessment.accepts_class_shares and not assessment.accepts_no_shift
        return test.adapted(scaled, assessment.shares) if only_shares else probabilities(scaled.logits)

    def _assessed(self, target: Outputs) -> Assessment:
        """What the outputs say under each hypothesis."""
        target = target.without_labels()
        return self._tests.assess(self._scaling(target), target)

    def _estimated(self, target: Outputs, assessment: Assessment) -> ErrorEstimate:
        """The estimate after what the outputs say."""
        truth = None if target.labels is None else target.error
        target = target.without_labels()
        m = len(target) if self.calibration is None else self.calibration.size_for(len(target))
        scores, notes = self._scores(target, m)
        if self.calibration is None:
            estimate = self._from_outputs(target, assessment, scores, notes)
        else:
            estimate = self._calibrated(target, assessment, m, scores, notes)
        warnings = (*self.general_warnings(target), *self._shift_warnings(assessment, estimate), *estimate.warnings)
        shares = tuple(assessment.shares.tolist())
        return replace(estimate, truth=truth, warnings=warnings, class_shares=shares)

    def _metrics(self, target: Outputs, estimate: ErrorEstimate) -> tuple[MetricEstimate, ...]:
        """Metrics of calibrated probabilities that expect the estimated error, and the ends of its interval."""
        return estimated_metrics(
            self.class_probabilities(target, estimate.error),
            target.predicted,
            estimate.error,
            estimate.low,
            estimate.high,
            scores=probabilities(target.logits)[:, 1] if target.classes == 2 else None,
            level=estimate.level,
            rng=np.random.default_rng(self.seed),
        )

    def for_sizes(self, sizes: Sequence[int]) -> FittedSource:
        """The same with what calibration sets teach of targets of these sizes, in place of the sets."""
        if not isinstance(self.calibration, CalibrationSets):
            return self
        learnt = CalibrationBySize(self.calibration.origin, {size: self.learnt(size) for size in sizes})
        return replace(self, calibration=learnt)

    @property
    def _run(self) -> tuple[str, ...]:
        """Methods that are run."""
        if self.methods is not None:
            return self.methods
        return SHOWN if self.calibration is None else tuple(dict.fromkeys([*SHOWN, *FOR_INPUTS, *FOR_BOTH]))

    @property
    def _scaling(self) -> Scaling:
        if ("scaling", 0) not in self._cache:
            self._cache["scaling", 0] = Scaling.fit(self.learnt_from)
        scaling = self._cache["scaling", 0]
        assert isinstance(scaling, Scaling)
        return scaling

    @property
    def slice_spread(self) -> float:
        """How much confidence misses the errors of slices of the source by."""
        if self.known_spread is not None:
            return self.known_spread
        if ("slices", 0) not in self._cache:
            tests = self._tests
            self._cache["slices", 0] = slice_spread(
                self.source, lambda part: tests.expected(self._scaling(part), part), seed=self.seed
            )
        spread = self._cache["slices", 0]
        assert isinstance(spread, float)
        return spread

    @property
    def _tests(self) -> HypothesisTests:
        """The tests of hypotheses against the source."""
        if ("tests", 0) not in self._cache:
            self._cache["tests", 0] = HypothesisTests.fit(self._scaling(self.source), self.source, self.class_shares)
        tests = self._cache["tests", 0]
        assert isinstance(tests, HypothesisTests)
        return tests

    def _estimators(self, m: int) -> dict[str, Estimator]:
        """Methods that lack nothing, for sets of `m` samples."""
        key = ("estimators", m)
        if key not in self._cache:
            resources, source = replace(self.resources, samples=m), self._scaling(self.learnt_from)
            runnable = [method for method in self._run if not self._lacking(method)]
            self._cache[key] = {method: build(method, resources, source) for method in runnable}
        found = self._cache[key]
        assert isinstance(found, dict)
        return found

    def _lacking(self, method: str) -> str:
        return ESTIMATORS[method].lacking(self.learnt_from, self.resources)

    def _scores(self, target: Outputs, m: int) -> tuple[dict[str, float], dict[str, str]]:
        """Score of every method that is run, and why it has none."""
        scaled = self._scaling(target)
        scores = dict.fromkeys(self._run, math.nan)
        # A target that is not much larger than what was learnt for is scored as a whole.
        part = len(target) if isinstance(self.calibration, CalibrationBySize) and len(target) < 2 * m else m
        scores |= {method: part_score(one, scaled, part, self.seed) for method, one in self._estimators(m).items()}
        notes = {method: _note(self._lacking(method), score) for method, score in scores.items()}
        if self.wanted is not None and not any(math.isfinite(scores[one]) for one in self.wanted):
            reasons = "; ".join(f"{method}: {note}" for method, note in notes.items())
            raise InputError(f"{target.name}: nothing can be estimated ({reasons}).")
        return scores, notes

    def _from_outputs(
        self, target: Outputs, assessment: Assessment, scores: Mapping[str, float], notes: Mapping[str, str]
    ) -> ErrorEstimate:
        """The answer without calibration sets: by the hypotheses, or by the methods that the user names."""
        sizes = (len(self.source), len(target))
        if self.wanted is None:
            based_on, hypotheses = _based_on(assessment, self.shift), assessment.results
            answer = answer_from_outputs(assessment, self.shift, sizes, self.level)
            spread = math.hypot(sampling_noise(answer.value, *sizes), self.slice_spread)
            answer = answer.at_least(normal_reach(self.level) * spread)
        else:
            based_on, hypotheses = tuple(one for one in self.wanted if math.isfinite(scores[one])), ()
            if raw := [method for method in based_on if not ESTIMATORS[method].is_error]:
                more = f"pass {FEWEST_SETS - 1} labelled shifted sets or more as `calibration`"
                remedy = more if self.calibration is not None else self.how_to_calibrate
                remedy = f"; {remedy}" if self.how_to_calibrate else ""
                raise InputError(f"{joined(raw)}: scores that are no errors need calibration{remedy}.")
            answer = answer_from_methods([scores[one] for one in based_on], sizes, self.level)
        results = [
            MethodResult(method, score, score if ESTIMATORS[method].is_error else math.nan, note=notes[method])
            for method, score in scores.items()
        ]
        return self._estimate(target, answer, based_on, results, hypotheses)

    def _calibrated(
        self,
        target: Outputs,
        assessment: Assessment,
        m: int,
        scores: Mapping[str, float],
        notes: Mapping[str, str],
    ) -> ErrorEstimate:
        """The answer that is learnt from the scores and errors of labelled shifted sets of the same size."""
        if assessment.shares_are_known_to_differ:  # the calibration sets do not have these shares
            return self._from_outputs(target, assessment, scores, notes)
        learnt = self.learnt(m)
        answers = learnt.answers
        usable = answers is not None and all(math.isfinite(scores[one]) for names in answers.methods for one in names)
        if answers is None or not usable:
            plain = self._from_outputs(target, assessment, scores, notes)
            return replace(plain, warnings=(*plain.warnings, _too_few(learnt)))
        sizes = (len(self.source), len(target))
        shift = self.shift if self.wanted is None and self.class_shares is None else "inputs"
        answer = answers.answer(assessment, scores, shift, sizes, self.level)
        results = [_by_line(method, score, learnt, notes[method]) for method, score in scores.items()]
        p_value = answers.p_value_of_inputs(scores)
        hypotheses = [
            HypothesisResult(one.name, one.error, p_value, p_value < _INPUTS_ALPHA) if one.name == INPUTS else one
            for one in assessment.results
        ]
        prefers_shares = answers.prefers_class_shares(assessment, scores, shift)
        if shift == "any" and not prefers_shares and not assessment.accepts_no_shift:
            hypotheses[1] = replace(hypotheses[1], refuted=True)
        law = answers.mixture(scores, assessment, self.shift)
        means = np.clip(law.means, 0.0, 1.0).tolist()
        hypotheses[2:] = [replace(one, error=mean) for one, mean in zip(hypotheses[2:], means, strict=True)]
        far = law.deviations[0] > _EXTRAPOLATION * answers.widest
        warnings = (_OUTSIDE,) if far and not prefers_shares and not assessment.accepts_no_shift else ()
        based_on = answers.methods[0] if shift == "inputs" else answers.methods[1]
        if prefers_shares:
            based_on = _based_on(assessment, shift)
        estimate = self._estimate(target, answer, based_on, results, tuple(hypotheses) if self.wanted is None else ())
        return replace(estimate, warnings=warnings, calibration=self._summary(learnt, answers))

    def learnt(self, m: int) -> CalibrationAtSize:
        """What the calibration sets teach of targets with `m` samples."""
        if isinstance(self.calibration, CalibrationBySize):
            return self.calibration.sizes[m]
        key = ("learnt", m)
        if key not in self._cache:
            assert self.calibration is not None
            draws = self.calibration.draws(m, seed=self.seed)
            regressed = _chosen(self.wanted, self._estimators(m))
            table, scores, assessment = self._score_draws(draws, m, regressed)
            own = [draw for draw in draws if not draw.has_other_shares]
            few = len(own) < FEWEST_SETS or not all(regressed)
            answers = None if few else CalibratedAnswers.fit(draws, scores, assessment, regressed)
            names = np.array([draw.drawn_from.name for draw in own])
            families, errors = np.array([draw.family for draw in own]), np.array([draw.error for draw in own])
            self._cache[key] = CalibrationAtSize(names, families, errors, table, answers)
        found = self._cache[key]
        assert isinstance(found, CalibrationAtSize)
        return found

    def _score_draws(
        self, draws: list[Draw], m: int, regressed: tuple[tuple[str, ...], tuple[str, ...]]
    ) -> tuple[dict[str, Floats], dict[str, Floats], list[Assessment]]:
        """All methods on draws with their own shares, those of the regressions on all, and the assessment of all."""
        estimators, tests = self._estimators(m), self._tests
        both = set(regressed[0]) | set(regressed[1])
        rows: list[dict[str, float]] = []
        assessment = []
        for draw in tracked(draws, description="scores", total=len(draws)):
            raw = draw.outputs.without_labels()
            scaled = self._scaling(raw)
            asked = both if draw.has_other_shares else estimators
            rows.append(
                {
                    one: estimators[one].score(scaled) if estimators[one].applies_to(scaled) else math.nan
                    for one in asked
                }
            )
            assessment.append(tests.assess(scaled, raw))
        own = [row for row, draw in zip(rows, draws, strict=True) if not draw.has_other_shares]
        table = {one: np.array([row[one] for row in own]) for one in estimators}
        return table, {one: np.array([row[one] for row in rows]) for one in both}, assessment

    def _summary(self, learnt: CalibrationAtSize, answers: CalibratedAnswers) -> CalibrationSummary:
        """How well the regression on draws with their own shares predicts those of families left out."""
        assert self.calibration is not None
        left_out, errors = answers.inputs.left_out(), answers.inputs.values
        families = answers.inputs.families
        reach = normal_reach(self.level) * left_out.deviation
        held = np.abs(left_out.mean - errors) <= reach
        draws = family_draws(families, np.random.default_rng(self.seed))
        share = Interval.over(draws, float(held.mean()), lambda counts: counts @ held / counts.sum(axis=1))
        ends = np.clip(left_out.mean - reach, 0.0, 1.0), np.clip(left_out.mean + reach, 0.0, 1.0)
        return CalibrationSummary(
            self.calibration.origin,
            tuple(learnt.names.tolist()),
            families,
            errors,
            left_out.mean,
            float(np.mean(np.abs(left_out.mean - errors))),
            Coverage(share, float(np.median(ends[1] - ends[0]))),
        )

    def general_warnings(self, target: Outputs) -> list[str]:
        """Warnings about sets that are small or look wrong."""
        warnings = [
            f"{what} has {len(one)} sample{'s' if len(one) > 1 else ''}; so few say little."
            for what, one in (("The source", self.source), ("The target", target))
            if len(one) < _FEW
        ]
        if are_probabilities(self.source.logits) or are_probabilities(target.logits):
            warnings.append("What was given as logits looks like probabilities, and softmax is applied to logits.")
        counts = np.bincount(self.source.known_labels, minlength=self.source.classes)
        predicted = np.bincount(target.predicted, minlength=self.source.classes)
        if missing := np.flatnonzero((counts == 0) & (predicted > _UNSEEN * len(target))).tolist():
            shown = f"{predicted[missing[0]]:,} samples of the target are predicted to be of class {missing[0]}"
            warnings.append(f"{shown}, of which the source has no labelled sample; nothing is known of its errors.")
        chance = 1.0 - float(counts.max()) / len(self.source)
        has_threshold = self.source.predictions is not None
        if self.source.error > chance + _ABOVE_CHANCE and chance > 0.0 and not has_threshold:
            warnings.append(
                f"The error on the source is {percent(self.source.error)}, and {percent(chance)} for always saying its "
                "most frequent class: are its labels in another order, or are source and target swapped?"
            )
        return warnings

    def _shift_warnings(self, assessment: Assessment, estimate: ErrorEstimate) -> list[str]:
        """Warnings about what the answer assumes of the shift, and where its range may not hold."""
        if self.wanted is not None:
            return []
        n = len(self.source)
        if estimate.calibration is None:
            found = warnings_for(assessment, n, self.shift)
        else:
            found = calibrated_warnings_for(assessment, n, self.shift, estimate.low)
        if self.shift == "classes" and not assessment.accepts_class_shares:
            found.append(_MORE_THAN_SHARES)
        return found

    def _estimate(
        self,
        target: Outputs,
        answer: Interval,
        based_on: tuple[str, ...],
        results: list[MethodResult],
        hypotheses: tuple[HypothesisResult, ...],
    ) -> ErrorEstimate:
        return ErrorEstimate(
            target.name,
            len(target),
            answer.value,
            answer.low,
            answer.high,
            self.level,
            based_on,
            self.source.error,
            len(self.source),
            (*results, *_not_asked(self._run)),
            sampling_noise(answer.value, len(self.source), len(target)),
            hypotheses=hypotheses,
            how_to_calibrate=self.how_to_calibrate,
            assumed="known class shares" if self.class_shares is not None else self.shift,
        )


_MORE_THAN_SHARES = "The outputs are not those of the source with other class shares, so more than these has changed."
_OUTSIDE = (
    "The target is unlike the calibration sets, more than they are unlike each other: the estimate is an extrapolation "
    "and the interval may not hold."
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


def _chosen(wanted: tuple[str, ...] | None, fitted: Mapping[str, Estimator]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Methods of the two regressions, as far as they could be fitted."""
    groups = (FOR_INPUTS, FOR_BOTH) if wanted is None else (wanted, wanted)
    first, second = (tuple(one for one in names if one in fitted) for names in groups)
    return first, second


def _based_on(assessment: Assessment, shift: str) -> tuple[str, ...]:
    """The methods that an answer from outputs is made of."""
    if shift == "inputs":
        return ("COT",)
    if shift == "classes" or (assessment.accepts_class_shares and not assessment.accepts_no_shift):
        return ("MLLS",)
    if assessment.accepts_no_shift:
        return (assessment.confidence_method,)
    return ("COT", assessment.confidence_method) if len(assessment.shares) == 2 else ("COT",)


def _by_line(method: str, score: float, learnt: CalibrationAtSize, note: str) -> MethodResult:
    """What a method says by a line of its own, from its score to the error."""
    known = learnt.scores.get(method)
    if known is None or not math.isfinite(score):
        return MethodResult(method, note=note)
    if not np.isfinite(known).all():
        return MethodResult(method, score, note="undefined on some of the calibration sets")
    missed = np.abs(left_out_predictions(known, learnt.errors, learnt.families) - learnt.errors)
    predicted = float(Line.fitted(known, learnt.errors).predict(np.array(score)))
    return MethodResult(method, score, predicted, float(missed.mean()))


def _note(missing: str, score: float) -> str:
    if missing:
        return f"not run: needs {missing}"
    return "" if math.isfinite(score) else "undefined on this set"


def _not_asked(asked: tuple[str, ...]) -> list[MethodResult]:
    """Methods that were not run."""
    left_out = [method for method in offered_methods() if method not in asked]
    return [MethodResult(method, note="not run: name it in methods") for method in left_out]


def _too_few(learnt: CalibrationAtSize) -> str:
    """A warning that calibration sets were not used."""
    count = len(learnt.names)
    if count < FEWEST_SETS:
        return f"{count} labelled sets, the source included, are too few to calibrate on; {FEWEST_SETS} would do."
    return "No score of the default is defined on all calibration sets, so they were not used."
