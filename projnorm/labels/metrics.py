"""Metrics besides the error: of labelled samples, expected without labels, and estimated from a few labels.

All are functions of soft labels, the weight with which each sample has each label: a sampling weight at the label
where it is known, and calibrated probabilities where it is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.special import ndtri, softmax

from projnorm.core.errors import InputError
from projnorm.core.statistics import Floats
from projnorm.outputs.outputs import are_probabilities

# Draws of labels behind the sampling noise of a metric, and resamples of the bootstrap.
_LABEL_DRAWS, _RESAMPLES = 60, 400
# Entries of the soft labels of draws that are computed at once.
_MOST_ENTRIES = 2**21
# Smaller probabilities have no logarithm worth keeping; those that tempering leaves below the second are rounding.
_SMALLEST, _NEGLIGIBLE = 1e-30, 1e-16
# The logarithm of the temperature is within these bounds, at which rows are one-hot or uniform up to rounding.
_MOST_LOG_TEMPERATURE, _GRID = 30.0, 41
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class MetricEstimate:
    """An estimated metric of the model on the target, with its interval; nan where the metric is undefined.

    Attributes:
        name: Name of the metric, as `metric_names` lists it.
        value: Estimated value, from 0 to 1.
        low: Lower end of the interval.
        high: Upper end of the interval.
    """

    name: str
    value: float
    low: float
    high: float


def metric_names(classes: int) -> tuple[str, ...]:
    """Names of the metrics for a number of classes; class k is column k of the probabilities."""
    if classes < 2:
        raise InputError(f"`classes` must be 2 or more; got {classes}.")
    of_classes = (f"{metric} of class {k}" for k in range(classes) for metric in ("recall", "precision"))
    binary = ("AUROC", "Brier score") if classes == 2 else ()
    return ("accuracy", "balanced accuracy", "macro F1", *of_classes, *binary)


def tempered(rows: NDArray[Any], predicted: NDArray[Any], error: float) -> Floats:
    r"""Probabilities sharpened or flattened by one temperature until they expect this error of the predictions.

    .. math:: q_{ik} \propto p_{ik}^{1/T}, \qquad 1 - \frac1m \sum_i q_{i\hat y_i} = \text{error}

    The expected error rises with :math:`T` where the predictions are the likeliest classes. Where some are not,
    several temperatures may solve it, and one near 1 is taken. An error that no temperature reaches gives the
    closest one.

    Args:
        rows: Probabilities of the classes, shape ``(m, classes)``.
        predicted: Predicted classes, shape ``(m,)``.
        error: Expected share of wrong predictions.
    """
    rows, predicted = _rows(rows), _columns(predicted, "predicted", rows)
    _require_shares(error=error)
    logs = np.log(np.maximum(rows, _SMALLEST))
    below = logs - logs[np.arange(len(rows)), predicted][:, None]

    def gap(log_temperature: float) -> float:
        with np.errstate(over="ignore"):
            return 1.0 - error - float(np.mean(1.0 / np.exp(below * math.exp(-log_temperature)).sum(axis=1)))

    units = np.linspace(-1.0, 1.0, 3 if below.max() <= 0.0 else _GRID)
    grid = _MOST_LOG_TEMPERATURE * units * np.abs(units)
    gaps = [gap(x) for x in grid]
    best = min(range(len(grid)), key=lambda i: (abs(gaps[i]), abs(grid[i])))
    crossings = [i for i in range(len(grid) - 1) if gaps[i] * gaps[i + 1] < 0.0]
    log_temperature = grid[best]
    if abs(gaps[best]) > _ROUNDING and crossings:
        i = min(crossings, key=lambda i: abs(grid[i] + grid[i + 1]))
        log_temperature = brentq(gap, grid[i], grid[i + 1], xtol=1e-14)
    elif abs(gaps[best]) > _ROUNDING and 0 < best < len(grid) - 1:
        bounds = (grid[best - 1], grid[best + 1])
        options = {"xatol": 1e-9}
        log_temperature = minimize_scalar(lambda x: abs(gap(x)), bounds=bounds, method="bounded", options=options).x
    q = softmax(logs * math.exp(-log_temperature), axis=1)
    return np.where(q < _NEGLIGIBLE, 0.0, q)


def estimated_metrics(
    rows: NDArray[Any],
    predicted: NDArray[Any],
    error: float,
    low: float,
    high: float,
    *,
    scores: NDArray[Any] | None = None,
    level: float = 0.9,
    rng: np.random.Generator,
) -> tuple[MetricEstimate, ...]:
    """The metrics of an unlabelled target whose error has been estimated.

    A value is that of the rows tempered to `error`. The ends are the smallest and the largest values of the rows
    tempered to `error`, `low` and `high`, to which the metric's own sampling noise is added in quadrature; those of
    the accuracy are `1 - high` and `1 - low`, which have the noise already. The interval covers a wrong error and
    labels drawn at random, not probabilities that are wrong in other ways than their sharpness.

    Args:
        rows: Calibrated probabilities of the classes, shape ``(m, classes)``.
        predicted: Predicted classes, shape ``(m,)``.
        error: Estimated error of the target.
        low: Lower end of its interval.
        high: Upper end of its interval.
        scores: For two classes, the model's own probability of class 1, which AUROC ranks by and the Brier score
            evaluates, shape ``(m,)``; by default that in `rows`, before tempering.
        level: Level of the interval of the error, which sampling noise gets, too.
        rng: Source of the labels that are drawn.
    """
    rows, predicted = _rows(rows), _columns(predicted, "predicted", rows)
    scores = _scores(scores, rows)
    _require_shares(error=error, low=low, high=high)
    _require_level(level)
    if not low <= error <= high:
        raise InputError(f"`error` must be from `low` to `high`; got {error:g}, and {low:g} to {high:g}.")
    tempered_rows = [tempered(rows, predicted, share) for share in (error, low, high)]
    values = np.stack([_metrics(q, predicted, scores) for q in tempered_rows])
    noise = float(ndtri(0.5 + 0.5 * level)) * _sampling_noise(tempered_rows[0], predicted, scores, rng)
    value, smallest, largest = values[0], np.fmin.reduce(values), np.fmax.reduce(values)
    lows, highs = value - np.hypot(value - smallest, noise), value + np.hypot(largest - value, noise)
    value[0], lows[0], highs[0] = 1.0 - error, 1.0 - high, 1.0 - low
    return _estimates(rows.shape[1], value, lows, highs)


def labelled_metrics(
    labels: NDArray[Any],
    predicted: NDArray[Any],
    rows: NDArray[Any],
    strata: NDArray[Any],
    sizes: NDArray[Any],
    *,
    level: float = 0.9,
    rng: np.random.Generator,
) -> tuple[MetricEstimate, ...]:
    """The metrics of a target, from labels of samples that were drawn at random within strata.

    Intervals are approximate. They are percentiles of the rescaling bootstrap of Rao and Wu (1988), which draws n - 1
    of the n labelled samples of a stratum and shrinks with the share of the stratum that is labelled. Its variance is
    unbiased for means, but percentiles are too narrow for few labels, and a stratum with one label adds no noise. A
    metric of exactly 0 or 1 in the sample, which resampling would not change, gets the end of an exact interval for a
    share of as many samples of equal weight; balanced accuracy, macro F1 and AUROC that for the rarest class.

    Args:
        labels: True classes of the labelled samples, shape ``(n,)``.
        predicted: Predicted classes of the same samples, shape ``(n,)``.
        rows: Probabilities of the classes of the same samples, shape ``(n, classes)``.
        strata: Number of the stratum of each labelled sample, shape ``(n,)``.
        sizes: Number of samples of the whole target in each stratum, shape ``(strata,)``.
        level: Level of the intervals.
        rng: Source of the resamples.
    """
    rows = _rows(rows)
    labels, predicted = _columns(labels, "labels", rows), _columns(predicted, "predicted", rows)
    sizes = _numbers(sizes, "sizes", max(1, np.size(sizes)))
    strata = _numbers(strata, "strata", len(rows), len(sizes) - 1, kinds="iub").astype(np.int64)
    counts = np.bincount(strata, minlength=len(sizes))
    if (wrong := np.flatnonzero((counts > sizes) | ((counts == 0) & (sizes > 0)))).size:
        h = wrong[0]
        raise InputError(
            f"`sizes` must be at least the labelled samples of each stratum, and each stratum needs one; stratum {h} "
            f"has size {sizes[h]:g} and {counts[h]} labelled."
        )
    _require_level(level)
    classes, weights = rows.shape[1], (sizes / np.maximum(counts, 1))[strata]
    one_hot = np.eye(classes)[labels]
    value = _metrics(weights[:, None] * one_hot, predicted, rows[:, 1])

    def resample(draws: int) -> Floats:
        factors = np.ones((draws, len(rows)))
        for h in np.flatnonzero(counts > 1):
            n = counts[h]
            drawn = rng.multinomial(n - 1, np.full(n, 1.0 / n), size=draws) * n / (n - 1)
            factors[:, strata == h] += math.sqrt(1.0 - n / sizes[h]) * (drawn - 1.0)
        return (factors * weights)[:, :, None] * one_hot

    drawn = _metrics_of_draws(resample, _RESAMPLES, rows, predicted, rows[:, 1])
    tail = 0.5 * (1.0 - level)
    # A drawn metric is undefined only where the value is: weights shrink in a resample, but none to zero.
    lows, highs = np.quantile(drawn, [tail, 1.0 - tail], axis=0)
    unlabelled = math.sqrt(1.0 - len(rows) / sizes.sum())
    reach = unlabelled * (1.0 - tail ** (1.0 / np.maximum(_samples_behind(labels, predicted, classes), 1)))
    lows = np.where(value >= 1.0 - _ROUNDING, np.minimum(lows, 1.0 - reach), lows)
    highs = np.where(value <= _ROUNDING, np.maximum(highs, reach), highs)
    return _estimates(classes, value, lows, highs)


def _metrics(soft: Floats, predicted: NDArray[np.int64], scores: Floats) -> Floats:
    r"""The metrics of soft labels of shape ``(..., m, classes)``, in the order of `metric_names`.

    Balanced accuracy is the mean of the defined recalls, and macro F1 that of the classes which are a label or a
    prediction of some sample; nan stands for what is undefined, as the recall of a class without samples. With
    :math:`w_{ik}` the soft labels and :math:`\hat y_i` the predictions, the confusion matrix is
    :math:`M_{kj} = \sum_i w_{ik} [\hat y_i = j]`. If labels are drawn from these rows, accuracy and Brier score are
    exact expectations, and the other metrics ratios of expectations: AUROC is the expected number of pairs of two
    different samples, one of class 1 and the other of class 0, in the right order, over that of all such pairs.
    """
    is_predicted = np.eye(soft.shape[-1])[predicted]
    actual, claimed = soft.sum(axis=-2), soft.sum(axis=-1) @ is_predicted
    correct = np.einsum("...ik,ik->...k", soft, is_predicted)
    with np.errstate(invalid="ignore"):
        recall, precision, f1 = correct / actual, correct / claimed, 2.0 * correct / (actual + claimed)
        overall = [correct.sum(axis=-1) / actual.sum(axis=-1), _mean_of_defined(recall), _mean_of_defined(f1)]
        by_class = np.stack([recall, precision], axis=-1).reshape(*soft.shape[:-2], -1)
        binary = [_auroc(soft, scores), _brier(soft, scores)] if soft.shape[-1] == 2 else []
    parts = [np.stack(overall, axis=-1), by_class, *(part[..., None] for part in binary)]
    return np.clip(np.concatenate(parts, axis=-1), 0.0, 1.0)  # beyond these by rounding only


def _mean_of_defined(values: Floats) -> Floats:
    """Mean along the last axis of what is not nan."""
    is_defined = ~np.isnan(values)
    return np.where(is_defined, values, 0.0).sum(axis=-1) / is_defined.sum(axis=-1)


def _auroc(soft: Floats, scores: Floats) -> Floats:
    """Share of pairs in the right order, ties half, among those of two different samples and classes."""
    order = np.argsort(scores, kind="stable")
    starts = np.flatnonzero(np.diff(scores[order], prepend=-np.inf))
    negative, positive = soft[..., order, 0], soft[..., order, 1]
    own = (negative * positive).sum(axis=-1)
    negative, positive = (np.add.reduceat(part, starts, axis=-1) for part in (negative, positive))
    right = (positive * (np.cumsum(negative, axis=-1) - 0.5 * negative)).sum(axis=-1)
    return (right - 0.5 * own) / (positive.sum(axis=-1) * negative.sum(axis=-1) - own)


def _brier(soft: Floats, scores: Floats) -> Floats:
    """Mean squared difference of the scores from the label."""
    squares = np.stack([scores, 1.0 - scores], axis=1) ** 2
    return np.einsum("...ik,ik->...", soft, squares) / soft.sum(axis=(-2, -1))


def _sampling_noise(rows: Floats, predicted: NDArray[np.int64], scores: Floats, rng: np.random.Generator) -> Floats:
    """Standard deviation of each metric over labels drawn from the rows; infinite if mostly undefined."""
    bounds = np.cumsum(rows, axis=1)

    def draw(draws: int) -> Floats:
        uniform = rng.random((draws, len(rows), 1)) * bounds[:, -1:]
        return np.eye(rows.shape[1])[(uniform >= bounds[:, :-1]).sum(axis=-1)]

    drawn = _metrics_of_draws(draw, _LABEL_DRAWS, rows, predicted, scores)
    is_defined = ~np.isnan(drawn)
    count = is_defined.sum(axis=0)
    means = np.where(is_defined, drawn, 0.0).sum(axis=0) / np.maximum(count, 1)
    squares = np.where(is_defined, drawn - means, 0.0) ** 2
    return np.where(2 * count < _LABEL_DRAWS, np.inf, np.sqrt(squares.sum(axis=0) / np.maximum(count - 1, 1)))


def _metrics_of_draws(
    draw: Callable[[int], Floats], draws: int, rows: Floats, predicted: NDArray[np.int64], scores: Floats
) -> Floats:
    """Metrics of drawn soft labels, shape ``(draws, metrics)``, as many at once as memory allows."""
    step = max(1, _MOST_ENTRIES // rows.size)
    parts = [_metrics(draw(min(step, draws - first)), predicted, scores) for first in range(0, draws, step)]
    return np.concatenate(parts)


def _samples_behind(labels: NDArray[np.int64], predicted: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """Number of labelled samples that each metric is about; of the rarest class where it is about all equally."""
    each = np.stack([np.bincount(part, minlength=classes) for part in (labels, predicted)], axis=1)
    n, rarest = len(labels), each[each[:, 0] > 0, 0].min()
    return np.array([n, rarest, rarest, *each.ravel(), *([rarest, n] if classes == 2 else [])])


def _estimates(classes: int, values: Floats, lows: Floats, highs: Floats) -> tuple[MetricEstimate, ...]:
    """Estimates by name, with ends from 0 to 1, on either side of the value."""
    lows, highs = np.clip(np.minimum(lows, values), 0.0, 1.0), np.clip(np.maximum(highs, values), 0.0, 1.0)
    columns = (values.tolist(), lows.tolist(), highs.tolist())
    return tuple(map(MetricEstimate, metric_names(classes), *columns))


def _rows(rows: NDArray[Any]) -> Floats:
    array = np.asarray(rows)
    is_matrix = array.ndim == 2 and array.shape[1] > 1 and array.dtype.kind in "fiu"
    if not is_matrix or not are_probabilities(array):
        raise InputError(
            "`rows` must be probabilities of shape (samples, classes), two classes or more, that add up to 1 in every "
            f"row; got {_described(array)}."
        )
    return array.astype(np.float64)


def _columns(values: NDArray[Any], what: str, rows: Floats) -> NDArray[np.int64]:
    """A class for each row."""
    return _numbers(values, what, len(rows), rows.shape[1] - 1, kinds="iub").astype(np.int64)


def _scores(scores: NDArray[Any] | None, rows: Floats) -> Floats:
    return rows[:, 1] if scores is None else _numbers(scores, "scores", len(rows), 1)


def _numbers(values: NDArray[Any], what: str, count: int, most: float = math.inf, *, kinds: str = "fiub") -> Floats:
    """An array of `count` finite numbers from 0 to `most`, of these kinds of numpy's types."""
    array = np.asarray(values)
    is_numeric = array.shape == (count,) and array.dtype.kind in kinds
    if not is_numeric or not np.isfinite(array).all() or array.min() < 0 or array.max() > most:
        kind, limit = "finite" if "f" in kinds else "whole", "0 or more" if math.isinf(most) else f"from 0 to {most}"
        raise InputError(f"`{what}` must be {count:,} {kind} numbers, {limit}; got {_described(array)}.")
    return array.astype(np.float64)


def _described(array: NDArray[Any]) -> str:
    has_range = array.size and array.dtype.kind in "fiub"
    return f"{array.dtype} of shape {array.shape}" + (f", {array.min():g} to {array.max():g}" if has_range else "")


def _require_shares(**shares: float) -> None:
    for what, share in shares.items():
        if not 0.0 <= share <= 1.0:
            raise InputError(f"`{what}` must be from 0 to 1; got {share:g}.")


def _require_level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise InputError(f"`level` must be between 0 and 1; got {level:g}.")
