"""Predicted classes of many networks on CIFAR-10.1 and ImageNetV2: for methods that read how often networks agree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.shifts.problems import DOMAIN, Places
from projnorm.core.arrays import read_arrays
from projnorm.outputs.outputs import Outputs

AGREEMENT_SETS = ("cifar10.1", "imagenetv2")
# Each pair of networks is compared on every picture.
_MOST_PICTURES = 10_000
_IMAGENET = "imagenet_validation_original"


@dataclass(frozen=True, slots=True, eq=False)
class PredictionsOfNetworks:
    """Predicted classes of several networks on one set, a row for each network, and the labels."""

    predicted: NDArray[np.integer]
    labels: NDArray[np.integer]
    name: str

    def outputs(self) -> list[Outputs]:
        """Each network's predictions with those of all others beside them, as logits that are 0 and 1.

        Classes are numbered anew for each picture, which changes no agreement: the label is 0, then what was predicted.
        """
        classes = np.stack([self.labels, *self.predicted])
        columns = np.zeros(classes.shape, dtype=np.int64)
        pictures = np.arange(classes.shape[1])
        for row in range(1, len(classes)):
            same = classes[:row] == classes[row]
            columns[row] = np.where(same.any(axis=0), columns[same.argmax(axis=0), pictures], row)
        hot = tuple(row[:, None] == np.arange(len(classes)) for row in columns[1:])
        return [
            Outputs(own.astype(np.float32), None, columns[0], (*hot[:number], *hot[number + 1 :]), name=self.name)
            for number, own in enumerate(hot)
        ]


@dataclass(frozen=True, slots=True, eq=False)
class Agreement:
    """One question of the benchmark of which only predicted classes are known: every network on every set."""

    networks: tuple[str, ...]
    source: PredictionsOfNetworks
    targets: tuple[PredictionsOfNetworks, ...]
    kind: str = DOMAIN


def agreement(places: Places, setting: str, rng: np.random.Generator) -> Agreement:
    """Networks on the original test set, then on sets that were collected anew in the same way."""
    if setting == "cifar10.1":
        arrays = read_arrays(places.data / "cifar10.1-preds" / "predictions.npz")
        names = tuple(key.removeprefix("original/") for key in arrays if key.startswith("original/"))
        source, *targets = (
            PredictionsOfNetworks(
                np.stack([arrays[f"{part}/{name}"] for name in names]), arrays[f"{part}_labels"], part
            )
            for part in ("original", "v4", "v6")
        )
    else:
        arrays = read_arrays(places.data / "imagenetv2-preds" / "imagenetv2_top1_common_derived.npz")
        names = tuple(map(str, arrays["models"]))
        parts = (_IMAGENET, "imagenetv2_b_33", "imagenetv2_a_44", "imagenetv2_c_12")
        source, *targets = (
            PredictionsOfNetworks(arrays[f"{part}_pred"], arrays[f"{part}_label"], part) for part in parts
        )
    if len(source.labels) > _MOST_PICTURES:
        drawn = np.sort(rng.choice(len(source.labels), _MOST_PICTURES, replace=False))
        source = PredictionsOfNetworks(source.predicted[:, drawn], source.labels[drawn], source.name)
    return Agreement(names, source, tuple(targets))
