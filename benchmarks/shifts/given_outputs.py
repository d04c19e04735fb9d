"""Sets whose outputs come with them: the data sets that NannyML ships, with the predictions of its models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.shifts.csv_columns import numbers, read_columns
from benchmarks.shifts.problems import MOST_SOURCE, TIME, GivenOutputs, Places
from projnorm.core.errors import InputError
from projnorm.core.lazy import load
from projnorm.outputs.outputs import LABELS, PREDICTIONS, PROBABILITIES, Outputs

NANNYML_SETS = ("loans", "cards", "employment")
_VERSION = "0.13.1"
_CHUNKS = 20
_CARDS = ("prepaid_card", "highstreet_card", "upmarket_card")


def nannyml(places: Places, setting: str, rng: np.random.Generator) -> GivenOutputs:
    """NannyML's reference set as the source, and its analysis set in twenty chunks over time.

    "loans": is a car loan repaid? "cards": which of three credit cards? "employment": is a person of the US census
    employed? The decisions are those of the data, which for loans are at a probability of 0.65.
    """
    reference, analysis = (nannyml_rows(places, setting, part) for part in ("reference", "analysis"))
    count = min(MOST_SOURCE, len(reference[LABELS]))
    drawn = np.sort(rng.choice(len(reference[LABELS]), count, replace=False))
    chunks = np.array_split(np.arange(len(analysis[LABELS])), _CHUNKS)
    targets = tuple(_outputs(analysis, chunk, f"chunk {number}") for number, chunk in enumerate(chunks, start=1))
    return GivenOutputs(_outputs(reference, drawn, "reference"), targets, (TIME,) * len(targets))


def nannyml_rows(places: Places, setting: str, part: str) -> dict[str, NDArray[Any]]:
    """Outputs and labels of all rows of the "reference" or the "analysis" part of a set, in the order of time."""
    read = {"loans": _loans, "cards": _cards, "employment": _employment}[setting]
    return read(nannyml_folder(places), part)


def nannyml_folder(places: Places) -> Path:
    """Folder of NannyML's data sets; an `InputError` where it is not installed."""
    return places.package("nannyml", _VERSION) / "datasets" / "data"


def _outputs(arrays: dict[str, NDArray[Any]], rows: NDArray[np.integer], name: str) -> Outputs:
    return Outputs.from_arrays({key: array[rows] for key, array in arrays.items()}, name)


def _loans(folder: Path, part: str) -> dict[str, NDArray[Any]]:
    table = read_columns(folder / f"synthetic_car_loan_{part}.csv")
    truth = table if part == "reference" else read_columns(folder / "synthetic_car_loan_analysis_target.csv")
    _require_same_rows(table["id"], truth["id"])
    return _binary(numbers(table["y_pred_proba"]), numbers(table["y_pred"]), numbers(truth["repaid"]))


def _cards(folder: Path, part: str) -> dict[str, NDArray[Any]]:
    table = read_columns(folder / f"mc_{part}.csv")
    truth = table if part == "reference" else read_columns(folder / "mc_analysis_gt.csv")
    _require_same_rows(table["id"], truth["id"])
    rows = np.column_stack([numbers(table[f"y_pred_proba_{card}"]) for card in _CARDS])
    column = {card: number for number, card in enumerate(_CARDS)}
    labels, predictions = (np.array([column[card] for card in cards]) for cards in (truth["y_true"], table["y_pred"]))
    return {PROBABILITIES: rows / rows.sum(axis=1, keepdims=True), LABELS: labels, PREDICTIONS: predictions}


def _employment(folder: Path, part: str) -> dict[str, NDArray[Any]]:
    table = _parquet(folder / f"employment_MA_{part}.pq")
    truth = table if part == "reference" else _parquet(folder / "employment_MA_analysis_target.pq")
    _require_same_rows(table["id"], truth["id"])
    return _binary(table["predicted_probability"], table["prediction"], truth["employed"])


def _binary(p: NDArray[Any], predictions: NDArray[Any], labels: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Probabilities of two classes from those of the second, with decisions and labels."""
    return {
        PROBABILITIES: np.column_stack([1.0 - p, p]),
        LABELS: labels.astype(np.int64),
        PREDICTIONS: predictions.astype(np.int64),
    }


def _require_same_rows(ids: NDArray[Any], others: NDArray[Any]) -> None:
    if not np.array_equal(ids, others):
        raise InputError("the labels of NannyML's data must have the rows of its outputs; their `id` differ.")


def _parquet(path: Path) -> dict[str, NDArray[Any]]:
    """The columns of a Parquet file that are numbers."""
    parquet, types = load("pyarrow.parquet"), load("pyarrow.types")
    table = parquet.read_table(path)
    names = [column.name for column in table.schema if types.is_integer(column.type) or types.is_floating(column.type)]
    return {name: table[name].to_numpy() for name in names}
