r"""The class shares of unlabelled samples, if nothing but these differs from labelled ones: three estimates.

With :math:`p` the shares of the labelled samples and :math:`w_k = q_k / p_k`, maximum likelihood maximises
:math:`\frac1m \sum_j \log \sum_k w_k P_{jk}` over the shares :math:`q` (Saerens, Latinne and Decaestecker, "Adjusting
the Outputs of a Classifier to New a Priori Probabilities", 2002; with probabilities that are calibrated it is the most
accurate of the three: Alexandari, Kundaje and Shrikumar, ICML 2020). The other two only look at predicted classes: with
the joint shares :math:`C` of predicted and true classes among labelled samples, those of the target are :math:`C w`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import minimize_scalar, nnls

from projnorm.core.statistics import Floats

# The penalty of the published code of RLLS: this part of three times its bound on the noise of C, which holds with
# probability 1 - _DELTA.
_PART, _DELTA = 0.01, 0.05
# Smaller probabilities count as this, so that no sample is impossible under all classes of the source.
_SMALLEST = 1e-12
# Steps of expectation maximisation before those of Newton's method.
_FIRST_STEPS = 10
# Ridge of a Newton step in units of the trace of the Hessian; it moves no maximum.
_RIDGE = 1e-11


def label_shares(labels: NDArray[np.int64], classes: int) -> Floats:
    """Share of each class among labels."""
    return np.bincount(labels, minlength=classes) / len(labels)


def confusion_shares(predicted: NDArray[np.int64], labels: NDArray[np.int64], classes: int) -> Floats:
    """Share of labelled samples by predicted class (row) and true class (column)."""
    return np.bincount(predicted * classes + labels, minlength=classes**2).reshape(classes, classes) / len(labels)


def maximum_likelihood_shares(
    probabilities: Floats, source_shares: Floats, *, tolerance: float = 1e-9, most_steps: int = 100
) -> Floats:
    """The likeliest class shares of the samples that these probabilities are of.

    The log-likelihood is concave, and expectation maximisation climbs it, slowly where a share goes to zero. After a
    few such steps each step therefore maximises its quadratic approximation over shares that are not negative (Kim et
    al., "A fast algorithm for maximum likelihood estimation of mixture proportions", 2020).

    Args:
        probabilities: Calibrated probabilities of the samples, shape ``(m, classes)``.
        source_shares: Class shares under which they are calibrated; classes without any get no share here either.
        tolerance: Largest amount by which the mean log-likelihood may fall short of its maximum.
        most_steps: Most quadratic steps.
    """
    used = np.flatnonzero(source_shares > 0.0)
    ratios = np.maximum(probabilities[:, used], _SMALLEST) / source_shares[used]
    largest = ratios.max(axis=1, keepdims=True)
    ratios /= largest  # which changes no share
    shares = source_shares[used] / source_shares[used].sum()
    for _ in range(_FIRST_STEPS):
        shares = shares * _gradient(ratios, shares)
    for _ in range(most_steps):
        gradient = _gradient(ratios, shares)
        # By concavity no shares are likelier by more than this.
        if gradient.max() - 1.0 <= tolerance:
            break
        shares = _newton_step(ratios, shares, gradient)
    of_all_classes = np.zeros(len(source_shares))
    of_all_classes[used] = shares
    return of_all_classes


def black_box_shares(confusion: Floats, predicted_shares: Floats) -> Floats:
    """Class shares whose confusions give the predicted ones: Lipton, Wang and Smola (ICML 2018), none negative.

    Args:
        confusion: Share of labelled samples by predicted class (row) and true class (column).
        predicted_shares: Share of each predicted class in the target.
    """
    return _as_shares(nnls(confusion, predicted_shares)[0], confusion)


def regularised_shares(confusion: Floats, predicted_shares: Floats, labels: int) -> Floats:
    r"""As `black_box_shares`, but drawn to those of the source: Azizzadenesheli et al. (RLLS, ICLR 2019).

    .. math:: \min_{w \ge 0} \|C w - \mu\|_2 + \lambda \|w - 1\|_2

    with the :math:`\lambda` of their code. The solution minimises the sum of the squares with another weight too, and
    is searched for among these.

    Args:
        confusion: Share of labelled samples by predicted class (row) and true class (column).
        predicted_shares: Share of each predicted class in the target.
        labels: Number of labelled samples.
    """
    classes = len(confusion)
    log = math.log(2 * classes / _DELTA)
    penalty = _PART * 3 * (2 * log / (3 * labels) + math.sqrt(2 * log / labels))

    def weights(log_ridge: float) -> Floats:
        root = math.exp(0.5 * log_ridge)
        stacked = np.vstack([confusion, root * np.eye(classes)])
        return nnls(stacked, np.concatenate([predicted_shares, np.full(classes, root)]))[0]

    def objective(log_ridge: float) -> float:
        ratios = weights(log_ridge)
        return float(np.linalg.norm(confusion @ ratios - predicted_shares) + penalty * np.linalg.norm(ratios - 1.0))

    scale = 2.0 * math.log(np.linalg.norm(confusion, 2))
    least = minimize_scalar(objective, bounds=(scale - 30.0, scale + 5.0), method="bounded", options={"xatol": 0.1})
    return _as_shares(weights(float(least.x)), confusion)


def _as_shares(weights: Floats, confusion: Floats) -> Floats:
    """Class shares of the target from weights on those of the source; the source's own if all weights are zero."""
    source = confusion.sum(axis=0)
    shares = weights * source
    return shares / shares.sum() if shares.sum() > 0.0 else source


def _gradient(ratios: Floats, shares: Floats) -> Floats:
    """Derivative of the mean log-likelihood with respect to every share; at most 1 at the maximum."""
    return (1.0 / (ratios @ shares)) @ ratios / len(ratios)


def _newton_step(ratios: Floats, shares: Floats, gradient: Floats) -> Floats:
    """Shares that maximise the quadratic approximation, or are on the way there if that overshoots."""
    scaled = ratios / (ratios @ shares)[:, None]
    hessian = scaled.T @ scaled / len(ratios)
    # A ridge around the present shares, for classes that no sample tells apart.
    ridge = _RIDGE * float(np.trace(hessian))
    hessian[np.diag_indices_from(hessian)] += ridge
    factor = np.linalg.cholesky(hessian)
    # The sum of the shares is subtracted from the objective instead of fixed, which has the same maximum.
    rotated = solve_triangular(factor, 2.0 * gradient - 1.0 + ridge * shares, lower=True)
    step = nnls(factor.T, rotated)[0] - shares
    before, slope = float(np.log(ratios @ shares).mean() - shares.sum()), float((gradient - 1.0) @ step)
    size = 1.0
    while size > 1e-10:
        tried = shares + size * step
        inside = ratios @ tried
        if inside.min() > 0.0 and np.log(inside).mean() - tried.sum() >= before + 0.1 * size * slope:
            return tried / tried.sum()
        size *= 0.5
    return shares * gradient
