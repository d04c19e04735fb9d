"""The estimate for a target of which some labels are known."""

from __future__ import annotations

from dataclasses import replace

from projnorm.core.statistics import Interval
from projnorm.estimate.fitted_source import FittedSource
from projnorm.estimate.result import ErrorEstimate
from projnorm.estimate.target_estimate import estimate_per_sample
from projnorm.estimate.warnings import warnings_for_sets
from projnorm.labels.labelled import Labelled, LabelledError, labelled_error, metrics_from_labels
from projnorm.labels.metrics import MetricEstimate
from projnorm.outputs.outputs import Outputs

_REFUTED = (
    "The labels refute the estimate without labels: the shift is of a kind that outputs do not show. Do not trust "
    "label-free estimates under it."
)
_GAPS = (
    "The labelled samples are not the first that were chosen; the interval holds only if which were left out has "
    "nothing to do with their labels."
)


def estimate_with_labels(
    fitted: FittedSource, target: Outputs, labelled: Labelled, interval: str, *, metrics: bool
) -> ErrorEstimate:
    """The estimate from labels of some samples, with metrics besides the error if asked for."""
    by_sample = estimate_per_sample(fitted, target)
    label_free, rows = by_sample.estimate, by_sample.class_probabilities
    free_interval = Interval(label_free.error, label_free.low, label_free.high)
    by_labels = labelled_error(labelled, target, rows, free_interval, interval=interval, level=fitted.level)
    conditions = {_REFUTED: by_labels.refutes_label_free, _GAPS: not labelled.is_beginning}
    return replace(
        label_free,
        error=by_labels.error,
        low=by_labels.low,
        high=by_labels.high,
        based_on=("labels",),
        warnings=(
            *warnings_for_sets(fitted.source, target),
            *(warning for warning, holds in conditions.items() if holds),
        ),
        labelled=by_labels,
        metrics=_metrics(fitted, target, labelled, by_labels) if metrics else (),
    )


def _metrics(
    fitted: FittedSource, target: Outputs, labelled: Labelled, by_labels: LabelledError
) -> tuple[MetricEstimate, ...]:
    """Metrics from labels; the accuracy is that of the estimate, whose interval is exact."""
    accuracy, *others = metrics_from_labels(labelled, target, level=fitted.level, seed=fitted.seed)
    exact = replace(accuracy, value=1.0 - by_labels.error, low=1.0 - by_labels.high, high=1.0 - by_labels.low)
    return (exact, *others)
