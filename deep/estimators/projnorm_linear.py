r"""ProjNormLinear on features: Algorithm 1 of Yu et al. (ICML 2022) with both trainings solved in closed form.

.. math:: \|\hat\theta - \tilde\theta\|, \qquad \hat\theta = (\tfrac1n X^\top X + bI)^{-1} \tfrac1n X^\top Y,
          \quad \tilde\theta = (\tfrac1m \tilde X^\top\tilde X + bI)^{-1} \tfrac1m \tilde X^\top\tilde Y

with the features of labelled samples and their labels, and the features of the target and the network's own labels.
Features are centred on the labelled mean and labels on the labelled shares. The ridge is the same for both and per
sample, so that the value does not depend on m: a ridge in units of each kernel's own eigenvalues would shrink the two
solutions differently.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from deep.estimators.evidence import Evidence
from deep.estimators.softmax import Floats
from deep.outputs import Outputs

# Of six values from 0.003 to 1, the best on digits at m = 400.
RIDGE = 0.3


@dataclass(frozen=True, slots=True, eq=False)
class ProjNormLinear:
    """How far the linear model that the target teaches is from the one that labelled samples teach.

    Attributes:
        weights: Of the labelled samples, shape ``(width, classes)``.
        centre: Mean of their features.
        shares: Of their classes.
        ridge: Added to the covariance of either set.
    """

    weights: Floats
    centre: Floats
    shares: Floats
    ridge: float

    name = "ProjNormLinear"
    direction = "up"
    is_error = False
    needs = ("features", "validation labels")

    @classmethod
    def of(cls, outputs: Outputs, labels: NDArray[np.int64], *, ridge: float = RIDGE) -> ProjNormLinear:
        """Learn from labelled in-distribution samples.

        Args:
            outputs: Of the network on them.
            labels: Theirs.
            ridge: In units of the mean squared length of a centred feature vector.

        Raises:
            ValueError: If `ridge` is not positive.
        """
        if not ridge > 0.0:
            raise ValueError(f"`ridge` must be positive; got {ridge}.")
        features = np.asarray(outputs.features, dtype=np.float64)
        classes = outputs.logits.shape[1]
        centre, shares = features.mean(axis=0), np.bincount(labels, minlength=classes) / len(labels)
        features -= centre
        scale = float(np.sum(features**2)) / len(features)
        ridge *= scale if scale > 0.0 else 1.0
        return cls(_weights(features, np.eye(classes)[labels] - shares, ridge), centre, shares, ridge)

    def score(self, evidence: Evidence) -> float:
        """The distance."""
        features = np.asarray(evidence.outputs.features, dtype=np.float64) - self.centre
        labels = np.eye(len(self.shares))[evidence.outputs.predicted] - self.shares
        return float(np.linalg.norm(self.weights - _weights(features, labels, self.ridge)))


def _weights(X: Floats, Y: Floats, ridge: float) -> Floats:
    """Ridge regression through the smaller of the two Gram matrices."""
    is_wide = len(X) < X.shape[1]
    gram = X @ X.T if is_wide else X.T @ X
    gram[np.diag_indices_from(gram)] += ridge * len(X)
    solved = scipy.linalg.solve(gram, Y if is_wide else X.T @ Y, assume_a="pos", overwrite_a=True)
    return X.T @ solved if is_wide else solved
