"""The minimum-norm interpolator: where gradient descent from zero ends on an overparameterised linear model."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import ArrayLike

from projnorm_theory.errors import InputError
from projnorm_theory.factor import factor
from projnorm_theory.norms import frobenius, sum_of_squares
from projnorm_theory.products import times
from projnorm_theory.results import Result
from projnorm_theory.validation import FloatArray, as_finite_result, as_matrix, as_rows, precision_of


@dataclass(frozen=True, slots=True, eq=False)
class MinNormSolution(Result):
    """Minimum-norm solution, with how it was computed.

    Attributes:
        theta: The weights, shape ``(d,)`` or ``(d, c)`` as `Y` has one or more outputs.
        rank: Numerical rank of `X` used.
        method: "gram", "qr" or "svd", whichever served.
        residual_norm: ``||X theta - Y||``, Frobenius for several outputs; rounding only when `X` interpolates `Y`.
    """

    theta: FloatArray
    rank: int
    method: str
    residual_norm: float


def min_norm_solution(
    X: ArrayLike, Y: ArrayLike, *, rcond: float | None = None, method: str = "auto"
) -> MinNormSolution:
    r"""The shortest weights among those that fit the training data best.

    .. math:: \hat\theta = X^{+} Y

    With full row rank it interpolates; else it is the shortest least-squares solution.

    Args:
        X: Training inputs, shape ``(n, d)``, one example per row.
        Y: Responses, shape ``(n,)`` or ``(n, c)``.
        rcond: Singular values up to ``rcond * s_max`` count as zero. Default ``max(n, d) * eps``, with the eps of
            the type of `X`.
        method: "auto" takes the cheapest of "gram", "qr" and "svd" that is accurate on this `X`; naming one insists
            on it.

    Raises:
        InputError: If a shape is wrong, an entry is not finite, or `X` is too ill conditioned for the `method` named.

    >>> min_norm_solution([[3.0, 4.0]], [5.0]).theta.round(12).tolist()
    [0.6, 0.8]
    """
    precision = precision_of(X)
    X = as_matrix(X, "X")
    Y = as_rows(Y, "Y", rows=X.shape[0], rows_like="`X`")
    chosen = factor(X, precision=precision, rcond=rcond, method=method)
    theta = chosen.solve(Y)
    return MinNormSolution(theta, chosen.rank, chosen.method, frobenius(times(X, theta) - Y))


def ood_loss(theta: ArrayLike, X_ood: ArrayLike, Y_ood: ArrayLike) -> float:
    r"""The paper's TestLoss: squared error on the shifted data, summed over outputs, averaged over examples.

    .. math:: \tfrac1m \|\tilde X \theta - \tilde Y\|_F^2

    Args:
        theta: Weights, shape ``(d,)`` or ``(d, c)``.
        X_ood: Shifted inputs, shape ``(m, d)``.
        Y_ood: Their true responses, shape ``(m,)`` or ``(m, c)``.

    Raises:
        InputError: If a shape is wrong or an entry is not finite.

    >>> ood_loss([1.0, 0.0], [[2.0, 5.0], [1.0, 1.0]], [0.0, 1.0])
    2.0
    """
    X_ood = as_matrix(X_ood, "X_ood")
    theta = as_rows(theta, "theta", rows=X_ood.shape[1], rows_like="the columns of `X_ood`")
    Y_ood = as_rows(Y_ood, "Y_ood", rows=X_ood.shape[0], rows_like="`X_ood`")
    predicted = X_ood @ theta
    if predicted.shape != Y_ood.shape:
        raise InputError(
            f"`Y_ood` must have the shape {predicted.shape} of the predictions `X_ood @ theta`; got {Y_ood.shape}."
        )
    return as_finite_result(sum_of_squares(predicted - Y_ood) / X_ood.shape[0], "the test loss")
