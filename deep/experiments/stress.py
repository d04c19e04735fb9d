"""Sets of images that no corruption made, scored with the methods of a run and calibrated on its corruptions.

The paper's Section 5: a line from score to error is fitted to the targets of the run, for each method, and used where
the shift is of another kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from deep.calibration import Line
from deep.checkpoints import checkpoint_hash
from deep.experiments.comparison import finished_run
from deep.ledger import Scores
from deep.methods import scores_on
from deep.stages import NETWORK, Workplace
from deep.training import one_thread
from projnorm.device import on_device
from projnorm.runs import Arrays, Backend, Record, recorded, require_shared, stacked

T = TypeVar("T")
Make = Callable[[Workplace, T], tuple[NDArray[np.generic], NDArray[np.int64]]]

_MEANINGS = {
    "sets": "name of each set of images",
    "sizes": "images in it",
    "errors": "true error of the evaluated network on it",
    "methods": "name of each method",
    "scores": "score of each method on each set, a column a method",
    "predicted": "error predicted from the score by a line fitted to the targets of the run",
    "run_errors": "true errors of the targets of the run",
    "run_scores": "scores on them, a column a method",
    "farthest": "largest difference of a pixel from the image it was made from, in 255ths; nan where there is none",
}


@dataclass(frozen=True, slots=True)
class Predictions:
    """One method on the sets.

    Attributes:
        method: Its name.
        predicted: Errors.
        mse: Mean squared difference from the true errors.
    """

    method: str
    predicted: NDArray[np.float64]
    mse: float


def opened(run: str, *, root: Path, device: str) -> tuple[Workplace, Scores]:
    """A finished run: where it works, and its scores, a column for each method of its configuration.

    Raises:
        ValueError: If there is none, it is not finished, or its inputs have changed.
        OSError: If it cannot be read.
    """
    work, ledger = finished_run(root.absolute() / run, device)
    scores = Scores.of(ledger.rows).only(work.config.methods)
    if len(scores.targets) < 2:
        raise ValueError(f"{work.folder} has one target; a line from score to error needs two.")
    return work, scores


def stress_record(
    kind: str,
    config: Mapping[str, Any],
    opened_run: tuple[Workplace, Scores],
    *,
    items: Mapping[str, T],
    make: Make[T],
    root: Path,
    backend: Backend,
    fresh: bool,
    original: NDArray[np.uint8] | None = None,
) -> Record:
    """Make each set, score it, and predict its error.

    Args:
        kind: Of the record.
        config: What was asked, as plain values.
        opened_run: From `opened`.
        items: What each set is made from, by name.
        make: Images and labels of an item.
        root: Folder of the records.
        backend: Where sets are made and scored; workers of a cluster must see `root`.
        fresh: Compute again even what is there.
        original: What the images of every set were made from, if they stand in for the same ones.
    """
    work, scores = opened_run
    require_shared(root, backend)
    asked = {**config, "network_sha256": checkpoint_hash(work.stage(NETWORK)), "run_config": asdict(work.config)}
    return recorded(
        kind,
        asked,
        root=root,
        items=list(items.values()),
        work=partial(_task, work, make, original),
        assemble=partial(_assembled, scores, tuple(items)),
        meanings=_MEANINGS,
        backend=on_device(backend, work.hardware.device),
        fresh=fresh,
        facts={"run": work.folder.name, "targets_of_the_run": len(scores.targets)},
    )


def predictions(record: Record) -> list[Predictions]:
    """Every method."""
    a = record.arrays
    return [
        Predictions(str(method), column, float(np.mean((column - a["errors"]) ** 2)))
        for method, column in zip(a["methods"], a["predicted"].T, strict=True)
    ]


def _task(work: Workplace, make: Make[T], original: NDArray[np.uint8] | None, item: T) -> Arrays:
    with one_thread(work.hardware):
        images, labels = make(work, item)
        error, scores = scores_on(work, images, labels)
    farthest = np.nan if original is None else np.abs(images.astype(float) - original).max()
    return {
        "sizes": np.array(len(labels)),
        "errors": np.array(error),
        "scores": np.array(scores),
        "farthest": np.array(farthest),
    }


def _assembled(scores: Scores, names: Sequence[str], results: Sequence[Arrays]) -> Arrays:
    found = stacked(results)
    predicted = np.full_like(found["scores"], np.nan)
    for column, known in enumerate(scores.values.T):
        predicted[:, column] = Line.fitted(known, scores.errors).predict(found["scores"][:, column])
    return {
        **found,
        "sets": np.array(names),
        "methods": np.array(scores.methods),
        "predicted": predicted,
        "run_errors": scores.errors,
        "run_scores": scores.values,
    }
