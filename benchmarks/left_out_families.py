"""Error estimates under corruptions of families that no calibration set has, and under other class shares.

Run: python -m benchmarks.left_out_families digits OUT.json, or for ResNet18 on CIFAR-10 at 32 px
python -m benchmarks.left_out_families CIFAR10.npz WEIGHTS.pth OUT.json

Each family of CIFAR-C is left out of the calibration in turn. The peer is temperature-scaled COT, with the network by a
line that is fitted to the same calibration sets. Clean images are drawn in other class shares: Dirichlet(1),
Dirichlet(0.3), two and five classes. About fifteen minutes on one core.
"""

from __future__ import annotations

import sys
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
from torch import nn

from benchmarks.harness import write_result
from deep.training.loop import train
from projnorm.data.class_draws import drawn_with_shares
from projnorm.data.corruptions.families import FAMILIES, corrupt
from projnorm.data.datasets import digits, load_splits
from projnorm.data.images import ImageNetInput, ImageSet
from projnorm.estimate.calibration_sets import CalibrationSets
from projnorm.estimate.fitted_source import FittedSource, halves
from projnorm.estimate.options import EstimateOptions
from projnorm.estimate.shifted_images import LEAST_SHARE, other_shares
from projnorm.estimate.source_and_model import SourceAndModel
from projnorm.estimate.target_estimate import estimate_target
from projnorm.models.preparation import one_thread
from projnorm.models.recipe import Recipe
from projnorm.models.weights import load_network
from projnorm.outputs.outputs import Outputs

LEVEL, SEVERITIES, DRAWS = 0.9, (1, 3, 5), 10
SIZES = {"digits": (400, 200), "cifar10": (1000, 200)}


def main(arguments: list[str]) -> None:
    """Train, estimate, print, save."""
    name = "digits" if arguments[0] == "digits" else "cifar10"
    network, prepare, source, test = trained(arguments)
    samples = SourceAndModel(network, (source.images, source.labels), EstimateOptions(prepare=prepare, device="cpu"))
    first, held_out = halves(samples.source, 0)
    sets = samples.calibration_sets(held_out)
    assert sets is not None
    outputs = replace(samples.source, inputs=None)
    rows: list[dict[str, object]] = []
    few = _take(test, 0, 2_000)
    for m in SIZES[name]:
        rows += _shares(samples, test, _estimators(outputs, first, sets), m)
        for family in FAMILIES:
            left = [number for number, names in enumerate(sets.families.tolist()) if family not in names]
            others = CalibrationSets(tuple(sets.sets[number] for number in left), sets.families[left], sets.origin)
            rows += _corrupted(samples, few, family, _estimators(outputs, first, others), m)
            print(m, family, flush=True)
    result = {"data": name, "level": LEVEL, "summary": _summary(rows), "rows": rows}
    for row in result["summary"]:
        print(row)
    write_result(Path(arguments[-1]), "python -m benchmarks.left_out_families DATA [WEIGHTS] OUT.json", result)


def trained(arguments: list[str]) -> tuple[nn.Module, ImageNetInput, ImageSet, ImageSet]:
    """A network, how it sees images, labelled images that it was not trained on, and test images."""
    prepare = ImageNetInput(32)
    if arguments[0] == "digits":
        splits = digits()
        network = load_network("small-cnn", "random", num_outputs=10, seed=0).model
        learnt, source, recipe = _take(splits.train, 0, 600), _take(splits.train, 600, 898), Recipe(180, 0.05, 64)
    else:
        splits = load_splits(Path(arguments[0]))
        network = load_network("resnet18", arguments[1], num_outputs=10, seed=0, drop_head=True).model
        learnt, source = _take(splits.train, 0, 18_000), _take(splits.train, 18_000, 20_000)
        recipe = Recipe(lr=1e-2, epochs=4)
    train(network, learnt.images, learnt.labels, recipe, seed=0, prepare=prepare)
    return network, prepare, source, splits.test


