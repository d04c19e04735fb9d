"""How well methods predict on few samples, one by one and together, and whether one is better than another."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deep.calibration import LEVEL, Fit, Floats, Interval, Line, family_draws, left_out_predictions
from deep.ensemble import Stack, signs
from deep.estimate.conformal import coverage
from deep.estimate.error_estimator import CALIBRATED
from projnorm.vision.targets import CLEAN

DEFAULT = "default"
_LEVEL = 0.9
# A method works with so many samples if it explains so much of the errors.
WORKS = 0.9


@dataclass(frozen=True, slots=True, eq=False)
class Predicted:
    """Errors that a method predicts, each by what was fitted to the other families in the same draw.

    Attributes:
        method: Name of the method.
        size: Samples of each target.
        values: Shape ``(draws, targets)``.
        coverage: Share of 90 % intervals that held on families left out, with a bootstrap interval; the draws' mean.
        width: Median width of these intervals, the draws' mean.
    """

    method: str
    size: int
    values: Floats
    coverage: Interval
    width: float


@dataclass(frozen=True, slots=True)
class SizeQuality:
    """One method at one size.

    Attributes:
        method: Name of the method.
        size: Samples of each target.
        r_squared: One less the mean squared error over the variance of the true errors, over all draws.
        mae: Mean absolute difference.
        coverage: Share of 90 % intervals that hold the true error.
        width: Median width of them.
    """

    method: str
    size: int
    r_squared: Interval
    mae: Interval
    coverage: Interval
    width: float


@dataclass(frozen=True, slots=True)
class Difference:
    """One method less another, on the same draws and families.

    Attributes:
        better: The method expected to be better.
        worse: The other.
        size: Samples of each target.
        r_squared: R^2 of the first less that of the second.
        mae: Mean absolute difference of the first less that of the second.
    """

    better: str
    worse: str
    size: int
    r_squared: Interval
    mae: Interval


def predictions(arrays: Mapping[str, np.ndarray], size: int) -> dict[str, Predicted]:
    """Every method of a record of `projnorm deep small-samples` at one size, and the default, a stack of some of them.

    A method that is undefined or constant somewhere is left out.
    """
    scores = arrays["scores"][:, arrays["sizes"].tolist().index(size)]  # target, draw, method
    names = tuple(arrays["methods"].tolist())
    predicted = {}
    for column, method in enumerate(names):
        values = scores[:, :, column]
        if np.isfinite(values).all() and (np.ptp(values, axis=0) > 0.0).all():
            predicted[method] = _predicted(method, size, values, arrays, Line.fitted)
    predicted = {method: one for method, one in predicted.items() if np.isfinite(one.values).all()}
    if all(method in predicted for method in CALIBRATED):
        columns = [names.index(method) for method in CALIBRATED]
        predicted[DEFAULT] = _predicted(DEFAULT, size, scores[:, :, columns] * signs(CALIBRATED), arrays, Stack.fitted)
    return predicted


def size_quality(predicted: Predicted, arrays: Mapping[str, np.ndarray], *, seed: int = 0) -> SizeQuality:
    """How well one method predicts, with intervals from draws of whole families."""
    errors, draws = arrays["errors"], _draws(arrays["families"], seed)
    return SizeQuality(
        predicted.method,
        predicted.size,
        _interval(_r_squared, errors, draws, predicted.values),
        _interval(_mae, errors, draws, predicted.values),
        predicted.coverage,
        predicted.width,
    )


def difference(better: Predicted, worse: Predicted, arrays: Mapping[str, np.ndarray], *, seed: int = 0) -> Difference:
    """Paired bootstrap: both methods in the same draws of families."""
    errors, draws = arrays["errors"], _draws(arrays["families"], seed)
    r_squared, mae = (_interval(measure, errors, draws, better.values, worse.values) for measure in (_r_squared, _mae))
    return Difference(better.method, worse.method, better.size, r_squared, mae)


def smallest_size(qualities: list[SizeQuality]) -> int:
    """The fewest samples from which on a method explains nine tenths of the errors; 0 if it never does."""
    works = 0
    for one in sorted(qualities, key=lambda q: -q.size):
        if not one.r_squared.value >= WORKS:
            break
        works = one.size
    return works


def _predicted(method: str, size: int, scores: Floats, arrays: Mapping[str, np.ndarray], fit: Fit) -> Predicted:
    errors, families = arrays["errors"], arrays["families"]
    start = float(errors[families == CLEAN].mean()) if CLEAN in families else float(errors.min())
    values, held = [], []
    for draw in range(scores.shape[1]):
        values.append(left_out_predictions(scores[:, draw], errors, families, fit))
        rng = np.random.default_rng(draw)
        held.append(coverage(scores[:, draw], errors, families, fit, start, _LEVEL, rng=rng))
    shares = np.array([[one.share.value, one.share.low, one.share.high] for one in held]).mean(axis=0).tolist()
    return Predicted(method, size, np.array(values), Interval(*shares), float(np.mean([one.width for one in held])))


def _draws(families: NDArray[np.str_], seed: int) -> NDArray[np.int64] | None:
    return family_draws(families, np.random.default_rng(seed))


def _r_squared(values: Floats, errors: Floats, counts: NDArray[np.integer]) -> Floats:
    """Share of the variance of errors that predictions explain: below zero where their mean would do better.

    Not a squared correlation: what predicts the mean of the other families is correlated with its own, negatively.
    """
    missed = counts @ ((values - errors) ** 2).mean(axis=0)
    mean = counts @ errors / counts.sum(axis=1)
    spread = counts @ errors**2 - counts.sum(axis=1) * mean**2
    return 1.0 - np.divide(missed, spread, out=np.full(len(counts), np.nan), where=spread > 0.0)


def _mae(values: Floats, errors: Floats, counts: NDArray[np.integer]) -> Floats:
    return counts @ np.abs(values - errors).mean(axis=0) / counts.sum(axis=1)


Measure = Callable[[Floats, Floats, NDArray[np.integer]], Floats]


def _interval(measure: Measure, errors: Floats, draws: NDArray[np.int64] | None, *values: Floats) -> Interval:
    """A measure of predicted errors, or of one less of another, with the spread over draws of families."""

    def at(counts: NDArray[np.integer]) -> Floats:
        measured = [measure(one, errors, counts) for one in values]
        return measured[0] if len(measured) == 1 else measured[0] - measured[1]

    centre = float(at(np.ones((1, len(errors)), dtype=np.int64))[0])
    if draws is None:
        return Interval(centre, math.nan, math.nan)
    low, high = np.nanquantile(at(draws), [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return Interval(centre, low, high)
