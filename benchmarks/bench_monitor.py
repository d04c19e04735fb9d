"""How often does a monitor raise a false alarm, and how soon a true one? Beside the alerts of NannyML's CBPE.

Run: python -m benchmarks.bench_monitor --data DATA --nannyml nannyml-env/bin/python --cache CACHE. DATA has the set
`elec2` of docs/benchmark-of-shifts.md, `nannyml_alerts.py` says how to make the environment, whose package also holds
the other three sets, and CACHE is a folder that an interrupted run resumes from, to be removed when `projnorm/estimate`
changes. Writes results/bench_monitor.json and results/figures/monitor.png; half an hour on two cores. `--only speed`
replaces the speed alone in the record and needs no data; it is only of use where nothing else runs.

False alarms: a year is 52 weekly batches of 500 rows, drawn with replacement from one half of the labelled reference,
whose error e0 is known; the estimator is fitted to at most 5,000 rows of the other half, and the halves are drawn anew
for every year. The threshold e0 is the hardest for which there should be no alarm. Delays: from week 27 on, enough rows
come from a later part of the same data to raise the true error to e0 and five points; a delay of 1 is an alarm after
the first such week. Years with an earlier alarm are counted as false and left out of the delays; NannyML's alerts fall
back by themselves, so its first one from week 27 on counts, in all years. Only alerts of falling accuracy count. Last
come the later rows in their real order.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_monitor_figure import draw
from benchmarks.bench_monitor_sets import (
    HALF,
    LABELS_A_BATCH,
    RISE,
    ROWS,
    SMALL,
    STABLE_WEEKS,
    USUAL,
    Rated,
    has_kind,
    rated_sets,
)
from benchmarks.bench_monitor_speed import speed
from benchmarks.bench_monitor_summary import NANNYML, delays, described, false_alarms, order
from benchmarks.bench_monitor_years import (
    ALARMS,
    ALPHA,
    ORDER,
    Task,
    measured,
    require_agreement,
)
from benchmarks.harness import write_result
from figures.style import rendered
from projnorm.core.arrays import Arrays
from projnorm.core.backends import Backend
from projnorm.core.store import Store
from projnorm.core.tasks import run_tasks

RESULTS = Path(__file__).resolve().parent.parent / "results"
RECORD = "bench_monitor.json"
COMMAND = "python -m benchmarks.bench_monitor --data DATA --nannyml nannyml-env/bin/python --cache CACHE"
# Part of the years that is drawn with other sizes of the source.
_PARTS = {USUAL: 1.0, SMALL: 0.5, HALF: 0.2}
_YEARS_A_TASK = 10
_DIGITS = 4


def main(arguments: Sequence[str]) -> None:
    """Measure, print, save."""
    args = _arguments(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    path = args.out / RECORD
    result: dict[str, Any] = json.loads(path.read_text()) if args.only and path.exists() else {}
    # First, while this process is small.
    if args.only != "years":
        result["speed"] = speed(args.cache, args.hours)
    if args.only != "speed":
        result |= _alarms(args)
    result = json.loads(json.dumps(result), parse_float=lambda text: round(float(text), _DIGITS))
    result = {key: value for key, value in result.items() if key not in ("command", "environment")}
    _show(result)
    write_result(path, COMMAND, result)
    if args.only != "speed":
        (args.out / "figures").mkdir(parents=True, exist_ok=True)
        (args.out / "figures" / "monitor.png").write_bytes(rendered(draw(result), "png"))


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, help="folder with the data of the benchmark of shifts")
    parser.add_argument("--nannyml", type=Path, help="Python of the environment that has nannyml")
    parser.add_argument("--cache", type=Path, default=Path("projnorm-out/monitor"))
    parser.add_argument("--years", type=int, default=200, help="years of each set with the usual source")
    parser.add_argument("--hours", type=int, default=8_760, help="batches of the measurement of speed")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", choices=("years", "speed"))
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the record and of `figures`")
    args = parser.parse_args(arguments)
    if args.only != "speed" and (args.data is None or args.nannyml is None):
        parser.error("--data and --nannyml are needed")
    return args


def _alarms(args: argparse.Namespace) -> dict[str, Any]:
    """Everything but the speed."""
    packages = _output(args.nannyml, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    sets = rated_sets(args.data, packages)
    amounts = {kind: max(1, round(part * args.years)) for kind, part in _PARTS.items()}
    for data in sets.values():
        require_agreement(data, USUAL)
    ours = {name: _measured(data, amounts, args) for name, data in sets.items()}
    with ThreadPoolExecutor(args.workers) as pool:
        theirs = dict(zip(sets, pool.map(lambda data: _alerts(data, amounts, args), sets.values()), strict=True))
    return {
        "alpha": ALPHA,
        "weeks": STABLE_WEEKS,
        "rows": ROWS,
        "labels": LABELS_A_BATCH,
        "rise": RISE,
        "nannyml": next(iter(theirs.values()))["version"],
        "sets": {name: described(data, ours[name][USUAL], theirs[name]) for name, data in sets.items()},
        "false_alarms": [
            false_alarms(name, kind, arrays, theirs[name]["kinds"].get(kind))
            for name, by_kind in ours.items()
            for kind, arrays in by_kind.items()
            if kind != ORDER
        ],
        "delays": [delays(name, by_kind[USUAL], theirs[name]["kinds"][USUAL]) for name, by_kind in ours.items()],
        "real_order": {
            name: order(name, by_kind[ORDER], theirs[name]["kinds"][ORDER][0]) for name, by_kind in ours.items()
        },
    }


def _measured(data: Rated, amounts: dict[str, int], args: argparse.Namespace) -> dict[str, Arrays]:
    """Estimates and mistakes of all years by the kind of the source, and of the real order."""
    by_kind = {}
    for kind, amount in {**amounts, ORDER: 1}.items():
        if kind != ORDER and not has_kind(data, kind):
            continue
        numbers = [tuple(range(amount))[start : start + _YEARS_A_TASK] for start in range(0, amount, _YEARS_A_TASK)]
        tasks = [Task(data, kind, some) for some in numbers]
        store = Store(args.cache / f"{data.name} {kind} {amount}")
        parts = run_tasks(
            measured, tasks, store=store, backend=Backend(args.workers), description=f"{data.name}, {kind}"
        )
        joined = {key: np.concatenate([part[key] for part in parts]) for key in parts[0] if key != "n_source"}
        by_kind[kind] = {**joined, "n_source": parts[0]["n_source"]}
    return by_kind


def _alerts(data: Rated, amounts: dict[str, int], args: argparse.Namespace) -> dict[str, Any]:
    """What NannyML says of the same years; of small sources it would have two chunks and is not asked."""
    kinds = [kind for kind in (USUAL, HALF) if has_kind(data, kind)]
    stem = f"{data.name}-{args.years}"
    years, alerts = args.cache / f"{stem}-years.npz", args.cache / f"{stem}-alerts.json"
    if not alerts.exists():
        arrays = {**data.arrays(), "chunk": np.array(ROWS), "kinds": np.array([*kinds, ORDER])}
        for kind in (*kinds, ORDER):
            drawn = Task(data, kind, tuple(range(amounts.get(kind, 1)))).years
            arrays[f"{kind} source"] = np.stack([year.source for year in drawn]).astype(np.int32)
            arrays[f"{kind} batches"] = np.stack([year.batches.ravel() for year in drawn]).astype(np.int32)
        np.savez(years, **arrays)
        _output(args.nannyml, str(Path(__file__).with_name("nannyml_alerts.py")), str(years), str(alerts))
    return json.loads(alerts.read_text())


def _output(python: Path, *arguments: str) -> str:
    """What another Python prints; it has one thread and sees nothing of this one's packages."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    process = subprocess.run([python, *arguments], check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return process.stdout


