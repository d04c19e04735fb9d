"""Matrix norms as plain floats, with empty matrices allowed.

They go through scipy's BLAS for the reason that `products` gives.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

# BLAS counts in 32 bits.
_BLOCK = 2**30


def frobenius(A: NDArray[np.float64]) -> float:
    """Root of the sum of squares, safe from overflow; the Euclidean norm of a vector."""
    flat = A.ravel(order="K")
    if flat.size <= _BLOCK:
        return float(blas.dnrm2(flat)) if flat.size else 0.0
    return frobenius(np.array([frobenius(block) for block in _blocks(flat)]))


def sum_of_squares(A: NDArray[np.float64]) -> float:
    """Sum of the squares of the entries; infinite or nan where one of them is, or where they overflow."""
    return sum(float(blas.ddot(block, block)) for block in _blocks(A.ravel(order="K")))


def spectral(A: NDArray[np.float64]) -> float:
    """Largest singular value of a matrix; 0 for an empty one."""
    return float(np.linalg.norm(A, 2)) if A.size else 0.0


def _blocks(flat: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    return [flat[start : start + _BLOCK] for start in range(0, flat.size, _BLOCK)]
