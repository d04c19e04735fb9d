"""The table of docs/which-method.md: every method on all and on few samples of each target, with its cost.

Run: python -m benchmarks.which_method RUN SMALL_SAMPLES OUT.json, with the folders of the records of `projnorm deep run
... --methods all` and of `python -m benchmarks.studies.small_samples` on it. Prints rows of Markdown.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np

from benchmarks.harness import write_result
from benchmarks.studies.method_quality import SizeQuality, predictions, size_quality, smallest_size
from figures.table import number
from projnorm.core.records import load_record

FEW = 100
# Forward passes over a target, where it is not one: training counts as three, and ProjNorm sees its samples twice.
PASSES = {"GDE": "2", "Rotation": "4", "ProjNorm": "7", "Dis2": "1, and critics"}


def main(run: Path, small: Path, out: Path) -> None:
    """Join, print, save."""
    arrays = load_record(small.parent, small.name).arrays
    by_size = {
        size: {method: size_quality(predicted, arrays) for method, predicted in predictions(arrays, size).items()}
        for size in arrays["sizes"].tolist()
    }
    whole = max(by_size)
    known = {**_on_all(run, whole), **by_size[whole]}
    known.pop("AgreeScore", None)  # it is GDE
    rows = []
    for method, full in sorted(known.items(), key=lambda item: -item[1].r_squared.value):
        few = by_size[FEW].get(method)
        sizes = [qualities[method] for qualities in by_size.values() if method in qualities]
        needs = smallest_size(sizes) if len(sizes) == len(by_size) else None
        rows.append({"method": method, "all": asdict(full), "few": few and asdict(few), "needs": needs})
        print(_row(method, full, few, needs))
    result = {"run": run.name, "small_samples": small.name, "m": whole, "few": FEW, "rows": rows}
    write_result(out, "python -m benchmarks.which_method RUN SMALL_SAMPLES OUT.json", result)


def _on_all(run: Path, size: int) -> dict[str, SizeQuality]:
    """The methods of a run, as if all samples of each target were one draw of them."""
    arrays = load_record(run.parent, run.name).arrays
    seen = {
        **{key: arrays[key] for key in ("errors", "families", "methods")},
        "sizes": np.array([size]),
        "scores": arrays["scores"][:, None, None, :],
    }
    return {method: size_quality(predicted, seen) for method, predicted in predictions(seen, size).items()}


def _row(method: str, full: SizeQuality, few: SizeQuality | None, needs: int | None) -> str:
    held = few or full
    cells = (
        method,
        PASSES.get(method, "1"),
        f"{full.r_squared.value:.3f}, {100 * full.mae.value:.1f}",
        "" if few is None else f"{number('r_squared')(few)}, {100 * few.mae.value:.1f}",
        f"{number('coverage', '.2f')(held)}, {100 * held.width:.0f}{'' if few else ' on all'}",
        "" if needs is None else f"{needs:,}" if needs else "more",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
