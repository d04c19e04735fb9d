"""What the records of experiments on networks say, as numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from deep.estimators.projnorm import ProjNorm
from deep.method_quality import DEFAULT, Difference, SizeQuality, difference, predictions, size_quality
from deep.runs import kernel_rows
from deep.scores import Scores
from projnorm.records import Record


@dataclass(frozen=True, slots=True)
class SmallSampleQualities:
    """Every method at every number of samples, and the default against the others.

    Attributes:
        qualities: Quality of every method, one entry for each size.
        differences: The default less ProjNorm and less the best other method, where both were computed.
    """

    qualities: dict[str, list[SizeQuality]]
    differences: list[Difference]

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
        if DEFAULT not in by_method:
            continue
        others = [method for method in by_method if method not in (DEFAULT, ProjNorm.name)]
        best = {
            max(others, key=lambda method: qualities[method][-1].r_squared.value),
            min(others, key=lambda method: qualities[method][-1].mae.value),
        }
        beaten = [method for method in (ProjNorm.name, *sorted(best)) if method in by_method]
        differences += [difference(by_method[DEFAULT], by_method[method], arrays) for method in beaten]
    return SmallSampleQualities(qualities, differences)


def run_scores(record: Record, folder: Path) -> Scores:
    """Scores of a finished run, with those of tangent kernels on the same targets if they were computed."""
    scores = Scores.of_arrays(record.arrays)
    rows = kernel_rows(folder)
    for method in dict.fromkeys(row.method for row in rows):
        scored = {row.target: row.score for row in rows if row.method == method}
        if set(scored) >= set(scores.targets.tolist()):
            column = [scored[target] for target in scores.targets.tolist()]
            values = np.column_stack([scores.values, column])
            scores = replace(scores, methods=(*scores.methods, method), values=values)
    return scores


def not_rising(scores: Scores) -> dict[str, list[float]]:
    """Families whose true error falls somewhere as the severity grows, with their errors by severity."""
    falling = {}
    for family in dict.fromkeys(scores.families.tolist()):
        members = np.flatnonzero(scores.families == family)
        errors = scores.errors[members[np.argsort(scores.severities[members])]]
        if len(set(scores.severities[members].tolist())) > 1 and np.any(np.diff(errors) < 0):
            falling[family] = errors.tolist()
    return falling