def _estimators(source: Outputs, learnt_from: Outputs, sets: CalibrationSets) -> dict[str, FittedSource]:
    """The default with the network and its images, and from outputs alone."""
    options = EstimateOptions(level=LEVEL)
    return {
        "network": FittedSource.fit(options, source, learnt_from, calibration=sets),
        "outputs": FittedSource.fit(replace(options, methods="cheap"), source, source),
    }


def _shares(
    samples: SourceAndModel, test: ImageSet, estimators: dict[str, FittedSource], m: int
) -> list[dict[str, object]]:
    """Clean images in other class shares."""
    whole, rng, rows = samples.outputs((test.images, test.labels), "test"), np.random.default_rng(m), []
    for _ in range(DRAWS):
        for shares in other_shares(whole.classes, rng):
            part = whole.take(drawn_with_shares(whole.known_labels, shares, m, rng, least_share=LEAST_SHARE))
            rows += _rows("class shares", replace(part, inputs=None), estimators, m)
    return rows


def _corrupted(
    samples: SourceAndModel, test: ImageSet, family: str, estimators: dict[str, FittedSource], m: int
) -> list[dict[str, object]]:
    """One family of corruptions, in the class shares of the source and in others."""
    rng, rows = np.random.default_rng((m, zlib.crc32(family.encode()))), []
    for severity in SEVERITIES:
        images = corrupt(test.images, family, severity, seed=1)
        whole = replace(samples.outputs((images, test.labels), family), inputs=None)
        drawn = np.sort(rng.permutation(len(whole))[:m])
        rows += _rows("corruption", whole.take(drawn), estimators, m)
        shares = other_shares(whole.classes, rng)[0]
        part = whole.take(drawn_with_shares(whole.known_labels, shares, m, rng, least_share=LEAST_SHARE))
        rows += _rows("class shares and corruption", part, estimators, m)
    return rows


def _rows(kind: str, target: Outputs, estimators: dict[str, FittedSource], m: int) -> list[dict[str, object]]:
    estimates = {mode: estimate_target(estimator, target) for mode, estimator in estimators.items()}
    cot = {
        mode: next(method for method in estimate.methods if method.method == "COT")
        for mode, estimate in estimates.items()
    }
    return [
        {
            "kind": kind,
            "mode": mode,
            "m": m,
            "samples": len(target),
            "truth": estimate.truth,
            "error": estimate.error,
            "low": estimate.low,
            "high": estimate.high,
            "warned": bool(estimate.warnings),
            "peer": min(1.0, max(0.0, cot[mode].error)),
        }
        for mode, estimate in estimates.items()
    ]


def _summary(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Mean absolute error, coverage and width by kind of shift, mode and size; the peer is COT, by a line if it can."""
    summary = []
    for key in sorted({(str(row["kind"]), str(row["mode"]), int(str(row["m"]))) for row in rows}):
        mine = [row for row in rows if (row["kind"], row["mode"], row["m"]) == key]
        truth, error, low, high, peer = (
            np.array([float(str(row[name])) for row in mine]) for name in ("truth", "error", "low", "high", "peer")
        )
        spread = float(np.sum((truth - truth.mean()) ** 2))
        summary.append(
            {
                **dict(zip(("kind", "mode", "m"), key, strict=True)),
                "targets": len(mine),
                "mae": float(np.abs(error - truth).mean()),
                "peer_mae": float(np.abs(peer - truth).mean()),
                "r_squared": 1.0 - float(np.sum((error - truth) ** 2)) / spread,
                "coverage": float(np.mean((low <= truth) & (truth <= high))),
                "median_width": float(np.median(high - low)),
            }
        )
    return summary


def _take(whole: ImageSet, start: int, stop: int) -> ImageSet:
    return whole.take(np.arange(start, min(stop, len(whole.labels))))


if __name__ == "__main__":
    with one_thread("cpu"):
        main(sys.argv[1:])
