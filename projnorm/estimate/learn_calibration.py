"""Learn from labelled shifted sets how scores relate to the error, and estimate the error of a target by it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from projnorm.core.progress import tracked
from projnorm.core.statistics import Interval, Line, family_draws, left_out_predictions, normal_reach
from projnorm.estimate.calibrated_mixture import FEWEST_SETS, FOR_BOTH, FOR_INPUTS, CalibratedMixture
from projnorm.estimate.calibration_by_size import CalibrationAtSize, CalibrationBySize
from projnorm.estimate.calibration_sets import CalibrationSets
from projnorm.estimate.chosen_methods import Choice, methods_of_hypotheses
from projnorm.estimate.fitted_source import FittedSource, MethodScores
from projnorm.estimate.hypotheses import Assessment
from projnorm.estimate.result import CalibrationSummary, Coverage, MethodResult
from projnorm.estimate.settings import ANY, INPUTS

# A prediction whose deviation is larger than that on calibration sets by this factor is an extrapolation. The interval
# grows with the deviation, so a smaller factor warns of intervals that hold.
_EXTRAPOLATION = 3.0
# By default a fitted estimator is calibrated for targets of the median size of the calibration sets, of half of it, and
# so on down to this size.
_SMALLEST = 60
OUTSIDE = (
    "The target is unlike the calibration sets, more than they are unlike each other: the estimate is an extrapolation "
    "and the interval may not hold."
)


def with_sizes(fitted: FittedSource, sizes: tuple[int, ...]) -> FittedSource:
    """A fitted source that keeps what its calibration sets teach about targets of these sizes, instead of the sets.

    Args:
        fitted: The fitted source.
        sizes: Numbers of samples of targets; none for the default sizes.
    """
    if not isinstance(fitted.calibration, CalibrationSets):
        return fitted
    by_size = {size: calibration_at(fitted, size) for size in sizes or _default_sizes(fitted.calibration.size)}
    return replace(fitted, calibration=CalibrationBySize(fitted.calibration.origin, by_size))


def calibration_at(fitted: FittedSource, m: int) -> CalibrationAtSize:
    """What the calibration sets teach of targets with `m` samples, learnt when it is first asked for."""
    assert fitted.calibration is not None
    if isinstance(fitted.calibration, CalibrationBySize):
        return fitted.calibration.sizes[m]
    if m not in fitted.calibration_by_size:
        fitted.calibration_by_size[m] = learn_calibration(fitted, fitted.calibration, m)
    return fitted.calibration_by_size[m]


def learn_calibration(fitted: FittedSource, sets: CalibrationSets, m: int) -> CalibrationAtSize:
    """Learn from draws of `m` samples from the calibration sets."""
    draws, estimators = sets.draws(m, seed=fitted.seed), fitted.estimators(m)
    based_on = fitted.options.based_on
    groups = (FOR_INPUTS, FOR_BOTH) if based_on is None else (based_on, based_on)
    for_inputs, for_both = (tuple(name for name in names if name in estimators) for names in groups)
    own = [draw for draw in draws if not draw.has_other_shares]
    regressed = {*for_inputs, *for_both}
    rows: list[dict[str, float]] = []
    assessments: list[Assessment] = []
    for draw in tracked(draws, description="scores", total=len(draws)):
        outputs = draw.outputs.without_labels()
        scaled = fitted.scaling(outputs)
        # Draws with other class shares serve the regressions alone.
        names = regressed if draw.has_other_shares else estimators
        rows.append(
            {
                name: estimators[name].score(scaled) if estimators[name].applies_to(scaled) else math.nan
                for name in names
            }
        )
        assessments.append(fitted.tests.assess(scaled, outputs))
    own_rows = [row for row, draw in zip(rows, draws, strict=True) if not draw.has_other_shares]
    mixture = None
    if len(own) >= FEWEST_SETS and for_inputs and for_both:
        scores = {name: np.array([row[name] for row in rows]) for name in regressed}
        mixture = CalibratedMixture.fit(draws, scores, assessments, (for_inputs, for_both))
    return CalibrationAtSize(
        names=np.array([draw.drawn_from.name for draw in own]),
        families=np.array([draw.family for draw in own]),
        errors=np.array([draw.error for draw in own]),
        scores={name: np.array([row[name] for row in own_rows]) for name in estimators},
        mixture=mixture,
    )


def choose_by_calibration(
    fitted: FittedSource, assessment: Assessment, scores: MethodScores, m: int, sizes: tuple[int, int]
) -> Choice | None:
    """The estimate learnt from the scores and errors of labelled shifted sets of one size; None for too few sets."""
    at_size = calibration_at(fitted, m)
    mixture = at_size.mixture
    if mixture is None or not all(len(scores.defined(names)) == len(names) for names in mixture.methods):
        return None
    options, values = fitted.options, scores.values
    shift = options.shift if options.based_on is None and fitted.class_shares is None else INPUTS
    law = mixture.law(values, assessment, options.shift)
    prefers_shares = mixture.prefers_class_shares(assessment, values, shift)
    contradicts_outputs = not prefers_shares and not assessment.accepts_no_shift
    means = np.clip(law.means, 0.0, 1.0).tolist()
    hypotheses = assessment.with_calibration(
        (means[0], means[1]),
        mixture.p_value_of_inputs(values),
        refutes_class_shares=shift == ANY and contradicts_outputs,
    )
    is_far = law.deviations[0] > _EXTRAPOLATION * mixture.widest
    based_on = mixture.methods[0] if shift == INPUTS else mixture.methods[1]
    return Choice(
        interval=mixture.interval(assessment, values, shift, sizes, options.level),
        based_on=methods_of_hypotheses(assessment, shift) if prefers_shares else based_on,
        methods=tuple(_by_line(method, score, at_size, scores.notes[method]) for method, score in values.items()),
        hypotheses=hypotheses if options.based_on is None else (),
        warnings=(OUTSIDE,) if is_far and contradicts_outputs else (),
        calibration=_summary(fitted, at_size, mixture),
    )


def too_few_warning(at_size: CalibrationAtSize) -> str:
    """Why calibration sets were not used."""
    count = len(at_size.names)
    if count < FEWEST_SETS:
        return f"{count} labelled sets, the source included, are too few to calibrate on; {FEWEST_SETS} would do."
    return "No score of the default is defined on all calibration sets, so they were not used."


def _default_sizes(size: int) -> tuple[int, ...]:
    """The size of the calibration sets, and halves of it."""
    halvings = max(0, int(math.log2(max(1.0, size / _SMALLEST))))
    return tuple(size >> number for number in range(halvings + 1))


def _by_line(method: str, score: float, at_size: CalibrationAtSize, note: str) -> MethodResult:
    """The error that a straight line through the scores and errors of the calibration sets predicts from a score."""
    on_sets = at_size.scores.get(method)
    if on_sets is None or not math.isfinite(score):
        return MethodResult(method, note=note)
    if not np.isfinite(on_sets).all():
        return MethodResult(method, score, note="undefined on some of the calibration sets")
    missed = np.abs(left_out_predictions(on_sets, at_size.errors, at_size.families) - at_size.errors)
    predicted = float(Line.fitted(on_sets, at_size.errors).predict(np.array(score)))
    return MethodResult(method, score, predicted, float(missed.mean()))


def _summary(fitted: FittedSource, at_size: CalibrationAtSize, mixture: CalibratedMixture) -> CalibrationSummary:
    """How well the regression on draws with their own shares predicts those of families left out."""
    assert fitted.calibration is not None
    left_out, errors, families = mixture.inputs.left_out(), mixture.inputs.values, mixture.inputs.families
    reach = normal_reach(fitted.level) * left_out.deviation
    held = np.abs(left_out.mean - errors) <= reach
    draws = family_draws(families, np.random.default_rng(fitted.seed))
    share = Interval.over(draws, float(held.mean()), lambda counts: counts @ held / counts.sum(axis=1))
    ends = np.clip(left_out.mean - reach, 0.0, 1.0), np.clip(left_out.mean + reach, 0.0, 1.0)
    return CalibrationSummary(
        fitted.calibration.origin,
        tuple(at_size.names.tolist()),
        families,
        errors,
        left_out.mean,
        float(np.mean(np.abs(left_out.mean - errors))),
        Coverage(share, float(np.median(ends[1] - ends[0]))),
    )
