"""Scores of methods on targets: as a run writes them, and the matrix that tables and figures are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deep.comparison.run_data import Samples
from projnorm.data.targets import Target


@dataclass(frozen=True, slots=True)
class TargetScores:
    """The scores of some methods on a target, as a run writes them.

    Attributes:
        target: Name of the target.
        family: Shift that made it.
        severity: Severity of the shift, 1 to 5; 0 where there is none.
        origin: "generated", "official", "clean", "given", "part" or "made".
        m: Number of its samples.
        error: True error of the evaluated network on it.
        scores: Score by method.
    """

    target: str
    family: str
    severity: int
    origin: str
    m: int
    error: float
    scores: Mapping[str, float]

    @classmethod
    def from_target(cls, target: Target[Samples], error: float, scores: Mapping[str, float]) -> TargetScores:
        """The scores on a target of a run."""
        return cls(target.name, target.family, target.severity, target.origin, len(target.samples), error, scores)


# What is known of each target: its array, the field of `TargetScores` that fills it, and its type.
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
        origins: Origin of each target, as in `TargetScores`.
        sizes: Number of samples of each target.
        errors: True error of the evaluated network on each target.
        methods: Names of the methods, one for each column of `values`.
        values: Scores, shape ``(t, methods)``.

    Examples:
        >>> clean = TargetScores("clean", "clean", 0, "clean", 100, 0.1, {"ConfScore": 0.2, "ATC": 0.1})
        >>> fog = TargetScores("fog-3", "fog", 3, "generated", 100, 0.4, {"ConfScore": 0.5, "ATC": 0.3})
        >>> scores = Scores.from_targets([clean, fog])
        >>> scores.methods, scores.values.tolist()
        (('ConfScore', 'ATC'), [[0.2, 0.1], [0.5, 0.3]])
        >>> scores.only(["ATC"]).values[:, 0].tolist()
        [0.1, 0.3]
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
    def from_targets(cls, parts: Iterable[TargetScores]) -> Scores:
        """Scores from parts in any order; targets and methods come in the order in which they first appear.

        A method that is still behind the others is left out, so that a table made meanwhile loses no target.
        """
        first: dict[str, TargetScores] = {}
        by_target: dict[str, dict[str, float]] = {}
        for part in parts:
            first.setdefault(part.target, part)
            by_target.setdefault(part.target, {}).update(part.scores)
        seen = Counter(method for scored in by_target.values() for method in scored)
        methods = tuple(method for method, count in seen.items() if count == max(seen.values()))
        complete = [name for name, scored in by_target.items() if set(methods) <= set(scored)] if methods else []
        facts: dict[str, Any] = {
            name: np.array([getattr(first[target], attribute) for target in complete], dtype=kind)
            for name, (attribute, kind) in _FACTS.items()
        }
        values = np.array([[by_target[target][method] for method in methods] for target in complete])
        return cls(**facts, methods=methods, values=values.reshape(len(complete), len(methods)))

    def only(self, methods: Sequence[str]) -> Scores:
        """The scores of these methods, in this order."""
        columns = [self.methods.index(method) for method in methods]
        return replace(self, methods=tuple(methods), values=self.values[:, columns])

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The arrays of a record."""
        facts = {name: getattr(self, name) for name in _FACTS}
        return {**facts, "methods": np.array(self.methods), "scores": self.values}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], *, methods: str = "methods") -> Scores:
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
