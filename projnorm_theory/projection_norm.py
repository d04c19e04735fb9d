"""ProjNormLinear, the paper's equation for the linear model, from features, from a pair, or from Gram matrices."""

from __future__ import annotations

import math
from dataclasses import dataclass

from numpy.typing import ArrayLike

from projnorm_theory.errors import InputError
from projnorm_theory.factor import factor
from projnorm_theory.linear_pair import LinearPair
from projnorm_theory.norms import frobenius
from projnorm_theory.results import Result
from projnorm_theory.training_fit import TrainingFit
from projnorm_theory.validation import FloatArray, as_matrix, as_non_negative, as_rows, precision_of


@dataclass(frozen=True, slots=True, eq=False)
class ProjNormLinear(Result):
    """``||theta - P~ theta||``, with how it was computed.

    Attributes:
        value: The norm; Frobenius for several outputs.
        rank: Numerical rank of `X_ood` used.
        method: "gram", "qr" or "svd", whichever served; "pair" when it came from a `LinearPair`.
    """

    value: float
    rank: int
    method: str

    def headline(self) -> str:
        """The value and how it was computed."""
        return f"ProjNormLinear {self.value:.6g} (rank {self.rank}, {self.method})"


@dataclass(frozen=True, slots=True, eq=False)
class PairProjNormLinear(ProjNormLinear):
    """ProjNormLinear of a `LinearPair`, where `theta` is the minimum-norm (or ridge) solution for `Y`.

    Attributes:
        error_estimate: How far ``value**2`` may be off through the rounding of the Gram matrices. It grows like
            ``eps * cond**2 * ||theta||**2``, so a value below its square root is not told from zero. What `rcond` cut
            off is not in it: compare `rank` and `train_rank` with what you expect.
        theta_norm: ``||theta||``.
        train_rank: Numerical rank of `X` used.
        training_residual: ``||X theta - Y||`` of the minimum-norm solution.
        ridge: The ridge added to each Gram matrix, (train, ood).
    """

    error_estimate: float
    theta_norm: float
    train_rank: int
    training_residual: float
    ridge: tuple[float, float]


def projnorm_linear(theta: ArrayLike, X_ood: ArrayLike, *, rcond: float | None = None) -> ProjNormLinear:
    r"""Distance from the weights to the row space of the shifted inputs.

    .. math:: \|(I - \tilde P)\,\theta\|_2, \qquad \tilde P = \tilde X^{+}\tilde X

    :math:`\tilde P\theta` is what training on the model's own pseudo-labels would end at, so this is the linear case
    of the Projection Norm.

    Args:
        theta: Weights, shape ``(d,)`` or ``(d, c)``.
        X_ood: Shifted inputs, shape ``(m, d)``, one example per row.
        rcond: Singular values up to ``rcond * s_max`` count as zero. Default ``max(m, d) * eps``, with the eps of
            the type of `X_ood`.

    Raises:
        InputError: If a shape is wrong or an entry is not finite.

    >>> projnorm_linear([1.0, 2.0, 2.0], [[5.0, 0.0, 0.0]]).value.__round__(12)
    2.828427124746
    """
    precision = precision_of(X_ood)
    X_ood = as_matrix(X_ood, "X_ood")
    theta = as_rows(theta, "theta", rows=X_ood.shape[1], rows_like="the columns of `X_ood`")
    chosen = factor(X_ood, precision=precision, rcond=rcond)
    return ProjNormLinear(frobenius(chosen.residual(theta)), chosen.rank, chosen.method)


def projnorm_linear_of_pair(
    pair: LinearPair,
    Y: ArrayLike,
    *,
    ridge: float | tuple[float, float] = 0.0,
    pseudo_labels: ArrayLike | None = None,
) -> PairProjNormLinear:
    r"""ProjNormLinear of the minimum-norm solution for `Y`, from what a `LinearPair` holds.

    With a ridge, :math:`\hat\theta = X^\top (K + aI)^{-1} Y` and :math:`\tilde P\hat\theta` becomes
    :math:`\tilde X^\top (\tilde K + bI)^{-1} \tilde X\hat\theta`:

    .. math:: \|(I - \tilde P)\hat\theta\|^2 + \|b\,(\tilde\Lambda + b)^{-1} V^\top\hat\theta\|^2

    Pseudo-labels need not be the linear model's own. With :math:`\tilde Y` from elsewhere, such as the network whose
    tangent features these are, :math:`\tilde\theta = \tilde X^\top(\tilde K + bI)^{-1}\tilde Y` takes the place of
    :math:`\tilde P\hat\theta`:

    .. math:: \|\hat\theta - \tilde\theta\|^2 = \|(I - \tilde P)\hat\theta\|^2 + \|V^\top(\hat\theta - \tilde\theta)\|^2

    Args:
        pair: The two row spaces.
        Y: Training responses, shape ``(n,)`` or ``(n, c)``.
        ridge: Added to both Gram matrices, or a pair for (train, ood).
        pseudo_labels: Responses of the shifted inputs, shape ``(m,)`` or ``(m, c)``; by default what the training fit
            predicts for them.

    Raises:
        InputError: If `Y` or `pseudo_labels` do not fit the pair, or a ridge is negative.

    >>> pair = LinearPair.from_features([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [[3.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    >>> round(projnorm_linear_of_pair(pair, [2.0, 1.0]).value, 6)
    1.0
    >>> round(projnorm_linear_of_pair(pair, [2.0, 1.0], ridge=(0.0, 1.0)).value, 6)  # less is learnt of the labels
    1.004988
    """
    ridge_train, ridge_ood = _as_ridge(ridge)
    fit = pair.fit(Y)
    lam = pair.ood_eigenvalues[:, None]
    theta = pair.ridge_coordinates(fit, ridge_train)
    seen = pair.cosines @ theta
    if pseudo_labels is None:
        labels = None
        unlearnt = (ridge_ood / (lam + ridge_ood)) * seen
    else:
        labels = pair.as_ood_responses(pseudo_labels, "pseudo_labels", outputs=theta.shape[1])
        unlearnt = seen - (lam / (lam + ridge_ood)) * pair.ood_coordinates(labels)
    return PairProjNormLinear(
        value=math.hypot(pair.distance_to_ood(theta), frobenius(unlearnt)),
        rank=pair.ood_rank,
        method="pair",
        error_estimate=_error_of_square(pair, fit, labels),
        theta_norm=frobenius(theta),
        train_rank=pair.train_rank,
        training_residual=fit.residual,
        ridge=(ridge_train, ridge_ood),
    )


