"""Scores of methods on targets: rows as a run writes them, and the matrix that tables and figures are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deep.comparison.run_data import Samples
from projnorm.data.targets import Target


@dataclass(frozen=True, slots=True)
class Row:
    """The score of one method on one target of `m` samples, and the true error of the evaluated network there.

    The family is the shift that made the target; its severity is 1 to 5, or 0 where there is none. The origin is
    "generated", "official", "clean", "given", "part" or "made".
    """

    target: str
    family: str
    severity: int
    origin: str
    m: int
    error: float
    method: str
    score: float

    @classmethod
    def of(cls, target: Target[Samples], error: float, method: str, score: float) -> Row:
        """A row on a target."""
        m = len(target.samples)
        return cls(target.name, target.family, target.severity, target.origin, m, error, method, score)


# What is known of each target: its array, the field of a row that fills it, and its type.
_FACTS: dict[str, tuple[str, type]] = {
    "targets": ("target", str),
    "families": ("family", str),
    "severities": ("severity", int),
    "origins": ("origin", str),
    "sizes": ("m", int),
    "errors": ("error", float),
}


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Scores as a matrix: the methods that have seen the most targets, and those targets.

    Attributes:
        targets: Names of the targets, shape ``(t,)``.
        families: Family of each target.
        severities: Severity of each target.
        origins: Origin of each target, as in `Row`.
        sizes: Number of samples of each target.
        errors: True error of the evaluated network on each target.
        methods: Names of the methods, one for each column of `values`.
        values: Scores, shape ``(t, methods)``.
    """

    targets: np.ndarray
    families: np.ndarray
    severities: np.ndarray
    origins: np.ndarray
    sizes: np.ndarray
    errors: np.ndarray
    methods: tuple[str, ...]
    values: np.ndarray

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Scores:
        """Scores from rows in any order; targets and methods come in the order in which they first appear.

        A method that is still behind the others is left out, so that a table made meanwhile loses no target.
        """
        rows = list(rows)
        seen = Counter(row.method for row in rows)
        methods = tuple(method for method, count in seen.items() if count == max(seen.values()))
        by_target: dict[str, dict[str, Row]] = {}
        for row in rows:
            if row.method in methods:
                by_target.setdefault(row.target, {})[row.method] = row
        complete = [scored for scored in by_target.values() if len(scored) == len(methods)]
        first = [next(iter(scored.values())) for scored in complete]
        facts: dict[str, Any] = {
            name: np.array([getattr(row, one) for row in first], dtype=kind) for name, (one, kind) in _FACTS.items()
        }
        values = np.array([[scored[m].score for m in methods] for scored in complete]).reshape(len(first), len(methods))
        return cls(**facts, methods=methods, values=values)

    def only(self, methods: Sequence[str]) -> Scores:
        """The scores of these methods, in this order."""
        columns = [self.methods.index(method) for method in methods]
        return replace(self, methods=tuple(methods), values=self.values[:, columns])

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The arrays of a record."""
        facts = {name: getattr(self, name) for name in _FACTS}
        return {**facts, "methods": np.array(self.methods), "scores": self.values}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray], *, methods: str = "methods") -> Scores:
        """Scores from the arrays of a record, whose columns `methods` names."""
        facts: dict[str, Any] = {name: arrays[name] for name in _FACTS}
        return cls(**facts, methods=tuple(arrays[methods].tolist()), values=arrays["scores"])


def not_rising(scores: Scores) -> dict[str, list[float]]:
    """Families whose true error falls somewhere as the severity grows, with their errors by severity."""
    falling = {}
    for family in dict.fromkeys(scores.families.tolist()):
        members = np.flatnonzero(scores.families == family)
        errors = scores.errors[members[np.argsort(scores.severities[members])]]
        if len(set(scores.severities[members].tolist())) > 1 and np.any(np.diff(errors) < 0):
            falling[family] = errors.tolist()
    return falling


MEANINGS = {
    "targets": "name of each target set",
    "families": "shift that made it; 'clean' for the test set, 'given' for a set from a file",
    "severities": "severity of the shift, 1 to 5; 0 where there is none",
    "origins": "'generated' here, 'official' files of CIFAR-C, 'clean', 'given', 'part' of a set, 'made' of templates",
    "sizes": "number of samples in it",
    "errors": "true error of the evaluated network on it",
    "methods": "name of each method",
    "scores": "score of each method on each target, one column for each method",
}
