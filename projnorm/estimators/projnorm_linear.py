r"""ProjNormLinear on features: Algorithm 1 of Yu et al. (ICML 2022) with both trainings solved in closed form.

.. math:: \|\hat\theta - \tilde\theta\|, \qquad \hat\theta = (\tfrac1n X^\top X + bI)^{-1} \tfrac1n X^\top Y,
          \quad \tilde\theta = (\tfrac1m \tilde X^\top\tilde X + bI)^{-1} \tfrac1m \tilde X^\top\tilde Y

with the features of labelled samples and their labels, and the features of the target and the network's own labels.
Features are centred on the labelled mean and labels on the labelled shares. The ridge is the same for both and per
sample, so that the value does not depend on m: a ridge in units of each kernel's own eigenvalues would shrink the two
solutions differently.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import scipy.linalg

from projnorm.core.errors import InputError
from projnorm.core.statistics import Floats
from projnorm.estimators.base import LEARNT, Estimator, register
from projnorm.estimators.class_shares import label_shares
from projnorm.outputs.outputs import Outputs

# The best of six values from 0.003 to 1 on digits at m = 400.
RIDGE = 0.3


@register
class ProjNormLinearEstimator(Estimator):
    """How far the linear model that the target teaches is from the one that labelled samples teach.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(ProjNormLinearEstimator().fit(source).score(target), 3)
    0.045

    Attributes:
        ridge: Ridge in units of the mean squared length of a centred feature vector.
        weights: Weights that the labelled samples teach, shape ``(width, classes)``.
        centre: Mean of their features.
        shares: Share of each of their classes.
        penalty: Ridge that is added to the covariance of either set.
    """

    ridge: float = RIDGE
    weights: Floats = LEARNT
    centre: Floats = LEARNT
    shares: Floats = LEARNT
    penalty: float = LEARNT

    name = "ProjNormLinear"
    needs = frozenset({"features", "labels"})

    def __post_init__(self) -> None:
        """Refuse a ridge that is not positive, since the Gram matrix may be singular."""
        require_positive(self.ridge)

    def _fit(self, source: Outputs) -> ProjNormLinearEstimator:
        features = np.asarray(source.known_features, dtype=np.float64)
        labels = source.known_labels
        centre, shares = features.mean(axis=0), label_shares(labels, source.classes)
        features = features - centre
        scale = float(np.sum(features**2)) / len(features)
        penalty = self.ridge * (scale if scale > 0.0 else 1.0)
        weights = _weights(features, np.eye(source.classes)[labels] - shares, penalty)
        return replace(self, weights=weights, centre=centre, shares=shares, penalty=penalty)

    def _score(self, target: Outputs) -> float:
        features = np.asarray(target.known_features, dtype=np.float64) - self.centre
        labels = np.eye(len(self.shares))[target.predicted] - self.shares
        return float(np.linalg.norm(self.weights - _weights(features, labels, self.penalty)))


@register
class ProjNormLinearMatched(Estimator):
    """ProjNormLinear with a reference that has the class shares of the target, for targets with other class shares.

    Both models are taught by the network's own labels, the reference with source samples weighted so that these labels
    have the shares that they have on the target. Features are centred on the weighted mean. A class that the network
    never predicts in distribution cannot be matched.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(ProjNormLinearMatched().fit(source).score(target), 3)
    0.047

    Attributes:
        ridge: Ridge in units of the mean squared length of a centred feature vector of the source.
        source: Outputs in distribution.
    """

    ridge: float = RIDGE
    source: Outputs = LEARNT

    name = "ProjNormLinear-matched"
    needs = frozenset({"features"})

    def __post_init__(self) -> None:
        """Refuse a ridge that is not positive, since the Gram matrix may be singular."""
        require_positive(self.ridge)

    def _fit(self, source: Outputs) -> ProjNormLinearMatched:
        return replace(self, source=source)

    def _score(self, target: Outputs) -> float:
        """The distance; nan where every predicted class of the target is new."""
        predicted, classes = self.source.predicted, self.source.classes
        return reweighted_distance(
            self.source,
            target,
            share_ratios(label_shares(target.predicted, classes), label_shares(predicted, classes))[predicted],
            self.ridge,
        )


def share_ratios(target_shares: Floats, source_shares: Floats) -> Floats:
    """Share of each class in the target over that in the source; 0 for a class that the source lacks."""
    return np.divide(target_shares, source_shares, out=np.zeros(len(source_shares)), where=source_shares > 0.0)


def reweighted_distance(source: Outputs, target: Outputs, weights: Floats, ridge: float = RIDGE) -> float:
    """Distance of the models that the network's own labels teach, on the target and on weighted source samples.

    Args:
        source: Outputs in distribution.
        target: Outputs on the target.
        weights: Weight of each sample of the source; nan comes back where all are zero.
        ridge: Ridge in units of the mean squared length of a centred feature vector of the source.
    """
    if not weights.any():
        return math.nan
    features, predicted = np.asarray(source.known_features, dtype=np.float64), source.predicted
    weights = weights / weights.mean()
    shares = np.bincount(predicted, weights, source.classes) / len(predicted)
    centre, roots = weights @ features / len(features), np.sqrt(weights)[:, None]
    scale = float(np.sum(features.var(axis=0)))
    penalty = ridge * (scale if scale > 0.0 else 1.0)
    labels = np.eye(source.classes) - shares
    # A weighted regression is a plain one of rows times the roots of the weights.
    reference = _weights(roots * (features - centre), roots * labels[predicted], penalty)
    new = np.asarray(target.known_features, dtype=np.float64) - centre
    return float(np.linalg.norm(reference - _weights(new, labels[target.predicted], penalty)))


def require_positive(ridge: float) -> None:
    """Refuse a ridge that is not positive, since the Gram matrix may be singular."""
    if not ridge > 0.0:
        raise InputError(f"`ridge` must be positive; got {ridge}.")


def _weights(X: Floats, Y: Floats, ridge: float) -> Floats:
    """Weights of the ridge regression of `Y` on `X`, by the smaller of the two Gram matrices."""
    is_wide = len(X) < X.shape[1]
    gram = X @ X.T if is_wide else X.T @ X
    gram[np.diag_indices_from(gram)] += ridge * len(X)
    solved = scipy.linalg.solve(gram, Y if is_wide else X.T @ Y, assume_a="pos", overwrite_a=True)
    return X.T @ solved if is_wide else solved
