"""CBPE of NannyML on the outputs that `python -m benchmarks.shifts` stored, as a row of its leaderboard.

It runs in an environment of its own, with nothing of this project:

    python3 -m venv nannyml-env && nannyml-env/bin/pip install nannyml==0.13.1 statsmodels
    nannyml-env/bin/python benchmarks/nannyml_peer.py projnorm-out/runs/benchmark-outputs nannyml.json
    python -m benchmarks.shifts --peers nannyml.json

The reference is the labelled source of a case, and each target is one chunk. NannyML would report its use to a server
of its makers; that is switched off. Its package does not name statsmodels, which it imports.
"""

import argparse
import json
import logging
import os
import time
import warnings
from pathlib import Path
from typing import Any

import nannyml
import numpy as np
import pandas as pd

ROW = "NannyML CBPE"


def frame(arrays: dict[str, Any], name: str, *, binary: bool) -> pd.DataFrame:
    """A set as NannyML takes it; classes have names, as it joins them to the names of columns."""
    rows = arrays[f"{name}_probabilities"].astype(np.float64)
    labels, predictions = arrays[f"{name}_labels"], arrays[f"{name}_predictions"]
    if binary:
        return pd.DataFrame({"proba": rows[:, 1], "y_pred": predictions, "y_true": labels})
    columns = {f"proba_{number}": rows[:, number] for number in range(rows.shape[1])}
    return pd.DataFrame({**columns, "y_pred": predictions.astype(str), "y_true": labels.astype(str)})


def estimates(arrays: dict[str, Any]) -> tuple[dict[str, float], float]:
    """The estimated error of each target of a case, and the seconds per target."""
    classes = arrays["source_probabilities"].shape[1]
    binary = classes == 2
    started = time.perf_counter()
    estimator = nannyml.CBPE(
        problem_type="classification_binary" if binary else "classification_multiclass",
        y_pred_proba="proba" if binary else {str(number): f"proba_{number}" for number in range(classes)},
        y_pred="y_pred",
        y_true="y_true",
        metrics=["accuracy"],
        chunk_number=1,
    )
    estimator.fit(frame(arrays, "source", binary=binary))
    errors = {}
    for number, target in enumerate(arrays["targets"].tolist()):
        analysis = frame(arrays, str(number), binary=binary).drop(columns="y_true")
        result = estimator.estimate(analysis).filter(period="analysis").to_df()
        errors[target] = 1.0 - float(result[("accuracy", "value")].iloc[0])
    return errors, (time.perf_counter() - started) / len(errors)


def main() -> None:
    """Read every case of the folder and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("outputs", type=Path, help="folder benchmark-outputs of the benchmark")
    parser.add_argument("json", type=Path, help="file to write")
    options = parser.parse_args()
    os.environ["NML_DISABLE_USAGE_LOGGING"] = "1"
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    document: dict[str, Any] = {"row": ROW, "version": nannyml.__version__, "estimates": {}, "seconds": {}}
    for path in sorted(options.outputs.glob("*.npz")):
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        case = str(arrays["case"])
        try:
            document["estimates"][case], document["seconds"][case] = estimates(arrays)
        except Exception as error:  # noqa: BLE001 - NannyML may raise anything; the other cases go on
            print(f"{case}: {type(error).__name__}: {error}")
            continue
        print(f"{case}: {document['seconds'][case]:.2f} s per target")
    options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
