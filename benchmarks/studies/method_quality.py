"""How well methods predict on few samples, one by one and together, and whether one is better than another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.studies.conformal import coverage
from deep.comparison.ensemble import Stack, signs
from deep.estimators.projnorm import ProjNorm
from projnorm.core.records import Record
from projnorm.core.statistics import Counts, Fit, Floats, Interval, Line, family_draws, left_out_predictions
from projnorm.data.targets import CLEAN

# A weighted sum of four scores, with non-negative weights.
STACK = "stack"
STACKED = ("COT", "COTT", "MI", "FeatureShift")
# Level of the intervals whose coverage is measured.
_LEVEL = 0.9
# Share of the variance of the errors that a method must explain to count as working.
WORKS = 0.9


@dataclass(frozen=True, slots=True, eq=False)
class Predicted:
    """Errors that a method predicts, each by what was fitted to the other families in the same draw.

    `values` has shape ``(draws, targets)``, from `size` samples of each target. Coverage, with its interval, and median
    width of 90 % intervals on families left out are averaged over draws.
    """

    method: str
    size: int
    values: Floats
    coverage: Interval
    width: float


@dataclass(frozen=True, slots=True)
class SizeQuality:
    """How well one method predicts from `size` samples of each target.

    R^2 is one less the mean squared error over the variance of the true errors, over all draws; `mae` is the mean
    absolute difference. Coverage and median width are those of 90 % intervals.
    """

    method: str
    size: int
    r_squared: Interval
    mae: Interval
    coverage: Interval
    width: float


@dataclass(frozen=True, slots=True)
class QualityDifference:
    """The quality of one method less that of another, on the same draws of `size` samples and the same families."""

    better: str
    worse: str
    size: int
    r_squared: Interval
    mae: Interval


@dataclass(frozen=True, slots=True)
class SmallSampleQualities:
    """Every method at every number of samples, and the default less ProjNorm and less the best other method."""

    qualities: dict[str, list[SizeQuality]]
    differences: list[QualityDifference]

    def ranked(self) -> list[tuple[str, list[SizeQuality]]]:
        """Methods with their qualities, the best at the largest size first."""
        return sorted(self.qualities.items(), key=lambda item: np.nan_to_num(-item[1][-1].r_squared.value, nan=1.0))


def small_sample_qualities(record: Record) -> SmallSampleQualities:
    """How well every method predicts from few samples."""
    arrays = record.arrays
    qualities: dict[str, list[SizeQuality]] = {}
    differences = []
    for size in arrays["sizes"].tolist():
        by_method = predictions(arrays, size)
        for method, predicted in by_method.items():
            qualities.setdefault(method, []).append(size_quality(predicted, arrays))
        if STACK not in by_method:
            continue
        others = [method for method in by_method if method not in (STACK, ProjNorm.name)]
        best = {
            max(others, key=lambda method: qualities[method][-1].r_squared.value),
            min(others, key=lambda method: qualities[method][-1].mae.value),
        }
        beaten = [method for method in (ProjNorm.name, *sorted(best)) if method in by_method]
        differences += [difference(by_method[STACK], by_method[method], arrays) for method in beaten]
    return SmallSampleQualities(qualities, differences)


def predictions(arrays: Mapping[str, np.ndarray], size: int) -> dict[str, Predicted]:
    """Every method of a record at one size, unless it is undefined or constant somewhere, and the default, a stack."""
    scores = arrays["scores"][:, arrays["sizes"].tolist().index(size)]  # target, draw, method
    names = tuple(arrays["methods"].tolist())
    predicted = {}
    for column, method in enumerate(names):
        values = scores[:, :, column]
        if np.isfinite(values).all() and (np.ptp(values, axis=0) > 0.0).all():
            predicted[method] = _predicted(method, size, values, arrays, Line.fitted)
    predicted = {method: errors for method, errors in predicted.items() if np.isfinite(errors.values).all()}
    if all(method in predicted for method in STACKED):
        columns = [names.index(method) for method in STACKED]
        predicted[STACK] = _predicted(STACK, size, scores[:, :, columns] * signs(STACKED), arrays, Stack.fitted)
    return predicted


def size_quality(predicted: Predicted, arrays: Mapping[str, np.ndarray], *, seed: int = 0) -> SizeQuality:
    """How well one method predicts, with intervals from draws of whole families."""
    r_squared, mae = (_interval(measure, arrays, seed, predicted.values) for measure in (_r_squared, _mae))
    return SizeQuality(predicted.method, predicted.size, r_squared, mae, predicted.coverage, predicted.width)


def difference(
    better: Predicted, worse: Predicted, arrays: Mapping[str, np.ndarray], *, seed: int = 0
) -> QualityDifference:
    """Paired bootstrap: both methods in the same draws of families."""
    both = better.values, worse.values
    r_squared, mae = (_interval(measure, arrays, seed, *both) for measure in (_r_squared, _mae))
    return QualityDifference(better.method, worse.method, better.size, r_squared, mae)


def smallest_size(qualities: list[SizeQuality]) -> int:
    """The fewest samples from which on a method explains nine tenths of the variance; 0 if it never does."""
    works = 0
    for quality in sorted(qualities, key=lambda q: -q.size):
        if not quality.r_squared.value >= WORKS:
            break
        works = quality.size
    return works


def _predicted(method: str, size: int, scores: Floats, arrays: Mapping[str, np.ndarray], fit: Fit) -> Predicted:
    errors, families = arrays["errors"], arrays["families"]
    start = float(errors[families == CLEAN].mean()) if CLEAN in families else float(errors.min())
    values, held = [], []
    for draw in range(scores.shape[1]):
        values.append(left_out_predictions(scores[:, draw], errors, families, fit))
        rng = np.random.default_rng(draw)
        held.append(coverage(scores[:, draw], errors, families, fit, start, _LEVEL, rng=rng))
    shares = [drawn.share for drawn in held]
    share = np.array([[share.value, share.low, share.high] for share in shares]).mean(axis=0).tolist()
    return Predicted(method, size, np.array(values), Interval(*share), float(np.mean([drawn.width for drawn in held])))


def _r_squared(values: Floats, errors: Floats, counts: Counts) -> Floats:
    """Share of the variance of errors that predictions explain: below zero where their mean would do better.

    It is not a squared correlation: predicting the mean of the other families correlates negatively with the error.
    """
    missed = counts @ ((values - errors) ** 2).mean(axis=0)
    mean = counts @ errors / counts.sum(axis=1)
    spread = counts @ errors**2 - counts.sum(axis=1) * mean**2
    return 1.0 - np.divide(missed, spread, out=np.full(len(counts), np.nan), where=spread > 0.0)


def _mae(values: Floats, errors: Floats, counts: Counts) -> Floats:
    return counts @ np.abs(values - errors).mean(axis=0) / counts.sum(axis=1)


Measure = Callable[[Floats, Floats, Counts], Floats]


def _interval(measure: Measure, arrays: Mapping[str, np.ndarray], seed: int, *values: Floats) -> Interval:
    """A measure of predicted errors, or its difference between two methods, with its interval over families."""
    errors = arrays["errors"]

    def measured(counts: Counts) -> Floats:
        by_method = [measure(predicted, errors, counts) for predicted in values]
        return by_method[0] if len(by_method) == 1 else by_method[0] - by_method[1]

    once = np.ones((1, len(errors)), dtype=np.int64)
    draws = family_draws(arrays["families"], np.random.default_rng(seed))
    return Interval.over(draws, float(measured(once)[0]), measured)
