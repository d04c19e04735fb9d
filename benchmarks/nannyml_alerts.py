"""Alerts of NannyML's CBPE on the years that `bench_monitor.py` stored, in an environment of its own.

    python3 -m venv nannyml-env && nannyml-env/bin/pip install nannyml==0.13.1 statsmodels
    nannyml-env/bin/python benchmarks/nannyml_alerts.py years.npz alerts.json

`bench_monitor.py` calls it so. The reference is the labelled source, both it and the weeks are cut into chunks of 500
rows, the metric is the accuracy, and thresholds are those of the default: three standard deviations of the accuracy of
the reference chunks. NannyML would report its use to a server of its makers; that is switched off.
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

_DIGITS = 5


def frame(arrays: dict[str, Any]) -> pd.DataFrame:
    """All rows as NannyML takes them; classes have names, as it joins them to the names of columns."""
    rows, labels, predictions = (arrays[name] for name in ("probabilities", "labels", "predictions"))
    if rows.shape[1] == 2:
        return pd.DataFrame({"proba": rows[:, 1], "y_pred": predictions, "y_true": labels})
    columns = {f"proba_{number}": rows[:, number] for number in range(rows.shape[1])}
    return pd.DataFrame({**columns, "y_pred": predictions.astype(str), "y_true": labels.astype(str)})


def watched(reference: pd.DataFrame, later: pd.DataFrame, chunk: int) -> dict[str, Any]:
    """Estimated accuracy of each chunk, and the thresholds."""
    binary = "proba" in reference.columns
    classes = sum(name.startswith("proba_") for name in reference.columns)
    estimator = nannyml.CBPE(
        problem_type="classification_binary" if binary else "classification_multiclass",
        y_pred_proba="proba" if binary else {str(number): f"proba_{number}" for number in range(classes)},
        y_pred="y_pred",
        y_true="y_true",
        metrics=["accuracy"],
        chunk_size=chunk,
    )
    estimator.fit(reference)
    estimated = estimator.estimate(later.drop(columns="y_true")).filter(period="analysis").to_df()["accuracy"]
    ends = [estimated[name].iloc[0] for name in ("lower_threshold", "upper_threshold")]
    return {
        "accuracy": [round(float(accuracy), _DIGITS) for accuracy in estimated["value"]],
        "thresholds": [None if end is None else round(float(end), _DIGITS) for end in ends],
    }


def main() -> None:
    """Read the years of every kind of source and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("years", type=Path, help="file of bench_monitor.py")
    parser.add_argument("json", type=Path, help="file to write")
    options = parser.parse_args()
    os.environ["NML_DISABLE_USAGE_LOGGING"] = "1"
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    with np.load(options.years, allow_pickle=False) as file:
        arrays = dict(file)
    rows, chunk = frame(arrays), int(arrays["chunk"])
    document: dict[str, Any] = {"version": nannyml.__version__, "kinds": {}, "seconds": {}}
    for kind in arrays["kinds"].tolist():
        started = time.process_time()
        document["kinds"][kind] = [
            watched(rows.iloc[source].reset_index(drop=True), rows.iloc[batches].reset_index(drop=True), chunk)
            for source, batches in zip(arrays[f"{kind} source"], arrays[f"{kind} batches"], strict=True)
        ]
        document["seconds"][kind] = round((time.process_time() - started) / len(arrays[f"{kind} source"]), 3)
    options.json.write_text(json.dumps(document) + "\n")


if __name__ == "__main__":
    main()
