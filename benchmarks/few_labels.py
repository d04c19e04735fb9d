"""Do intervals from a few labels hold, and how many uniform labels is one chosen label worth?

Run: python -m benchmarks.few_labels DATA IMAGES WEIGHTS CACHE. DATA has the sets of docs/benchmark-of-shifts.md, IMAGES
and WEIGHTS are those of its `cifar10`, and CACHE is a folder that an interrupted run resumes from, to be removed when
`projnorm/labels` changes. Writes results/few_labels.json and results/figures/few_labels.png; an hour and a half on two
busy cores. `pip install ppi-python==0.2.3` adds the row of its `ppi_mean_ci`.

Of every target the samples and their strata are fixed, and only the draw of labels changes. Draws are shared out evenly
among the targets of a set, which `few_labels_sets.py` describes. Coverage is the share of draws whose 90 % interval has
the true error of the target; widths of intervals that take long are from a part of the draws. What a label is worth is
the mean squared error of the mean of uniform labels over that of the estimate, at the same number of labels and on one
target; it is exact for the stratified estimate, and from draws for the others. A path is 500 labels, one after the
other, and is missed if the interval ever lacks the true error; uniform ones are looked at from the 10th label on.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.few_labels_draws import (
    BUDGETS,
    HAS_PPI,
    LEVEL,
    PATHS,
    PPI,
    QUICK,
    SLOW,
    WORTHS,
    Amount,
    Task,
    measured,
)
from benchmarks.few_labels_figure import draw
from benchmarks.few_labels_sets import REPORTED, SETS, targets_of
from benchmarks.harness import write_result
from benchmarks.shifts.problems import Places
from figures.style import rendered
from projnorm.core.arrays import Arrays
from projnorm.core.backends import Backend
from projnorm.core.store import Store, digest
from projnorm.core.tasks import run_tasks
from projnorm.estimators.softmax import Floats

RESULTS = Path(__file__).resolve().parent.parent / "results"
_DIGITS = 4
_ROUNDING = 1e-9


def main(arguments: Sequence[str]) -> None:
    """Draw, summarise, print, save."""
    args = _arguments(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    places = Places(args.data, "", str(args.images), str(args.weights), args.cache)
    amount = Amount.for_draws(args.draws)
    by_set = {name: _measured(name, places, amount, args.workers) for name in args.sets}
    rows = [_row(name, budget, by_set[name]) for name, budget in product(args.sets, range(len(BUDGETS)))]
    result = {
        "level": LEVEL,
        "amount": {name: getattr(amount, name) for name in amount.__slots__},
        "ppi_python": HAS_PPI,
        "sets": {name: _described(draws) for name, draws in by_set.items()},
        "rows": rows,
        "worth_over_sets": [_worth_over_sets(rows, budget) for budget in BUDGETS],
        "paths": {name: _paths(draws) for name, draws in by_set.items()},
    }
    result = json.loads(json.dumps(result), parse_float=lambda text: round(float(text), _DIGITS))
    _show(result)
    write_result(args.out / "few_labels.json", "python -m benchmarks.few_labels DATA IMAGES WEIGHTS CACHE", result)
    (args.out / "figures").mkdir(parents=True, exist_ok=True)
    (args.out / "figures" / "few_labels.png").write_bytes(rendered(draw(result), "png"))


def _measured(name: str, places: Places, amount: Amount, workers: int) -> list[Arrays]:
    """What was drawn from every target of a set; what an earlier run stored is read."""
    targets = targets_of(name, places, Store(places.cache / "targets"))
    tasks = [Task(target, number, len(targets), amount) for number, target in enumerate(targets)]
    store = Store(places.cache / f"draws-{name}-{digest([task.identity for task in tasks])}")
    return run_tasks(measured, tasks, store=store, backend=Backend(workers), description=name)


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    for name in ("data", "images", "weights", "cache"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--draws", type=int, default=1_000, help="draws for each set and number of labels, and paths")
    parser.add_argument("--sets", nargs="+", choices=tuple(SETS), default=REPORTED)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the record and of `figures`")
    return parser.parse_args(arguments)


def _row(name: str, budget: int, draws: Sequence[Arrays]) -> dict[str, Any]:
    """Every method on one set with one number of labels."""
    quick, slow, holds = (np.concatenate([draw[key][budget] for draw in draws]) for key in ("quick", "slow", "holds"))
    truths = {
        key: np.concatenate([np.full(draw[key].shape[1], draw["truth"]) for draw in draws]) for key in ("quick", "slow")
    }
    methods = {method: _quality(slow[:, column], truths["slow"]) for column, method in enumerate(SLOW)}
    methods |= {method: _quality(quick[:, column], truths["quick"]) for column, method in enumerate(QUICK)}
    rmse = float(np.sqrt(np.mean((holds[:, -1] - truths["quick"]) ** 2)))
    for column, method in enumerate(SLOW):
        of_test = np.concatenate([draw["holds"][budget][: draw["slow"].shape[1], column] for draw in draws])
        computed = np.isfinite(slow[:, column, 0])
        of_interval = _holds(slow[computed, column], truths["slow"][computed])
        differs = float(np.mean(of_test[computed] != of_interval))
        methods[method] |= {**_coverage(holds[:, column] == 1.0), "rmse": rmse, "test_differs": differs}
    worth = np.array([draw["worth"][budget] for draw in draws])
    quartiles = {
        kind: [float(quantile) for quantile in np.quantile(worth[:, column], (0.5, 0.25, 0.75))]
        for column, kind in enumerate(WORTHS)
    }
    if not HAS_PPI:
        methods.pop(PPI)
        quartiles.pop(PPI)
    return {"set": name, "labels": BUDGETS[budget], "methods": methods, "worth": quartiles}


def _quality(intervals: Floats, truth: Floats) -> dict[str, Any]:
    """Coverage with its standard error, median width, and root of the mean squared error of the estimate."""
    known = np.isfinite(intervals).all(axis=1)
    intervals, truth = intervals[known], truth[known]
    error, low, high = intervals.T
    return {
        **_coverage(_holds(intervals, truth)),
        "width": float(np.median(high - low)),
        "rmse": float(np.sqrt(np.mean((error - truth) ** 2))),
    }


def _holds(intervals: Floats, truth: Floats) -> NDArray[np.bool_]:
    _, low, high = intervals.T
    return (low - _ROUNDING <= truth) & (truth <= high + _ROUNDING)


def _coverage(holds: NDArray[np.bool_]) -> dict[str, Any]:
    share = float(holds.mean())
    return {"draws": len(holds), "coverage": share, "standard_error": float(np.sqrt(share * (1 - share) / len(holds)))}


def _worth_over_sets(rows: Sequence[dict[str, Any]], budget: int) -> dict[str, Any]:
    """Median over sets of the medians over targets."""
    chosen = [row["worth"] for row in rows if row["labels"] == budget]
    return {"labels": budget, **{kind: float(np.median([row[kind][0] for row in chosen])) for kind in chosen[0]}}


def _described(draws: Sequence[Arrays]) -> dict[str, Any]:
    """True errors of a set, and how far the answer without labels is from them."""
    truth, free = (np.array([float(draw[key]) for draw in draws]) for key in ("truth", "label_free"))
    return {
        "targets": len(draws),
        "errors": [float(np.quantile(truth, q)) for q in (0.0, 0.5, 1.0)],
        "rmse_without_labels": float(np.sqrt(np.mean((free - truth) ** 2))),
    }


def _paths(draws: Sequence[Arrays]) -> dict[str, Any]:
    """Share of the paths that each kind of interval misses."""
    missed = np.concatenate([draw["paths"] for draw in draws])
    shares = {}
    for column, kind in enumerate(PATHS):
        known = missed[np.isfinite(missed[:, column]), column]
        share = float(known.mean()) if len(known) else None
        error = None if share is None else float(np.sqrt(share * (1.0 - share) / len(known)))
        shares[kind] = {"paths": len(known), "missed": share, "standard_error": error}
    return shares


def _show(result: dict[str, Any]) -> None:
    """Rows of Markdown: coverage and width and RMSE in points by method, the worth of a label, missed paths."""
    for row in result["rows"]:
        cells = [
            f"{method}: {quality['coverage']:.3f}, {100 * quality['width']:.1f}, {100 * quality['rmse']:.1f}"
            for method, quality in row["methods"].items()
        ]
        worth = ", ".join(f"{kind} {values[0]:.2f}" for kind, values in row["worth"].items())
        print(f"| {row['set']} | {row['labels']} | {' | '.join(cells)} | worth: {worth} |")
    for worth_of_label in result["worth_over_sets"]:
        print("worth over sets:", worth_of_label)
    for name, paths in result["paths"].items():
        shown = ", ".join(f"{kind} {share['missed']} of {share['paths']}" for kind, share in paths.items())
        print(f"missed paths, {name}: {shown}")
    for name, errors in result["sets"].items():
        print(name, errors)


if __name__ == "__main__":
    main(sys.argv[1:])