def projnorm_linear_from_gram(
    k_train: ArrayLike,
    Y: ArrayLike,
    k_ood_train: ArrayLike,
    k_ood: ArrayLike,
    *,
    rcond: float | None = None,
    ridge: float | tuple[float, float] = 0.0,
    pseudo_labels: ArrayLike | None = None,
) -> PairProjNormLinear:
    r"""ProjNormLinear of the minimum-norm solution when only kernels were kept.

    .. math:: \operatorname{tr}(\alpha^\top K\alpha) - \operatorname{tr}\bigl((C\alpha)^\top \tilde K^{+} C\alpha\bigr),
              \qquad \alpha = K^{+} Y

    is its square. The two terms cancel when the value is small; `error_estimate` says how much of the square is
    rounding.

    Args:
        k_train: :math:`K = XX^\top`, shape ``(n, n)``.
        Y: Training responses, shape ``(n,)`` or ``(n, c)``.
        k_ood_train: :math:`C = \tilde XX^\top`, shape ``(m, n)``.
        k_ood: :math:`\tilde K = \tilde X\tilde X^\top`, shape ``(m, m)``.
        rcond: On singular values of the features; squared on the Gram matrices. Default ``sqrt(rows * eps)``.
        ridge: Added to both Gram matrices, or a pair for (train, ood).
        pseudo_labels: As in `projnorm_linear_of_pair`.

    Returns:
        ProjNormLinear, its rounding error and the ranks of both kernels.

    Raises:
        InputError: If a block is not what its name says, or the three cannot come from the same features.

    >>> import numpy as np
    >>> X, X_ood = np.array([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), np.array([[3.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    >>> result = projnorm_linear_from_gram(X @ X.T, [2.0, 1.0], X_ood @ X.T, X_ood @ X_ood.T)
    >>> round(result.value, 6), result.rank
    (1.0, 2)
    """
    pair = LinearPair.from_gram(k_train, k_ood_train, k_ood, rcond=rcond)
    return projnorm_linear_of_pair(pair, Y, ridge=ridge, pseudo_labels=pseudo_labels)


def _as_ridge(ridge: float | tuple[float, float]) -> tuple[float, float]:
    if isinstance(ridge, tuple | list):
        if len(ridge) != 2:
            raise InputError(f"`ridge` must be a number or a pair (train, ood); got {ridge!r}.")
        return as_non_negative(ridge[0], "ridge"), as_non_negative(ridge[1], "ridge")
    number = as_non_negative(ridge, "ridge")
    return number, number


def _error_of_square(pair: LinearPair, fit: TrainingFit, labels: FloatArray | None) -> float:
    """First-order effect on ``value**2`` of an error ``noise * ||block||`` in each Gram block.

    The square is ``a^T K a - 2 d^T C a + d^T K~ d`` with ``a = K^+ Y`` and ``d = K~^+ Y~``. Its derivatives are made of
    these, of ``b = K~^+ C a`` and ``g = K^+ C^T d``, and of the parts of `Y` and of the labels outside the column
    spaces. Without labels of another model Y~ is ``C a``, and d is b. A ridge only damps all this.
    """
    if pair.noise == 0.0 or fit.norm == 0.0:
        return 0.0
    s, t = pair.train_singular_values, pair.ood_singular_values

    # Norms of coordinates divided by the singular values over the largest, which makes up for the norms of the blocks.
    def in_train(coordinates: FloatArray, power: int = 1) -> float:
        return frobenius(coordinates / ((s / s[0]) ** power)[:, None])

    def in_ood(coordinates: FloatArray, power: int = 1) -> float:
        return frobenius(coordinates / ((t / t.max(initial=0.0)) ** power)[:, None])

    theta, seen = fit.coordinates, pair.cosines @ fit.coordinates
    retrained, outside, through_labels = seen, 0.0, 0.0
    if labels is not None:
        retrained = pair.ood_coordinates(labels)
        outside = frobenius(labels - pair.ood_left @ (pair.ood_left.T @ labels)) / float(t[0]) if t.size else 0.0
        through_labels = 2 * in_ood(retrained) * in_ood(seen)
    back, residual = pair.cosines.T @ retrained, fit.residual / float(s[0])
    a, d, g = in_train(theta), in_ood(retrained), in_train(back)
    within = a * a + 2 * a * d + 2 * g * a + d * d + through_labels
    beyond = 2 * residual * (in_train(theta, 3) + in_train(back, 3))
    beyond += 2 * outside * (in_ood(retrained, 3) + in_ood(seen, 3))
    return pair.noise * (within + beyond)
