"""How well warnings separate ranges that miss from those that hold, with thresholds chosen without the suite.

Run: python -m benchmarks.warning_rules projnorm-out/runs; reads what `python -m benchmarks.shifts` stored there and
writes results/warning_rules.json. The mode is the default from outputs only.

The conditions are those of `projnorm.estimate.warnings`. Each suite is left out in turn, the thresholds are those that
make "misses warned of less 0.3 times hits warned of" largest on the other suites, and they are applied to the suite.
The conditions themselves, the factor 1.5 and the 15 samples of a class were chosen while looking at all suites.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.harness import write_result
from benchmarks.shifts.evaluate import OUTPUTS_ONLY
from projnorm.estimate.hypotheses import Assessment, HypothesisTests
from projnorm.estimators.scaling import Scaling
from projnorm.estimators.shift_test import MOST_CLASSES
from projnorm.outputs.outputs import Outputs

RESULTS = Path(__file__).resolve().parent.parent / "results"
# What a warning of a range that holds costs, in misses that are warned of.
COST = 0.3
DISTANCES, RESOLUTIONS = (0.25, 0.3, 0.35, 0.4, 0.45, 0.5), (0.35, 0.45, 0.5, 0.6, 0.7)
PARTS = (0.6, 0.65, 0.7, 0.75, 0.8, 0.85)
LESS_SURE, FEWEST_PER_CLASS = 1.5, 15

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class WarnedTarget:
    """What the outputs of a target say, and whether its range missed and was warned of."""

    suite: str
    assessment: Assessment
    n: int
    missed: bool
    warned: bool


def main(runs: Path) -> None:
    """Read, choose, print, save."""
    targets = [target for path in sorted((runs / "benchmark-outputs").glob("*.npz")) for target in _targets(runs, path)]
    suites = np.array([target.suite for target in targets])
    missed = np.array([target.missed for target in targets])
    everywhere = np.ones(len(targets), dtype=bool)
    left_out, by_suite = np.zeros_like(everywhere), []
    rules = _rules(targets)
    for suite in sorted(set(suites.tolist())):
        inside = suites == suite
        thresholds, warned = _chosen(rules, missed, ~inside)
        left_out[inside] = warned[inside]
        by_suite.append({"suite": suite, "thresholds": thresholds, **_rates(left_out, missed, inside)})
    result = {
        "cost": COST,
        "as_shipped": _rates(np.array([target.warned for target in targets]), missed, everywhere),
        "chosen_on_all": {"thresholds": _chosen(rules, missed, everywhere)[0]},
        "suite_left_out": _rates(left_out, missed, everywhere),
        "by_suite": by_suite,
    }
    write_result(RESULTS / "warning_rules.json", "python -m benchmarks.warning_rules RUNS", result)
    for name in ("as_shipped", "chosen_on_all", "suite_left_out"):
        print(name, result[name])
    for row in by_suite:
        print(row)


def _targets(runs: Path, path: Path) -> list[WarnedTarget]:
    """The targets of a case."""
    with np.load(path, allow_pickle=False) as file:
        outputs = dict(file)
    case = str(outputs["case"])
    (stored,) = (runs / "benchmark-answers").glob(f"{case}-????????????-*.npz")
    with np.load(stored, allow_pickle=False) as file:
        answers = dict(file)
    row = answers["rows"].tolist().index(OUTPUTS_ONLY)
    low, high, warned = (answers[name][:, row] for name in ("low", "high", "warned"))
    source = _outputs(outputs, "source")
    scaling = Scaling.fit(source)
    tests = HypothesisTests.fit(scaling(source), source)
    targets = []
    for number, truth in enumerate(answers["truth"].tolist()):
        raw = _outputs(outputs, str(number)).without_labels()
        missed = not low[number] <= truth <= high[number]
        suite = str(answers["suites"][number])
        targets.append(
            WarnedTarget(suite, tests.assess(scaling(raw), raw), len(source), missed, warned=bool(warned[number]))
        )
    return targets


def _outputs(arrays: dict[str, NDArray[np.generic]], name: str) -> Outputs:
    keys = ("probabilities", "predictions", "labels")
    return Outputs.from_arrays({key: arrays[f"{name}_{key}"] for key in keys}, name)


def _rules(targets: list[WarnedTarget]) -> list[dict[tuple[float, ...], Flags]]:
    """For each condition, what it warns of by its thresholds."""
    a = [target.assessment for target in targets]
    n = np.array([target.n for target in targets])
    classes = np.array([len(assessment.shares) for assessment in a])
    changed = ~np.array([assessment.accepts_no_shift for assessment in a])
    inputs = ~np.array([assessment.accepts_class_shares for assessment in a])
    names = ("distance", "resolution", "cot", "source_error", "confidence_error", "predicted_distance")
    distance, resolution, cot, error, confidence, moved = (
        np.array([getattr(assessment, name) for assessment in a]) for name in names
    )
    less_sure = inputs & (classes > 2) & (confidence > LESS_SURE * error)
    return [
        {(t, r): changed & (distance > t) & (resolution < r) for t, r in product(DISTANCES, RESOLUTIONS)},
        {(part,): less_sure & (moved < part * cot) for part in PARTS},
        {(): changed & (cot < error)},
        {(): (classes <= MOST_CLASSES) & (n < FEWEST_PER_CLASS * classes)},
    ]


def _chosen(
    rules: list[dict[tuple[float, ...], Flags]], missed: Flags, known: Flags
) -> tuple[list[tuple[float, ...]], Flags]:
    """The thresholds of each condition that are best on known targets, and what they warn of."""

    def worth(warned: Flags) -> float:
        return float(np.sum(warned & missed & known) - COST * np.sum(warned & ~missed & known))

    best = [max(rule.items(), key=lambda item: worth(item[1])) for rule in rules]
    return [thresholds for thresholds, _ in best if thresholds], np.any([warned for _, warned in best], axis=0)


def _rates(warned: Flags, missed: Flags, chosen: Flags) -> dict[str, object]:
    """Misses and hits, and how many of both are warned of."""
    counts = {"misses": missed & chosen, "hits": ~missed & chosen}
    rates: dict[str, object] = {}
    for name, counted in counts.items():
        total, n_warned = int(counted.sum()), int(np.sum(counted & warned))
        share = n_warned / total if total else None
        rates |= {name: total, f"{name}_warned": n_warned, f"share_of_{name}_warned": share}
    return rates


if __name__ == "__main__":
    with threadpool_limits(1):
        main(Path(sys.argv[1]))
