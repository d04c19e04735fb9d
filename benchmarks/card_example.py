"""The example of docs/estimate.md: a small network on digits that were moved sideways, a shift it is not calibrated on.

Run: python -m benchmarks.card_example [FOLDER]; writes error_card.png there.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from deep.training.loop import train
from figures import error_card
from figures.style import rendered
from projnorm.data.datasets import digits
from projnorm.data.images import ImageNetInput
from projnorm.estimate.estimate import estimate_error
from projnorm.models.preparation import one_thread
from projnorm.models.recipe import Recipe
from projnorm.models.weights import load_network

PIXELS = 4


def main() -> None:
    """Train, estimate, print, draw."""
    splits, prepare = digits(), ImageNetInput(32)
    network = load_network("small-cnn", "random", num_outputs=10, seed=0).model
    images, labels = splits.train.images, splits.train.labels
    train(network, images[:600], labels[:600], Recipe(200, 0.05, 64), seed=0, prepare=prepare)
    new = np.roll(splits.test.images[:400], PIXELS, axis=2)
    target = (new, splits.test.labels[:400])  # the labels give the truth beside the estimate
    estimate = estimate_error(network, (images[600:], labels[600:]), target, prepare=prepare)
    print(estimate.sentence)
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "projnorm-out")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "error_card.png").write_bytes(rendered(error_card.draw(estimate), "png"))


if __name__ == "__main__":
    with one_thread("cpu"):
        main()
