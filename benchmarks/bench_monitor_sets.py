"""Data and resampled years for `bench_monitor.py`: rows of labelled outputs, and which of them a year is made of.

- "loans", "cards", "employment": NannyML's sets with the outputs of its models; the reference, then the analysis part.
- "elec2": electricity prices over time, gradient boosting trained on the first of them; the reference is the labelled
  part of the first two blocks that it was not trained on, and the twelve later blocks follow.

For every year the reference is split anew into two halves at random. The source is drawn from the one, and the other is
the population of the stable weeks, whose error is therefore known. The weeks after the rise mix it with rows of that
later part, of twelve or twenty, which has the highest error.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.shifts.given_outputs import NANNYML_SETS, nannyml_rows
from benchmarks.shifts.models import BOOSTING, fitted
from benchmarks.shifts.problems import MOST_SOURCE, Places
from benchmarks.shifts.tables import elec2
from projnorm.outputs.outputs import LABELS, PREDICTIONS, PROBABILITIES, Outputs

ELEC2 = "elec2"
SETS = (*NANNYML_SETS, ELEC2)
STABLE_WEEKS, RISEN_WEEKS, ROWS, LABELS_A_BATCH = 52, 26, 500, 50
# The rise of the true error, and the last week before it.
RISE, LAST_QUIET_WEEK = 0.05, STABLE_WEEKS - RISEN_WEEKS
SMALL, USUAL, HALF = "small source", "usual source", "half of the reference"
# Largest number of labelled samples of the source; 0 for all of its half.
SOURCES = {SMALL: 1_000, USUAL: MOST_SOURCE, HALF: 0}
_LATER_PARTS = 20

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Rated:
    """Labelled outputs in the order of time.

    Attributes:
        name: Name of the set.
        outputs: All rows, the reference first.
        n_reference: Number of rows of the reference.
        shifted: Rows of the later part that has the highest error.
        shifted_name: Name of that part.
    """

    name: str
    outputs: Outputs
    n_reference: int
    shifted: Rows
    shifted_name: str

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """Whether each prediction is wrong."""
        return self.outputs.predicted != self.outputs.known_labels

    @property
    def later(self) -> Rows:
        """Rows after the reference, as many as fill whole batches."""
        count = (len(self.outputs) - self.n_reference) // ROWS * ROWS
        return self.n_reference + np.arange(count)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The outputs as plain arrays, for an environment without this package."""
        logits = self.outputs.logits
        rows = np.exp(logits - logits.max(axis=1, keepdims=True))
        return {
            PROBABILITIES: rows / rows.sum(axis=1, keepdims=True),
            PREDICTIONS: self.outputs.predicted,
            LABELS: self.outputs.known_labels,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Year:
    """Which rows a year is made of.

    Attributes:
        source: Rows of the source.
        error: True error of the stable weeks.
        shifted_share: Share of shifted rows after the rise.
        batches: Rows of each batch, shape ``(78, 500)``: 52 stable weeks, then 26 that are mixed with shifted rows.
        labelled: Places in each batch of the samples that have labels, shape ``(78, 50)``.
    """

    source: Rows
    error: float
    shifted_share: float
    batches: Rows
    labelled: Rows


def rated_sets(data: Path, packages: str) -> dict[str, Rated]:
    """All sets."""
    places = Places(data, packages, "", "", data)
    sets = {name: _nannyml(places, name) for name in NANNYML_SETS}
    return {**sets, ELEC2: _elec2(places)}


def year_of(data: Rated, kind: str, number: int) -> Year:
    """A year with a source of this kind."""
    rng = np.random.default_rng([zlib.crc32(f"{data.name} {kind}".encode()), number])
    order, wrong = rng.permutation(data.n_reference), data.wrong
    first, population = np.array_split(order, 2)
    source = np.sort(first[: SOURCES[kind] or len(first)])
    error = float(wrong[population].mean())
    share = min(1.0, RISE / (float(wrong[data.shifted].mean()) - error))
    stable, quiet = (rng.choice(population, (weeks, ROWS)) for weeks in (STABLE_WEEKS, RISEN_WEEKS))
    is_shifted = rng.random(quiet.shape) < share
    risen = np.where(is_shifted, rng.choice(data.shifted, quiet.shape), quiet)
    return Year(source, error, share, np.concatenate([stable, risen]), _labelled(STABLE_WEEKS + RISEN_WEEKS, rng))


def real_order(data: Rated) -> Year:
    """The later rows as they came, with a source that is drawn from all of the reference; no error is known."""
    rng = np.random.default_rng(zlib.crc32(data.name.encode()))
    source = np.sort(rng.choice(data.n_reference, min(MOST_SOURCE, data.n_reference), replace=False))
    batches = data.later.reshape(-1, ROWS)
    return Year(source, np.nan, np.nan, batches, _labelled(len(batches), rng))


def has_kind(data: Rated, kind: str) -> bool:
    """Whether a source of this kind is another one than the usual."""
    return kind == USUAL or data.n_reference // 2 > SOURCES[USUAL]


def _labelled(batches: int, rng: np.random.Generator) -> Rows:
    return np.stack([rng.choice(ROWS, LABELS_A_BATCH, replace=False) for _ in range(batches)])


def _nannyml(places: Places, name: str) -> Rated:
    parts = [nannyml_rows(places, name, part) for part in ("reference", "analysis")]
    outputs = Outputs.from_arrays({key: np.concatenate([part[key] for part in parts]) for key in parts[0]}, name)
    n_reference = len(parts[0][LABELS])
    chunks = np.array_split(np.arange(n_reference, len(outputs)), _LATER_PARTS)
    return _rated(name, outputs, n_reference, chunks, [f"chunk {i} of {_LATER_PARTS}" for i in range(1, 21)])


def _elec2(places: Places) -> Rated:
    problem = elec2(places, "", np.random.default_rng(0))
    with threadpool_limits(1):
        given_outputs = fitted(BOOSTING, problem, places, 0).outputs_on(problem)
    parts = [given_outputs.source, *given_outputs.targets]
    outputs = Outputs(
        np.concatenate([part.logits for part in parts]),
        labels=np.concatenate([part.known_labels for part in parts]),
        name=ELEC2,
    )
    ends = np.cumsum([len(part) for part in parts])
    blocks = [np.arange(start, end) for start, end in pairwise(ends)]
    return _rated(ELEC2, outputs, len(given_outputs.source), blocks, [target.name for target in given_outputs.targets])


def _rated(name: str, outputs: Outputs, n_reference: int, parts: Sequence[Rows], names: Sequence[str]) -> Rated:
    wrong = outputs.predicted != outputs.known_labels
    worst = int(np.argmax([wrong[part].mean() for part in parts]))
    return Rated(name, outputs, n_reference, parts[worst], names[worst])
