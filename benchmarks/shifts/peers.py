"""Other tools, which run in environments of their own: the outputs that they read and the estimates they leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.shifts.problems import GivenOutputs
from projnorm.core.arrays import Arrays
from projnorm.core.errors import InputError
from projnorm.core.files import parse_json, read_file
from projnorm.estimators.softmax import probabilities

_MOST_BYTES = 50_000_000


@dataclass(frozen=True, slots=True)
class Peer:
    """What another tool says.

    Attributes:
        row: Name of its row in the leaderboard.
        estimates: Estimated error by case and target.
        seconds: Seconds per target by case.
    """

    row: str
    estimates: Mapping[str, Mapping[str, float]]
    seconds: Mapping[str, float]


def plain_outputs(case: str, outputs: GivenOutputs) -> Arrays:
    """Probabilities, predictions and labels of a case, as another tool reads them.

    The arrays are ``source_probabilities``, ``source_predictions`` and ``source_labels``, and for each target its
    number in the place of "source"; ``case`` and ``targets`` are names.
    """
    arrays: dict[str, NDArray[np.generic]] = {
        "case": np.array(case),
        "targets": np.array([target.name for target in outputs.targets]),
    }
    sets = {"source": outputs.source, **{str(number): target for number, target in enumerate(outputs.targets)}}
    for name, samples in sets.items():
        arrays[f"{name}_probabilities"] = probabilities(samples.logits).astype(np.float32)
        arrays[f"{name}_predictions"] = samples.predicted
        arrays[f"{name}_labels"] = samples.known_labels
    return arrays


def read_peer(path: Path) -> Peer:
    """A file such as benchmarks/nannyml_peer.py writes: an object with `row`, `estimates` and `seconds`.

    Raises:
        InputError: If it is something else.
    """
    document = parse_json(read_file(path, most=_MOST_BYTES))
    try:
        row = document["row"]
        estimates = {
            str(case): {str(target): float(value) for target, value in targets.items()}
            for case, targets in document["estimates"].items()
        }
        seconds = {str(case): float(value) for case, value in document.get("seconds", {}).items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _refused(path) from None
    if not isinstance(row, str) or not row:
        raise _refused(path)
    return Peer(row, estimates, seconds)


def _refused(path: Path) -> InputError:
    return InputError(f"{path}: must be an object with `row`, a name, and `estimates`, numbers by case and target.")
