"""The estimate for one target, step by step: test, score, choose, warn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from projnorm.core.errors import InputError
from projnorm.core.statistics import Floats
from projnorm.estimate.chosen_methods import Choice, choose_by_outputs
from projnorm.estimate.fitted_source import FittedSource, MethodScores
from projnorm.estimate.hypotheses import Assessment
from projnorm.estimate.options import offered_methods
from projnorm.estimate.ranges import sampling_noise
from projnorm.estimate.result import ErrorEstimate, MethodResult
from projnorm.estimate.warnings import all_warnings_for
from projnorm.estimators.softmax import probabilities
from projnorm.outputs.outputs import Outputs

if TYPE_CHECKING:
    from projnorm.estimate.recalibration import Recalibration
    from projnorm.labels.metrics import MetricEstimate


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
    def class_probabilities(self) -> Floats:
        """Probabilities of the classes of each sample, made as sharp or as blunt as the estimate asks for."""
        from projnorm.labels.metrics import tempered

        return tempered(self.rows, self.predicted, self.estimate.error)

    @property
    def wrong(self) -> Floats:
        """Probability that each sample is wrong, with the estimate as its mean, shape ``(m,)``."""
        rows = self.class_probabilities
        return 1.0 - rows[np.arange(len(rows)), self.predicted]

    def corrected(self, recalibration: Recalibration | None) -> PerSampleEstimate:
        """The same after the correction that labels of earlier batches give; None for no correction."""
        return self if recalibration is None else replace(self, estimate=recalibration.apply(self.estimate))


def estimate_target(fitted: FittedSource, target: Outputs, *, metrics: bool = False) -> ErrorEstimate:
    """The estimate for a target, whose labels are used for `ErrorEstimate.truth` alone."""
    by_sample = estimate_per_sample(fitted, target)
    return replace(by_sample.estimate, metrics=_metrics(fitted, target, by_sample)) if metrics else by_sample.estimate


def estimate_per_sample(fitted: FittedSource, target: Outputs) -> PerSampleEstimate:
    """The estimate, and what it expects of each sample."""
    outputs = target.without_labels()
    scaled = fitted.scaling(outputs)
    assessment = fitted.tests.assess(scaled, outputs)
    estimate = _estimate(fitted, target, assessment, fitted.scores(scaled))
    return PerSampleEstimate(estimate, scaled.predicted, fitted.calibrated_rows(scaled, assessment))


def _estimate(fitted: FittedSource, target: Outputs, assessment: Assessment, scores: MethodScores) -> ErrorEstimate:
    """The estimate from what the outputs say under each hypothesis, and the scores of the methods."""
    source, options, outputs = fitted.source, fitted.options, target.without_labels()
    if options.based_on is not None and not scores.defined(options.based_on):
        reasons = "; ".join(f"{method}: {note}" for method, note in scores.notes.items())
        raise InputError(f"{target.name}: nothing can be estimated ({reasons}).")
    choice = _choose(fitted, outputs, assessment, scores)
    interval = choice.interval
    return ErrorEstimate(
        target=target.name,
        m=len(target),
        error=interval.value,
        low=interval.low,
        high=interval.high,
        level=options.level,
        based_on=choice.based_on,
        source_error=source.error,
        n_source=len(source),
        methods=(*choice.methods, *_not_run(fitted.methods, choice.based_on)),
        sampling_noise=sampling_noise(interval.value, len(source), len(target)),
        warnings=(*all_warnings_for(fitted, outputs, assessment, choice), *choice.warnings),
        hypotheses=choice.hypotheses,
        class_shares=tuple(assessment.shares.tolist()),
        calibration=choice.calibration,
        truth=None if target.labels is None else target.error,
        how_to_calibrate=fitted.how_to_calibrate,
        assumed="known class shares" if fitted.class_shares is not None else options.shift,
    )


def _choose(fitted: FittedSource, target: Outputs, assessment: Assessment, scores: MethodScores) -> Choice:
    """The answer by calibration sets where there are some that serve, else by the outputs alone."""
    sizes = (len(fitted.source), len(target))
    # Calibration sets do not have class shares that are known to differ from those of the source.
    if fitted.calibration is None or assessment.shares_are_known_to_differ:
        return choose_by_outputs(fitted, assessment, scores, sizes)
    from projnorm.estimate.learn_calibration import calibration_at, choose_by_calibration, too_few_warning

    m = fitted.size_for(len(target))
    choice = choose_by_calibration(fitted, assessment, scores, m, sizes)
    if choice is None:
        choice = choose_by_outputs(fitted, assessment, scores, sizes)
        choice = replace(choice, warnings=(too_few_warning(calibration_at(fitted, m)),))
    return choice


def _metrics(fitted: FittedSource, target: Outputs, by_sample: PerSampleEstimate) -> tuple[MetricEstimate, ...]:
    """Metrics of calibrated probabilities that expect the estimated error, and the ends of its interval."""
    from projnorm.labels.metrics import estimated_metrics

    estimate = by_sample.estimate
    return estimated_metrics(
        by_sample.class_probabilities,
        by_sample.predicted,
        estimate.error,
        estimate.low,
        estimate.high,
        scores=probabilities(target.logits)[:, 1] if target.classes == 2 else None,
        level=estimate.level,
        rng=np.random.default_rng(fitted.seed),
    )


def _not_run(run: tuple[str, ...], based_on: tuple[str, ...]) -> list[MethodResult]:
    """Methods that were not run."""
    notes = dict.fromkeys(based_on, "the estimate is made of it; its own score: name it in methods")
    return [
        MethodResult(name, note=notes.get(name, "not run: name it in methods"))
        for name in offered_methods()
        if name not in run
    ]
