"""The answer from outputs alone: the hypotheses that were not refuted, or the methods that the user names."""

from __future__ import annotations

import math
from dataclasses import dataclass

from projnorm.core.errors import InputError
from projnorm.core.formatting import joined
from projnorm.core.statistics import Interval, normal_reach
from projnorm.estimate.fitted_source import FittedSource, MethodScores
from projnorm.estimate.hypotheses import Assessment, HypothesisResult
from projnorm.estimate.ranges import range_from_methods, range_from_outputs, sampling_noise
from projnorm.estimate.result import CalibrationSummary, MethodResult
from projnorm.estimate.settings import CLASSES, INPUTS
from projnorm.estimators.registry import ESTIMATORS


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """What an estimate is made of.

    Attributes:
        interval: The error and the ends of its interval.
        based_on: Names of the methods that it is made of.
        methods: What each method says.
        hypotheses: The error under each hypothesis; empty where methods were named.
        warnings: What a reader must know of the choice.
        calibration: What a calibrated estimate is based on; None without calibration sets.
    """

    interval: Interval
    based_on: tuple[str, ...]
    methods: tuple[MethodResult, ...]
    hypotheses: tuple[HypothesisResult, ...]
    warnings: tuple[str, ...] = ()
    calibration: CalibrationSummary | None = None


def choose_by_outputs(
    fitted: FittedSource, assessment: Assessment, scores: MethodScores, sizes: tuple[int, int]
) -> Choice:
    """The answer without calibration sets; sizes are the numbers of samples of the source and of the target."""
    options = fitted.options
    methods = tuple(
        MethodResult(method, score, score if ESTIMATORS[method].is_error else math.nan, note=scores.notes[method])
        for method, score in scores.values.items()
    )
    if options.based_on is not None:
        based_on = scores.defined(options.based_on)
        _require_errors(fitted, based_on)
        interval = range_from_methods([scores.values[name] for name in based_on], sizes, options.level)
        return Choice(interval, based_on, methods, ())
    interval = range_from_outputs(assessment, options.shift, sizes, options.level)
    spread = math.hypot(sampling_noise(interval.value, *sizes), fitted.slice_spread)
    interval = interval.at_least(normal_reach(options.level) * spread)
    return Choice(interval, methods_of_hypotheses(assessment, options.shift), methods, assessment.results)


def methods_of_hypotheses(assessment: Assessment, shift: str) -> tuple[str, ...]:
    """The methods that an answer by the hypotheses is made of."""
    if shift == INPUTS:
        return ("COT",)
    if shift == CLASSES or (assessment.accepts_class_shares and not assessment.accepts_no_shift):
        return ("MLLS",)
    if assessment.accepts_no_shift:
        return (assessment.confidence_method,)
    return ("COT", assessment.confidence_method) if len(assessment.shares) == 2 else ("COT",)


def _require_errors(fitted: FittedSource, methods: tuple[str, ...]) -> None:
    """Refuse methods whose scores are no errors, since nothing says what error they mean."""
    if not (raw := [method for method in methods if not ESTIMATORS[method].is_error]):
        return
    remedy = fitted.how_to_calibrate
    if remedy and fitted.calibration is not None:
        from projnorm.estimate.calibrated_mixture import FEWEST_SETS

        remedy = f"pass {FEWEST_SETS - 1} labelled shifted sets or more as `calibration`"
    raise InputError(f"{joined(raw)}: scores that are no errors need calibration{f'; {remedy}' if remedy else ''}.")
