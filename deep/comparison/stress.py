"""Sets of images that no corruption made, scored with the methods of a run and calibrated on its corruptions.

The paper's Section 5: a line from score to error is fitted to the targets of the run, for each method, and used where
the shift is of another kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from deep.comparison.comparison import C, finished_run
from deep.comparison.config import OnRunConfig
from deep.comparison.methods import methods_of
from deep.comparison.runs import Run
from deep.comparison.scores import Scores
from deep.comparison.trained_networks import networks_of
from projnorm.core.arrays import Arrays
from projnorm.core.backends import require_shared
from projnorm.core.errors import InputError
from projnorm.core.records import Record, RunContext, recorded
from projnorm.core.statistics import Line
from projnorm.core.tasks import stacked
from projnorm.estimators.shift_test import ShiftTest
from projnorm.models.preparation import one_thread

T = TypeVar("T")
Make = Callable[[Run, T], tuple[NDArray[np.generic], NDArray[np.int64]]]

_MEANINGS = {
    "sets": "name of each set of images",
    "sizes": "number of images in it",
    "errors": "true error of the evaluated network on it",
    "methods": "name of each method",
    "scores": "score of each method on each set, one column for each method",
    "predicted": "error predicted from the score by a line fitted to the targets of the run",
    "run_errors": "true errors of the targets of the run",
    "run_scores": "scores on them, one column for each method",
    "no_shift_p": "p-value of the hypothesis that nothing changed, from outputs alone",
    "class_shares_p": "p-value of the hypothesis that nothing but class shares changed",
    "farthest": "largest difference of a pixel from the image it was made from, in 255ths; nan where there is none",
}


@dataclass(frozen=True, slots=True, eq=False)
class LinePredictions:
    """What one method predicts for the sets, and its mean squared difference from the true errors."""

    method: str
    predicted: NDArray[np.float64]
    mse: float


def run_to_calibrate_on(config: C, context: RunContext) -> tuple[Run, C]:
    """The finished run, as `finished_run` gives it, with at least two targets to fit a line to."""
    run, config = finished_run(config, context)
    if len(run.scores().targets) < 2:
        raise InputError(f"{run.folder} has one target; a line from score to error needs two.")
    return run, config


def stress_record(
    kind: str,
    config: OnRunConfig,
    run: Run,
    *,
    items: Mapping[str, T],
    make: Make[T],
    original: NDArray[np.uint8] | None = None,
) -> Record:
    """Make each set, score it with the methods of a run, and predict its error from the scores of that run.

    `items` has what each set is made from by name, and `make` turns one into images and labels. `original` are the
    images that those of every set were made from, if all are made from the same ones.
    """
    require_shared(run.context.root, run.context.backend)
    scores = run.scores().only(run.config.methods)
    return recorded(
        kind,
        config,
        run.context,
        items=list(items.values()),
        work=partial(_task, run, make, original),
        assemble=partial(_assembled, scores, tuple(items)),
        meanings=_MEANINGS,
        facts={"run_config": run.config.to_json(), "targets_of_the_run": len(scores.targets)},
        inputs={"network_sha256": networks_of(run).network_hash()},
    )


def predictions(record: Record) -> list[LinePredictions]:
    """The predictions of every method."""
    a = record.arrays
    return [
        LinePredictions(str(method), column, float(np.mean((column - a["errors"]) ** 2)))
        for method, column in zip(a["methods"], a["predicted"].T, strict=True)
    ]


def _task(run: Run, make: Make[T], original: NDArray[np.uint8] | None, item: T) -> Arrays:
    with one_thread(run.context.device):
        images, labels = make(run, item)
        # The labels serve for the error alone, or for the ablation of ProjNorm that wants them.
        networks = networks_of(run)
        outputs = replace(networks.forward(networks.network(), images), inputs=images, labels=labels)
        scores = methods_of(run).scores(outputs)
    farthest = np.nan if original is None else np.abs(images.astype(float) - original).max()
    test = _shift_test(run)
    results: dict[str, Any] = {
        "sizes": len(labels),
        "errors": outputs.error,
        "scores": scores,
        "no_shift_p": test.nothing_changed(outputs).p_value,
        "class_shares_p": test.only_shares_changed(outputs).p_value,
        "farthest": farthest,
    }
    return {name: np.array(value) for name, value in results.items()}


@lru_cache(maxsize=1)
def _shift_test(run: Run) -> ShiftTest:
    networks = networks_of(run)
    return ShiftTest.fit(networks.outputs(networks.data.validation))


def _assembled(scores: Scores, names: Sequence[str], results: Sequence[Arrays]) -> Arrays:
    arrays = stacked(results)
    columns = zip(scores.values.T, arrays["scores"].T, strict=True)
    predicted = [Line.fitted(known, scores.errors).predict(column) for known, column in columns]
    return {
        **arrays,
        "sets": np.array(names),
        "methods": np.array(scores.methods),
        "predicted": np.column_stack(predicted),
        "run_errors": scores.errors,
        "run_scores": scores.values,
    }
