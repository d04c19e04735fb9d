r"""ProjNormLinear on features: Algorithm 1 of Yu et al. (ICML 2022) with both trainings solved in closed form.

.. math:: \|\hat\theta - \tilde\theta\|, \qquad \hat\theta = (X^\top X + bI)^{-1} X^\top Y,
          \quad \tilde\theta = (\tilde X^\top\tilde X + \tilde bI)^{-1} \tilde X^\top\tilde Y

with the features of labelled samples and their labels, and the features of the target and the network's own labels.
Features are centred on the labelled mean, labels on the labelled shares, and each ridge is a multiple of the mean
eigenvalue: the variant that was chosen on four probe families, see `projnorm deep ntk`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from deep.estimators.evidence import Evidence
from deep.estimators.softmax import Floats
from deep.outputs import Outputs

RIDGE = 10.0


@dataclass(frozen=True, slots=True, eq=False)
class ProjNormLinear:
    """How far the linear model that the target teaches is from the one that labelled samples teach.

    Attributes:
        weights: Of the labelled samples, shape ``(width, classes)``.
        centre: Mean of their features.
        shares: Of their classes.
        ridge: In mean eigenvalues of each set's kernel.
    """

    weights: Floats
    centre: Floats
    shares: Floats
    ridge: float = RIDGE

    name = "ProjNormLinear"
    direction = "up"
    is_error = False
    needs = ("features", "validation labels")

    @classmethod
    def of(cls, outputs: Outputs, labels: NDArray[np.int64], *, ridge: float = RIDGE) -> ProjNormLinear:
        """Learn from labelled in-distribution samples.

        Raises:
            ValueError: If `ridge` is not positive.
        """
        if not ridge > 0.0:
            raise ValueError(f"`ridge` must be positive; got {ridge}.")
        features = np.asarray(outputs.features, dtype=np.float64)
        classes = outputs.logits.shape[1]
        centre, shares = features.mean(axis=0), np.bincount(labels, minlength=classes) / len(labels)
        return cls(_weights(features - centre, np.eye(classes)[labels] - shares, ridge), centre, shares, ridge)

    def score(self, evidence: Evidence) -> float:
        """The distance."""
        features = np.asarray(evidence.outputs.features, dtype=np.float64) - self.centre
        labels = np.eye(len(self.shares))[evidence.outputs.predicted] - self.shares
        return float(np.linalg.norm(self.weights - _weights(features, labels, self.ridge)))


def _weights(X: Floats, Y: Floats, ridge: float) -> Floats:
    """Ridge regression through the smaller of the two Gram matrices; zero where all features are."""
    if (scale := float(np.sum(X**2))) == 0.0:
        return np.zeros((X.shape[1], Y.shape[1]))
    is_wide = len(X) < X.shape[1]
    gram = X @ X.T if is_wide else X.T @ X
    gram[np.diag_indices_from(gram)] += ridge * scale / len(X)
    solved = scipy.linalg.solve(gram, Y if is_wide else X.T @ Y, assume_a="pos", overwrite_a=True)
    return X.T @ solved if is_wide else solved
