"""Turns what callers pass into clean float64 arrays, or says in one line what is wrong with it.

Every message names the argument, what was required, what arrived, and the remedy where there is one.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from projnorm_theory.errors import InputError
from projnorm_theory.norms import sum_of_squares

FloatArray = NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)


def as_matrix(value: ArrayLike, name: str, *, columns: int | None = None, columns_like: str = "X") -> FloatArray:
    """A finite, non-empty float64 matrix, one example per row; a copy only where the input forces one."""
    array = _as_float64(value, name)
    if array.ndim != 2:
        raise InputError(
            f"`{name}` must be 2-D, one example per row; got shape {array.shape}."
            + (f" For a single example pass {name}.reshape(1, -1)." if array.ndim == 1 else "")
        )
    _require_non_empty(array, name)
    if columns is not None and array.shape[1] != columns:
        raise InputError(f"`{name}` must have {columns} columns like `{columns_like}`; got shape {array.shape}.")
    _require_finite(array, name)
    return array


def as_rows(value: ArrayLike, name: str, *, rows: int, rows_like: str) -> FloatArray:
    """A finite float64 vector or matrix with one row per row (or column) of something else."""
    array = _as_float64(value, name)
    if array.ndim not in (1, 2):
        raise InputError(f"`{name}` must be 1-D or 2-D; got shape {array.shape}.")
    _require_non_empty(array, name)
    if array.shape[0] != rows:
        raise InputError(f"`{name}` must have {rows} rows like {rows_like}; got shape {array.shape}.")
    _require_finite(array, name)
    return array


def as_gram(value: ArrayLike, name: str) -> FloatArray:
    """A square, symmetric Gram matrix; asymmetry at the level of float32 rounding is averaged away."""
    gram = as_matrix(value, name)
    if gram.shape[0] != gram.shape[1]:
        raise InputError(f"`{name}` must be square; got shape {gram.shape}.")
    scale = float(np.abs(gram).max())
    asymmetry = float(np.abs(gram - gram.T).max())
    if asymmetry > 1e-5 * scale:
        raise InputError(
            f"`{name}` must be symmetric; entries differ from their mirror image by up to {asymmetry:.3g} "
            f"where the largest entry is {scale:.3g}."
        )
    return gram if asymmetry == 0.0 else (gram + gram.T) / 2


def as_cross_gram(value: ArrayLike, n: int, m: int) -> FloatArray:
    """The block between two Gram matrices of `n` training and `m` shifted examples."""
    block = as_matrix(value, "k_ood_train")
    if block.shape != (m, n):
        raise InputError(
            f"`k_ood_train` must have shape {(m, n)}, one row per row of `k_ood` and one column per row of `k_train`; "
            f"got {block.shape}."
        )
    return block


def precision_of(value: ArrayLike) -> float:
    """Rounding unit of what was passed: that of its own type where it is coarser than float64."""
    try:
        dtype = np.asarray(value).dtype
    except (TypeError, ValueError):
        return EPS  # not an array of numbers, as its conversion will say
    return max(EPS, float(np.finfo(dtype).eps)) if dtype.kind == "f" else EPS


def as_vector(value: ArrayLike, name: str) -> FloatArray:
    """A finite, non-empty float64 vector; its squares may overflow."""
    array = _as_float64(value, name)
    if array.ndim != 1:
        raise InputError(f"`{name}` must be 1-D; got shape {array.shape}.")
    _require_non_empty(array, name)
    if not np.all(np.isfinite(array)):
        _require_finite(array, name)
    return array


def as_finite_result(value: float, what: str) -> float:
    """`value`, unless it overflowed on the way."""
    if not math.isfinite(value):
        raise InputError(f"{what} overflows float64; rescale the inputs.")
    return value


def as_count(value: Any, name: str, *, low: int, high: int | None = None, because: str = "") -> int:
    """A whole number in ``[low, high]``; `because` says where the limit comes from."""
    try:
        count = operator.index(value)
    except TypeError:
        raise InputError(f"`{name}` must be a whole number; got {value!r}.") from None
    if count < low or (high is not None and count > high):
        allowed = f"at least {low}" if high is None else f"between {low} and {high}"
        raise InputError(f"`{name}` must be {allowed}{because}; got {count}.")
    return count


def as_non_negative(value: Any, name: str) -> float:
    """A finite float that is zero or more."""
    number = _as_float(value, name)
    if not math.isfinite(number) or number < 0.0:
        raise InputError(f"`{name}` must be finite and zero or more; got {value!r}.")
    return number


def as_fraction(value: Any, name: str) -> float:
    """A float strictly between 0 and 1."""
    number = _as_float(value, name)
    if not 0.0 < number < 1.0:
        raise InputError(f"`{name}` must lie strictly between 0 and 1; got {value!r}.")
    return number


def as_rcond(value: float | None, default: float) -> float:
    """The relative cut-off on singular values, or its default."""
    if value is None:
        return default
    rcond = _as_float(value, "rcond")
    if not 0.0 <= rcond < 1.0:
        raise InputError(f"`rcond` must lie in [0, 1); got {value!r}.")
    return rcond


def as_range(value: Any, name: str) -> tuple[float, float]:
    """A pair ``(low, high)`` of non-negative numbers; one number stands for both."""
    if isinstance(value, tuple | list) or np.ndim(value) > 0:
        if len(value) != 2:
            raise InputError(f"`{name}` must be a number or a pair (low, high); got {value!r}.")
        low, high = (as_non_negative(end, name) for end in value)
        if low > high:
            raise InputError(f"`{name}` must have low <= high; got {value!r}.")
        return low, high
    number = as_non_negative(value, name)
    return number, number


def _as_float(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"`{name}` must be a number; got {value!r}.") from None


def _as_float64(value: ArrayLike, name: str) -> FloatArray:
    if np.ma.is_masked(value):
        raise InputError(f"`{name}` has masked entries; fill or drop them first.")
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "biufO":
            raise TypeError
        array = np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"`{name}` must be an array of real numbers with a regular shape.") from None
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        array = np.ascontiguousarray(array)
    return array


def _require_non_empty(array: FloatArray, name: str) -> None:
    if array.size == 0:
        raise InputError(f"`{name}` must not be empty; got shape {array.shape}.")


def _require_finite(array: FloatArray, name: str) -> None:
    # A finite sum of squares proves every entry finite in one pass, with no temporary of the array's size.
    if math.isfinite(sum_of_squares(array)):
        return
    bad = np.argwhere(~np.isfinite(array))
    if bad.size:
        where = ", ".join(map(str, bad[0]))
        raise InputError(f"`{name}` must be finite; {len(bad)} entries are NaN or infinite, the first at [{where}].")
    raise InputError(f"`{name}` is so large that its sum of squares overflows float64; rescale it.")
