"""Which layers of a network make ProjNorm follow the error: the squared distance of each part, and its R^2.

Run: python -m benchmarks.layer_contributions RECORDS OUT.json [RUN], on a finished comparison with ProjNorm.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from benchmarks.harness import write_result
from deep.comparison.config import kind_of
from deep.comparison.runs import open_run
from projnorm.core.errors import InputError
from projnorm.core.records import find_record
from projnorm.core.statistics import fit_quality


def main(arguments: list[str]) -> None:
    """Sum over the parameters of each part of the network, print, save."""
    root, out, *name = arguments
    run = open_run(Path(root), *name)
    record = find_record(Path(root), kind_of(run.config), run.config)
    if record is None or not len(record.arrays["layers"]):
        raise InputError(f"{run.name} is not finished, or has no ProjNorm.")
    squares, errors = record.arrays["layer_contributions"], record.arrays["errors"]
    total = squares.sum(axis=1)
    parts = np.array([str(layer).split(".")[0] for layer in record.arrays["layers"]])
    rows = {}
    for part in dict.fromkeys(parts.tolist()):
        own = squares[:, parts == part].sum(axis=1)
        r_squared = fit_quality(np.sqrt(own), errors).r_squared
        rows[part] = {"share_of_the_square": float(np.mean(own / total)), "r_squared": r_squared}
        print(f"{part:10s} {rows[part]}")
    clean = float(total[0] / np.median(total))
    result = {"run": run.name, "clean_square_over_median": clean, "parts": rows}
    write_result(Path(out), "python -m benchmarks.layer_contributions RECORDS OUT.json [RUN]", result)


if __name__ == "__main__":
    main(sys.argv[1:])
