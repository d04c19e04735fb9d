"""MaNo with its normalisation chosen for each target as in the paper, on the source, or always the same.

Run: python -m benchmarks.mano_normalisation digits OUT.json, or for ResNet18 on CIFAR-10 at 32 px
python -m benchmarks.mano_normalisation CIFAR10.npz WEIGHTS.pth OUT.json

The network and the targets, 19 families of corruptions at three severities, are those of left_out_families.py.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np

from benchmarks.harness import write_result
from benchmarks.left_out_families import SEVERITIES, trained
from projnorm.core.statistics import fit_quality
from projnorm.data.corruptions.families import FAMILIES, corrupt
from projnorm.estimate.options import EstimateOptions
from projnorm.estimate.source_and_model import SourceAndModel
from projnorm.estimators.mano import POWER, is_sure, quadratic
from projnorm.estimators.softmax import probabilities
from projnorm.models.preparation import one_thread

M = 1_000


def main(arguments: list[str]) -> None:
    """Train, score, print, save."""
    network, prepare, source, test = trained(arguments)
    samples = SourceAndModel(network, (source.images, source.labels), EstimateOptions(prepare=prepare, device="cpu"))
    sure_there = is_sure(samples.source.logits)
    rows, errors, sure = [], [], []
    for family in FAMILIES:
        for severity in SEVERITIES:
            images = corrupt(test.images[:M], family, severity, seed=1)
            outputs = samples.outputs((images, test.labels[:M]), family)
            scores = [
                float(np.mean(normalised**POWER) ** (1.0 / POWER))
                for normalised in (probabilities(outputs.logits), quadratic(outputs.logits))
            ]
            sure.append(is_sure(outputs.logits))
            rows.append([*scores, scores[0 if sure[-1] else 1], scores[0 if sure_there else 1]])
            errors.append(outputs.error)
    names = ("always softmax", "always quadratic", "chosen for each target", "chosen on the source")
    qualities_by_name = {
        name: asdict(fit_quality(np.array(column), np.array(errors)))
        for name, column in zip(names, np.array(rows).T, strict=True)
    }
    result = {
        "targets": len(errors),
        "source_is_sure": sure_there,
        "targets_that_are_sure": sum(sure),
        "rows": qualities_by_name,
    }
    print(result)
    write_result(Path(arguments[-1]), "python -m benchmarks.mano_normalisation DATA [WEIGHTS] OUT.json", result)


if __name__ == "__main__":
    with one_thread("cpu"):
        main(sys.argv[1:])
