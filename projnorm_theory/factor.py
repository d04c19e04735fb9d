"""The cheapest factorisation of a matrix that still answers to ``eps * cond``.

Three interchangeable factors solve for the minimum norm and take the residual of the projection:

* `GramFactor`: Cholesky of ``X X^T`` with iterative refinement, where `X` is well conditioned;
* `QRFactor`: Householder QR, where it is not but certainly has full rank;
* `RowSpace`: the singular value decomposition, for everything else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from scipy import linalg
from scipy.linalg import lapack

from projnorm_theory.errors import InputError
from projnorm_theory.norms import frobenius
from projnorm_theory.products import gram_upper, times
from projnorm_theory.row_space import RowSpace, default_rcond, remove_span
from projnorm_theory.validation import FloatArray, as_rcond

METHODS = ("auto", "gram", "qr", "svd")

# The Gram route squares the condition number. Refinement wins it back with a contraction of about
# n * eps * cond(K) a step, so cond(K) is kept far enough from 1/eps that a condition estimate off by
# a hundred does no harm. A step below the last constant leaves an error far below eps * cond.
_GRAM_MIN_RECIPROCAL_CONDITION = 1e-9
_GRAM_MAX_REFINEMENTS = 3
_GRAM_LAST_STEP = 1e-10


class Factor(Protocol):
    """What the three factorisations have in common."""

    @property
    def method(self) -> str:
        """Which factorisation served."""
        ...

    @property
    def rank(self) -> int:
        """Numerical rank of `X`."""
        ...

    def solve(self, Y: FloatArray, /) -> FloatArray:
        """Minimum-norm least-squares solution of ``X theta = Y``."""
        ...

    def residual(self, theta: FloatArray, /) -> FloatArray:
        """`theta` minus its projection on the row space of `X`."""
        ...


def factor(X: FloatArray, *, precision: float, rcond: float | None = None, method: str = "auto") -> Factor:
    """Factor `X`, a validated matrix, by the cheapest method that is accurate on it, or by the one named.

    `precision` is the rounding unit of the type `X` came in, from which the default of `rcond` follows.

    A method that is named is refused where `X` is too ill conditioned for it.
    """
    if method not in METHODS:
        raise InputError(f"`method` must be one of {', '.join(map(repr, METHODS))}; got {method!r}.")
    rcond = as_rcond(rcond, default_rcond(X.shape, precision))
    if method in ("auto", "gram"):
        gram = GramFactor.from_matrix(X, rcond)
        if gram is not None:
            return gram
    if method in ("auto", "qr"):
        qr = QRFactor.from_matrix(X, rcond)
        if qr is not None:
            return qr
    if method in ("auto", "svd"):
        return RowSpace.from_matrix(X, rcond=rcond)
    raise InputError(
        f"`method` {method!r} needs {_REQUIREMENT[method]}, and `X` of shape {X.shape} is not; "
        "use method='auto' or 'svd'."
    )


_REQUIREMENT = {
    "gram": "a well-conditioned matrix with no more rows than columns",
    "qr": "a matrix of full rank",
}


@dataclass(frozen=True, slots=True, eq=False)
class GramFactor:
    """Cholesky factor of ``X X^T``, for well-conditioned `X` with at most as many rows as columns."""

    method: ClassVar[str] = "gram"

    X: FloatArray
    cholesky: FloatArray

    @classmethod
    def from_matrix(cls, X: FloatArray, rcond: float) -> GramFactor | None:
        """The factor, or None where the shortcut would lose accuracy or misjudge the rank."""
        n, d = X.shape
        if n > d:
            return None
        K = gram_upper(X)
        norm = math.sqrt(2) * frobenius(K)  # at least the Frobenius norm of the whole
        cholesky, failed_at = lapack.dpotrf(K, lower=0, clean=0, overwrite_a=1)
        if failed_at:
            return None
        reciprocal_condition, _ = lapack.dpocon(cholesky, norm, uplo="U")
        if reciprocal_condition < max(_GRAM_MIN_RECIPROCAL_CONDITION, 100 * rcond**2):
            return None
        return cls(X, cholesky)

    @property
    def rank(self) -> int:
        """Number of rows: the factor exists only at full row rank."""
        return self.X.shape[0]

    def solve(self, Y: FloatArray) -> FloatArray:
        """Minimum-norm interpolator, refined until a step no longer moves it."""
        theta = self._dual(Y)
        for _ in range(_GRAM_MAX_REFINEMENTS):
            step = self._dual(Y - times(self.X, theta))
            theta += step
            if _is_last(step, theta):
                break
        return theta

    def residual(self, theta: FloatArray) -> FloatArray:
        """`theta` minus its projection, re-projected until nothing in the row space is left."""
        rest = theta - self._dual(times(self.X, theta))
        for _ in range(_GRAM_MAX_REFINEMENTS):
            step = self._dual(times(self.X, rest))
            rest -= step
            if _is_last(step, theta):
                break
        return rest

    def _dual(self, outputs: FloatArray) -> FloatArray:
        return times(self.X.T, linalg.cho_solve((self.cholesky, False), outputs, check_finite=False))


@dataclass(frozen=True, slots=True, eq=False)
class QRFactor:
    """QR of ``X^T`` (or of `X` where it is tall), for `X` that certainly has full rank."""

    method: ClassVar[str] = "qr"

    Q: FloatArray
    R: FloatArray
    wide: bool

    @classmethod
    def from_matrix(cls, X: FloatArray, rcond: float) -> QRFactor | None:
        """The factor, or None where only singular values can settle the rank."""
        n, d = X.shape
        wide = n <= d
        Q, R = linalg.qr(X.T if wide else X, mode="economic", check_finite=False)
        reciprocal_condition, _ = lapack.dtrcon(R, norm="1", uplo="U")
        if reciprocal_condition <= 10 * min(n, d) * rcond:
            return None
        return cls(Q, R, wide)

    @property
    def rank(self) -> int:
        """The smaller side of `X`."""
        return self.R.shape[0]

    def solve(self, Y: FloatArray) -> FloatArray:
        """Minimum-norm interpolator of a wide `X`, least-squares solution of a tall one."""
        if self.wide:
            return self.Q @ linalg.solve_triangular(self.R, Y, trans="T", check_finite=False)
        return linalg.solve_triangular(self.R, self.Q.T @ Y, check_finite=False)

    def residual(self, theta: FloatArray) -> FloatArray:
        """`theta` minus its projection; a tall `X` of full rank spans everything."""
        return remove_span(self.Q, theta) if self.wide else np.zeros_like(theta)


def _is_last(step: FloatArray, theta: FloatArray) -> bool:
    return frobenius(step) <= _GRAM_LAST_STEP * frobenius(theta)
