"""The row space of a matrix, factored once by a singular value decomposition."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from projnorm_theory.validation import FloatArray, as_matrix, as_rcond, as_rows, precision_of


@dataclass(frozen=True, slots=True, eq=False)
class RowSpace:
    r"""The row space of ``X`` with everything its factorisation gives.

    .. math:: X = A \,\mathrm{diag}(s)\, V^\top, \qquad P = V V^\top

    The projector `P` is applied, never formed.

    Attributes:
        left: Left singular vectors :math:`A`, shape ``(n, rank)``.
        singular_values: The singular values kept, descending, shape ``(rank,)``.
        basis: Orthonormal basis :math:`V` of the row space, shape ``(d, rank)``; column `i` is the eigenvector of
            :math:`X^\top X` for ``eigenvalues[i]``.
        rcond: Singular values up to ``rcond * s_max`` were counted as zero.
        precision: Rounding unit of the type that `X` came in.
    """

    method: ClassVar[str] = "svd"

    left: FloatArray
    singular_values: FloatArray
    basis: FloatArray
    rcond: float
    precision: float

    @classmethod
    def from_matrix(
        cls, X: ArrayLike, *, name: str = "X", columns: int | None = None, rcond: float | None = None
    ) -> RowSpace:
        """Factor `X`.

        Args:
            X: One example per row, shape ``(n, d)``.
            name: What error messages call it.
            columns: Number of features required; any by default.
            rcond: Singular values up to ``rcond * s_max`` count as zero. Default: `default_rcond`.

        Raises:
            InputError: If `X` is not a finite, non-empty matrix or `rcond` is out of range.

        >>> space = RowSpace.from_matrix([[3.0, 0.0, 0.0], [0.0, 4.0, 0.0]])
        >>> space.residual([1.0, 1.0, 1.0]).tolist()
        [0.0, 0.0, 1.0]
        >>> space.eigenvalues.tolist()
        [16.0, 9.0]
        """
        precision = precision_of(X)
        X = as_matrix(X, name, columns=columns)
        rcond = as_rcond(rcond, default_rcond(X.shape, precision))
        left, s, basis_T = np.linalg.svd(X, full_matrices=False)
        rank = int(np.count_nonzero(s > rcond * s[0]))
        return cls(left[:, :rank], s[:rank], basis_T[:rank].T, rcond, precision)

    @property
    def rank(self) -> int:
        """Numerical rank of `X`."""
        return self.singular_values.size

    @property
    def dim(self) -> int:
        """Number of features `d`."""
        return self.basis.shape[0]

    @property
    def eigenvalues(self) -> FloatArray:
        r"""Eigenvalues of :math:`X^\top X`, descending, shape ``(rank,)``; the other ``d - rank`` are zero."""
        return self.singular_values**2

    def coordinates(self, theta: ArrayLike) -> FloatArray:
        r"""Coordinates :math:`V^\top \theta` of the projection in `basis`."""
        theta = as_rows(theta, "theta", rows=self.dim, rows_like="the features of `X`")
        return self.basis.T @ theta

    def project(self, theta: ArrayLike) -> FloatArray:
        r""":math:`P\theta`, of the shape of `theta`, ``(d,)`` or ``(d, c)``."""
        return self.basis @ self.coordinates(theta)

    def residual(self, theta: ArrayLike) -> FloatArray:
        r""":math:`(I - P)\theta`, of the shape of `theta`; exactly zero when the rows span the whole space."""
        theta = as_rows(theta, "theta", rows=self.dim, rows_like="the features of `X`")
        return remove_span(self.basis, theta)

    def solve(self, Y: ArrayLike) -> FloatArray:
        r"""Minimum-norm least-squares solution :math:`X^{+} Y`."""
        Y = as_rows(Y, "Y", rows=self.left.shape[0], rows_like="`X`")
        return self.basis @ ((self.left.T @ Y).T / self.singular_values).T


def default_rcond(shape: tuple[int, ...], precision: float) -> float:
    """``max(n, d) * eps`` for the eps of the type the matrix came in, and at most the root of that eps.

    Below this cut-off a singular value is rounding noise.
    """
    return min(max(shape) * precision, math.sqrt(precision))


def triangular_factor(A: FloatArray) -> FloatArray:
    """`R` with ``R^T R = A^T A`` by QR: the Gram matrix of the columns of `A` without squaring its condition."""
    return np.asarray(np.linalg.qr(A, mode="r"))


def remove_span(basis: FloatArray, theta: FloatArray) -> FloatArray:
    """`theta` minus its projection on the orthonormal columns of `basis`.

    The projection is removed twice: the second pass takes away what rounding left of a part that was large.
    """
    dim, rank = basis.shape
    if rank == dim:
        return np.zeros_like(theta)
    rest = theta - basis @ (basis.T @ theta)
    return rest - basis @ (basis.T @ rest)