def _show(result: dict[str, Any]) -> None:
    """Rows of Markdown."""
    for row in result.get("false_alarms", []):
        for alarms in row["alarms"]:
            cells = [
                f"{alarm} {100 * alarms[alarm]['share']:.1f} ±{100 * alarms[alarm]['standard_error']:.1f}"
                for alarm in ALARMS
            ]
            theirs = row.get(NANNYML)
            cells.append("" if theirs is None else f"NannyML {100 * theirs['share']:.1f}")
            room, missed = alarms["threshold_above_error"], row["estimate_minus_error"]
            shown = f"{100 * missed['mean']:+.2f}, {100 * missed['deviation_between_years']:.2f}"
            print(f"| {row['set']} | {row['n_source']} | {row['years']} | +{room:g} | {' | '.join(cells)} | {shown} |")
    for row in result.get("delays", []):
        for alarms, alarm in product(row["alarms"], ALARMS):
            print(f"| {row['set']} | +{alarms['threshold_above_error']:g} | {alarm} | {_delay_text(alarms[alarm])} |")
        print(f"| {row['set']} | | {NANNYML} | {_delay_text(row[NANNYML])} |", row["true_rise"], row["estimated_rise"])
    for name, row in result.get("real_order", {}).items():
        print(name, {key: value for key, value in row.items() if key != "by_batch"})
    print(result.get("speed"))


def _delay_text(shares: dict[str, Any]) -> str:
    return f"{shares['median']}, {shares['90th']} | never {shares['never']:.3f} | before {shares['false']['share']:.3f}"


if __name__ == "__main__":
    main(sys.argv[1:])
