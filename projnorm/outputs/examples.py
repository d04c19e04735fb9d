"""Made outputs of a classifier, for examples: a labelled source, and a target whose samples are harder."""

from __future__ import annotations

import numpy as np

from projnorm.outputs.outputs import Outputs


def example_outputs(n: int = 300, m: int = 200, *, shift: float = 0.7, seed: int = 0) -> tuple[Outputs, Outputs]:
    """Outputs of a linear classifier of three classes on a source, and on a target with harder samples.

    Labels are drawn from the probabilities of the classifier, so these are right on both sets. Both have labels,
    features, inputs that are a table of numbers, and logits of two further classifiers.

    >>> source, target = example_outputs()
    >>> round(source.error, 3), round(target.error, 3)
    (0.143, 0.2)

    Args:
        n: Number of samples of the source.
        m: Number of samples of the target.
        shift: How far the samples of the target move to the middle between the classes; 0 for no shift.
        seed: Seed of the draw.
    """
    rng = np.random.default_rng(seed)
    centres = 2.0 * np.eye(3, 4)
    heads = [centres.T, *(centres.T + 0.5 * rng.normal(size=(4, 3)) for _ in range(2))]

    def drawn(count: int, shift: float, name: str) -> Outputs:
        features = (1.0 - shift) * centres[rng.integers(3, size=count)] + rng.normal(size=(count, 4))
        logits, *others = (features @ head for head in heads)
        # The largest of logits with Gumbel noise has the probabilities of the softmax.
        labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
        return Outputs.from_logits(
            logits, features=features, labels=labels, others=tuple(others), inputs=features, name=name
        )

    return drawn(n, 0.0, "source"), drawn(m, shift, "target")
