"""GdScore: Xie et al., "Leveraging Gradients for Unsupervised Accuracy Estimation under Distribution Shift" (2024)."""

from __future__ import annotations

import numpy as np

from projnorm.estimators.base import Estimator, register
from projnorm.estimators.softmax import probabilities
from projnorm.outputs.outputs import Outputs

NORM = 0.3
SURE = 0.5


@register
class GdScore(Estimator):
    """Mean over batches of a norm of the gradient of the last layer's weights on pseudo-labels.

    The gradient of the cross-entropy is ``(p - e_y)`` times the features, so nothing is passed backward. Samples the
    network is not sure of have labels drawn at random. Under shift gradients grow, so it rises with the error.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(GdScore().fit(source).score(target), 3)
    96.665

    Attributes:
        seed: Seed of those labels.
        batch: Number of samples in a batch.
    """

    seed: int = 0
    batch: int = 128

    name = "GdScore"
    needs = frozenset({"features"})

    def _score(self, target: Outputs) -> float:
        """The mean over batches of the 0.3-quasinorm of the gradient."""
        rows = probabilities(target.logits)
        drawn = np.random.default_rng(self.seed).integers(rows.shape[1], size=len(rows))
        labels = np.where(rows.max(axis=1) < SURE, drawn, target.predicted)
        slopes = rows - np.eye(rows.shape[1])[labels]
        features = np.asarray(target.known_features, dtype=np.float64)
        norms = []
        for start in range(0, len(rows), self.batch):
            part = slice(start, start + self.batch)
            gradient = slopes[part].T @ features[part] / len(rows[part])
            norms.append(float((np.abs(gradient) ** NORM).sum() ** (1.0 / NORM)))
        return float(np.mean(norms))
