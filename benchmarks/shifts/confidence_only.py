"""Satellite pictures of WILDS FMoW by region and year: confidence and entropy of two networks, but no logits.

Methods that read nothing else can be compared: AC, DoC and ATC. The others, and the default, need all probabilities;
two columns made of the confidence would pass for outputs of a model with two classes, which they are not.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.shifts.problems import PLACE, TIME, Places
from projnorm.core.arrays import read_arrays
from projnorm.core.statistics import Floats
from projnorm.estimators.atc import threshold_below

FMOW_NETWORKS = ("ERM_last_0", "IRM_last_0")
_SOURCE = "id_val"
_SUBSET = "subset"


@dataclass(frozen=True, slots=True, eq=False)
class SignalSet:
    """What is known of a network on a set.

    Attributes:
        confidence: Largest probability of each sample.
        entropy: Entropy of its probabilities.
        wrong: Whether the prediction was wrong.
        name: Name of the set.
        kind: Kind of shift.
    """

    confidence: Floats
    entropy: Floats
    wrong: NDArray[np.bool_]
    name: str
    kind: str = ""

    @property
    def error(self) -> float:
        """Share of wrong predictions."""
        return float(self.wrong.mean())

    def __len__(self) -> int:
        return len(self.wrong)


@dataclass(frozen=True, slots=True, eq=False)
class Signals:
    """One question of the benchmark of which only confidences are known."""

    source: SignalSet
    targets: tuple[SignalSet, ...]

    def estimates(self) -> dict[str, list[float]]:
        """What each method that needs no more says of the targets; temperatures cannot be fitted without logits."""
        source = self.source
        offset = source.error - (1.0 - float(source.confidence.mean()))
        threshold = threshold_below(-source.entropy, int(source.wrong.sum()))
        unsure = [1.0 - float(target.confidence.mean()) for target in self.targets]
        return {
            "AC": unsure,
            "DoC": [value + offset for value in unsure],
            "ATC": [float(np.mean(-target.entropy < threshold)) for target in self.targets],
        }


def fmow(places: Places, setting: str, _rng: np.random.Generator) -> Signals:
    """One of two networks on validation pictures of its own years, then on regions and years."""
    arrays = read_arrays(places.data / "fmow_signals.npz")
    columns = arrays["columns"].tolist()

    def taken(part: str, rows: NDArray[np.integer] | slice, name: str, kind: str) -> SignalSet:
        signals = arrays[f"{setting}/{part}/signals"][rows].astype(np.float64)
        confidence, entropy = (signals[:, columns.index(column)] for column in ("conf_max", "entropy"))
        return SignalSet(confidence, entropy, ~arrays[f"{setting}/{part}/correct"][rows].astype(bool), name, kind)

    targets = []
    for key, rows in arrays.items():
        if key.startswith(f"{_SUBSET}/") and not key.startswith(f"{_SUBSET}/{_SOURCE}/"):
            _, part, chosen = key.split("/", 2)
            described = ast.literal_eval(chosen)
            name = " ".join(str(value).strip("[]'") for value in described.values())
            targets.append(taken(part, rows, f"{part} {name}", PLACE if "region" in described else TIME))
    return Signals(taken(_SOURCE, slice(None), _SOURCE, ""), tuple(targets))
