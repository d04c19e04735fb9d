"""What the default of `projnorm predict` is made of: every subset of the best six methods, by left-out error.

Run: python benchmarks/choose_default.py RECORD [OUT.json], where RECORD is the folder of a record of `projnorm deep
small-samples` on digits. The default was chosen there and is reported on CIFAR-10, see docs/which-method.md.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
from harness import write_result

from deep.calibration import left_out_predictions
from deep.ensemble import Stack, signs
from deep.estimate.error_estimator import CALIBRATED
from projnorm.records import load_record

POOL = ("COT", "COTT", "NuclearNorm", "MI", "FeatureShift", "ProjNormLinear")
SHOWN = 10


def main(folder: Path, out: Path) -> None:
    """Rank, print, save."""
    record = load_record(folder.parent, folder.name)
    arrays = record.arrays
    names, errors, families = arrays["methods"].tolist(), arrays["errors"], arrays["families"]
    found = {}
    for count in range(1, len(POOL) + 1):
        for subset in itertools.combinations(POOL, count):
            columns = [names.index(method) for method in subset]
            scores = arrays["scores"][..., columns] * signs(subset)
            found[subset] = [
                float(np.mean([_mae(scores[:, size, draw], errors, families) for draw in range(scores.shape[2])]))
                for size in range(len(arrays["sizes"]))
            ]
    ranked = sorted(found.items(), key=lambda item: float(np.mean(item[1])))
    rows = [
        {"methods": list(subset), "mae": float(np.mean(values)), "by_size": values, "is_default": subset == CALIBRATED}
        for subset, values in ranked
    ]
    for row in rows[:SHOWN]:
        print(f"{100 * row['mae']:.3f}", [round(100 * value, 2) for value in row["by_size"]], *row["methods"])
    result = {
        "record": record.id,
        "run": record.facts["run"],
        "sizes": arrays["sizes"].tolist(),
        "subsets": rows[:SHOWN],
    }
    write_result(out, "python benchmarks/choose_default.py RECORD", result)


def _mae(scores: np.ndarray, errors: np.ndarray, families: np.ndarray) -> float:
    return float(np.abs(left_out_predictions(scores, errors, families, Stack.fitted) - errors).mean())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else "results/default_choice.json"))
