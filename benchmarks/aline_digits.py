"""Agreement on the line, which needs several networks of different quality, on targets of `projnorm deep run digits`.

The networks of that run agree on more than 98 % of the held-out digits, where the method does not apply; these are
trained for fewer epochs, and the one evaluated the longest.

Run: python -m benchmarks.aline_digits [OUT.json] (about two minutes on one core).
"""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from benchmarks.harness import write_result
from deep.comparison.modality import load_image_data, modality_of
from deep.comparison.presets import IMAGE_PRESETS
from deep.comparison.score_quality import qualities
from deep.comparison.scores import Scores, TargetScores
from deep.training.loop import train
from projnorm.data.images import ImageSet
from projnorm.estimators.aline import ALineD, ALineS
from projnorm.models.forward import forward
from projnorm.models.preparation import one_thread
from projnorm.outputs.outputs import Outputs

EPOCHS = (8, 1, 2, 3, 4, 6)


def main(out: Path) -> None:
    """Train, score every target, print, save."""
    config = IMAGE_PRESETS["digits"]
    modality = modality_of(config)
    data = load_image_data(config)
    networks = []
    for seed, epochs in enumerate(EPOCHS):
        recipe = replace(config.finetune, epochs=epochs)
        network = modality.initial(data.classes, seed).model
        networks.append(
            train(network, data.train.inputs, data.train.labels, recipe, seed=seed, prepare=modality.prepare)
        )

    def outputs_of(samples: ImageSet) -> Outputs:
        own, *others = (forward(model, modality.last, samples.inputs, prepare=modality.prepare) for model in networks)
        return Outputs(own.logits, own.features, samples.labels, tuple(other.logits for other in others))

    fitted = [method.fit(outputs_of(data.validation)) for method in (ALineS(), ALineD())]
    parts = []
    for target in data.targets:
        outputs = outputs_of(target.samples)
        error = target.error(outputs.predicted)
        parts.append(TargetScores.from_target(target, error, {method.name: method.score(outputs) for method in fitted}))
    defined = [part for part in parts if np.isfinite(list(part.scores.values())).all()]
    scores = Scores.from_targets(defined)
    missed = np.abs(np.clip(scores.values, 0.0, 1.0) - scores.errors[:, None]).mean(axis=0)
    result = {
        "epochs": EPOCHS,
        "targets": len(data.targets),
        "defined_on": len(defined),
        "as_they_are_mae": dict(zip(scores.methods, missed.tolist(), strict=True)),
        "methods": [asdict(quality) for quality in qualities(scores)],
    }
    print(result)
    write_result(out, "python -m benchmarks.aline_digits", result)


if __name__ == "__main__":
    with one_thread("cpu"):
        main(Path(sys.argv[1] if len(sys.argv) > 1 else "results/aline_digits.json"))
