"""What a Gram matrix ``X X^T`` tells of the row space of `X`, when `X` itself was never kept."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from projnorm_theory.errors import InputError
from projnorm_theory.validation import FloatArray, as_gram, as_non_negative, as_rcond, precision_of

# A matrix whose most negative eigenvalue is this large against the largest is no Gram matrix, not even one
# accumulated in half precision.
_NOT_A_GRAM = 1e-2
# A handful of operations stands between any Gram matrix and an answer, however small it is.
LEAST_ROUNDINGS = 40
# Rounding makes eigenvalues positive as easily as negative; the most negative one seen is a sample of its size.
_NOISE_OVER_NEGATIVE = 16.0


@dataclass(frozen=True, slots=True, eq=False)
class GramSpace:
    """Eigendecomposition of a Gram matrix, cut where rounding takes over.

    Attributes:
        left: Eigenvectors of the Gram matrix, the left singular vectors of `X`, shape ``(n, rank)``.
        singular_values: Singular values of `X` kept, descending, shape ``(rank,)``.
        rcond: Singular values up to ``rcond * s_max`` were counted as zero.
        noise: Error of the Gram matrix against its largest eigenvalue: rounding in the type it came in, or what
            negative eigenvalues betray of a coarser one.
        undecided: Number of eigenvalues counted as zero that rounding may hide; 0 where the caller set the rank through
            `rcond`.
    """

    left: FloatArray
    singular_values: FloatArray
    rcond: float
    noise: float
    undecided: int

    @classmethod
    def from_gram(cls, K: ArrayLike, *, name: str = "K", rcond: float | None = None, noise: float = 0.0) -> GramSpace:
        """Factor the Gram matrix `K`.

        Args:
            K: Symmetric positive semi-definite, shape ``(n, n)``.
            name: What error messages call it.
            rcond: Singular values of `X` up to ``rcond * s_max`` count as zero, so eigenvalues of `K` up to
                ``rcond**2`` times the largest. Default ``sqrt(n * eps)``, or what the negative eigenvalues betray of
                a coarser rounding.
            noise: What is known of the error of `K` against its largest eigenvalue, where its type does not tell: for
                a matrix of float64 made from float32 products, say.

        Raises:
            InputError: If `K` is not a finite, symmetric, positive semi-definite matrix.
        """
        precision, noise = precision_of(K), as_non_negative(noise, "noise")
        K = as_gram(K, name)
        n = K.shape[0]
        eigenvalues, left = np.linalg.eigh(K)
        largest, smallest = float(eigenvalues[-1]), float(eigenvalues[0])
        if smallest < 0.0 and -smallest > _NOT_A_GRAM * largest:
            raise InputError(
                f"`{name}` must be positive semi-definite; its eigenvalues run from {smallest:.3g} to {largest:.3g}."
            )
        coarseness = _NOISE_OVER_NEGATIVE * -smallest / largest if smallest < 0.0 else 0.0
        cut = as_rcond(rcond, math.sqrt(max(n * precision, coarseness, noise)))
        noise = max(n * precision, LEAST_ROUNDINGS * precision, coarseness, noise)
        rank = int(np.count_nonzero(eigenvalues > cut**2 * largest))
        kept = eigenvalues[::-1][:rank]
        return cls(left[:, ::-1][:, :rank], np.sqrt(kept), cut, noise, n - rank if rcond is None else 0)

    @property
    def rank(self) -> int:
        """Numerical rank."""
        return self.singular_values.size
