"""Large matrix products that stay in scipy's thread pool.

numpy and scipy each bring a BLAS with threads of its own, and the idle threads of one spin while the other works. A
route that multiplies in numpy and factors in scipy takes up to twice as long on two cores as one that stays in scipy.
"""

from __future__ import annotations

from scipy.linalg import blas

from projnorm_theory.validation import FloatArray


def times(A: FloatArray, B: FloatArray) -> FloatArray:
    """``A @ B`` for a contiguous matrix `A` and a vector or matrix `B`."""
    a, transposed = (A.T, 1) if A.flags.c_contiguous else (A, 0)
    return blas.dgemv(1.0, a, B, trans=transposed) if B.ndim == 1 else blas.dgemm(1.0, a, B, trans_a=transposed)


def gram_upper(X: FloatArray) -> FloatArray:
    """Upper triangle of ``X X^T`` for a contiguous `X`; below the diagonal it is zero."""
    return blas.dsyrk(1.0, X.T, trans=1) if X.flags.c_contiguous else blas.dsyrk(1.0, X)
