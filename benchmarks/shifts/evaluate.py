"""The rows of the leaderboard on one case: every method whose score is an error, the default, and the source error."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.shifts.agreement import Agreement
from benchmarks.shifts.confidence_only import Signals
from benchmarks.shifts.fitted_model import FittedModel
from benchmarks.shifts.problems import GivenOutputs, Problem
from projnorm.core.arrays import Arrays
from projnorm.core.errors import InputError
from projnorm.core.statistics import Floats
from projnorm.estimate.estimate import estimate_errors
from projnorm.estimators.base import Resources
from projnorm.estimators.registry import ESTIMATORS, build
from projnorm.estimators.softmax import fit_temperature
from projnorm.outputs.outputs import Outputs

SOURCE_ERROR = "the source error"
OUTPUTS_ONLY, WITH_MODEL = "default, outputs only", "default, model and inputs"
_NETWORKS = frozenset({"network", "initial", "second network"})
# Columns of a table on which methods are run that train on every target.
_MOST_COLUMNS = 50
# What a method may raise on a set that it was not made for; it is recorded, and the others go on.
_FAILURES = (InputError, ValueError, ArithmeticError, np.linalg.LinAlgError)


def error_methods() -> tuple[str, ...]:
    """Every method whose score is an error and that needs no network."""
    return tuple(name for name, method in ESTIMATORS.items() if method.is_error and not method.needs & _NETWORKS)


def row_names(methods: Sequence[str]) -> tuple[str, ...]:
    """The rows of the leaderboard with these methods."""
    return (OUTPUTS_ONLY, WITH_MODEL, SOURCE_ERROR, *methods)


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """What the rows say of the targets of a case.

    Attributes:
        targets: Names of the targets.
        kinds: Kind of shift of each.
        sizes: Number of samples of each.
        truth: True error of each.
        source_errors: Error on the labelled source, for each target.
        rows: For each row that was run the estimate, low and high end of an interval and whether there is a warning,
            shape ``(targets, 4)``; ends are nan where there is no interval.
        seconds: For each row that was run the time per target.
        failures: For each row that failed the reason.
    """

    targets: tuple[str, ...]
    kinds: tuple[str, ...]
    sizes: NDArray[np.int64]
    truth: Floats
    source_errors: Floats
    rows: dict[str, Floats]
    seconds: dict[str, float]
    failures: dict[str, str]

    def to_arrays(self, names: Sequence[str]) -> Arrays:
        """The answers of the rows of these names as arrays, one entry for each target."""
        empty = np.full((len(self.targets), 4), np.nan)
        table = np.stack([self.rows.get(name, empty) for name in names], axis=1)
        return {
            "targets": np.array(self.targets),
            "kinds": np.array(self.kinds),
            "sizes": self.sizes,
            "truth": self.truth,
            "source_errors": self.source_errors,
            "estimates": table[..., 0],
            "low": table[..., 1],
            "high": table[..., 2],
            "warned": table[..., 3],
            "seconds": np.array([self.seconds.get(name, np.nan) for name in names]),
            "failures": np.array([self.failures.get(name, "") for name in names]),
        }


def model_answers(
    problem: Problem, outputs: GivenOutputs, model: FittedModel, methods: Sequence[str], level: float, seed: int
) -> Answers:
    """What the rows say of a problem, with the model that was trained on it and its outputs."""
    answers = output_answers(outputs, methods, level, seed)
    labelled = (problem.source.inputs, problem.source.labels)
    inputs = {target.name: target.inputs for target in problem.targets}
    _run(answers, WITH_MODEL, lambda: _default(model.model, labelled, inputs, level, seed, prepare=model.prepare))
    return answers


def output_answers(outputs: GivenOutputs, methods: Sequence[str], level: float, seed: int) -> Answers:
    """What the rows say that need no model; methods see temperature-scaled outputs, the default those of the model."""
    sets = (outputs.source, *outputs.targets)
    answers = _blank([(outputs.source, target) for target in outputs.targets], outputs.kinds)
    source, *targets = (replace(samples, features=None, inputs=None) for samples in sets)
    named = {target.name: target.without_labels() for target in targets}
    _run(answers, OUTPUTS_ONLY, lambda: _default(None, source, named, level, seed))
    temperature = fit_temperature(source.logits, source.known_labels)
    scaled = [replace(samples, logits=samples.logits / temperature) for samples in sets]
    for method in methods:
        # A method that trains on every target takes too long on vectors of words.
        if ESTIMATORS[method].costly and np.shape(outputs.source.inputs)[1:] > (_MOST_COLUMNS,):
            continue
        if not ESTIMATORS[method].lacking(outputs.source, Resources(seed=seed)):
            _run(answers, method, partial(_scores, method, scaled[0], scaled[1:], seed))
    return answers


def signal_answers(signals: Signals, methods: Sequence[str]) -> Answers:
    """What the methods say that need confidences only."""
    kinds = tuple(target.kind for target in signals.targets)
    answers = _blank([(signals.source, target) for target in signals.targets], kinds)
    for method, values in signals.estimates().items():
        if method in methods:
            _run(answers, method, partial(_without_interval, values))
    return answers


def agreement_answers(agreement: Agreement, methods: Sequence[str], seed: int) -> Answers:
    """What the methods say that need the predictions of several networks only; a target is a network on a set."""
    networks, sets = agreement.networks, agreement.targets
    sources = agreement.source.outputs()
    pairs = [pair for target in sets for pair in zip(sources, target.outputs(), strict=True)]
    names = [f"{target.name}, {network}" for target in sets for network in networks]
    answers = _blank(pairs, (agreement.kind,) * len(pairs), names)
    for method in methods:
        if ESTIMATORS[method].needs & {"second", "others"}:
            _run(answers, method, partial(_scores_of_pairs, method, pairs, seed))
    return answers


def _blank(pairs: Sequence[tuple[Any, Any]], kinds: tuple[str, ...], names: Sequence[str] = ()) -> Answers:
    """Answers with the truth and the source error alone."""
    source_errors = np.array([source.error for source, _ in pairs])
    return Answers(
        tuple(names or (target.name for _, target in pairs)),
        kinds,
        np.array([len(target) for _, target in pairs], dtype=np.int64),
        np.array([target.error for _, target in pairs]),
        source_errors,
        {SOURCE_ERROR: _without_interval(source_errors)},
        {SOURCE_ERROR: 0.0},
        {},
    )


def _run(answers: Answers, row: str, compute: Callable[[], Floats]) -> None:
    """Add a row, with its time per target, or why it failed."""
    started = time.perf_counter()
    try:
        answers.rows[row] = compute()
    except _FAILURES as error:
        answers.failures[row] = f"{type(error).__name__}: {error}"
    answers.seconds[row] = (time.perf_counter() - started) / len(answers.targets)


def _default(model: Any, source: Any, targets: dict[str, Any], level: float, seed: int, **options: Any) -> Floats:
    estimates = estimate_errors(model, source, targets, level=level, seed=seed, **options).values()
    rows = [(estimate.error, estimate.low, estimate.high, bool(estimate.warnings)) for estimate in estimates]
    return np.array(rows, dtype=np.float64)


def _scores(method: str, source: Outputs, targets: Sequence[Outputs], seed: int) -> Floats:
    estimator = build(method, Resources(seed=seed), source)
    return _without_interval([estimator.score(target.without_labels()) for target in targets])


def _scores_of_pairs(method: str, pairs: Sequence[tuple[Outputs, Outputs]], seed: int) -> Floats:
    return np.concatenate([_scores(method, source, [target], seed) for source, target in pairs])


def _without_interval(estimates: Sequence[float] | Floats) -> Floats:
    rows = np.full((len(estimates), 4), np.nan)
    rows[:, 0] = estimates
    return rows
