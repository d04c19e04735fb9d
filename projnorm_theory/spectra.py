"""Spectra, their decay, and how the eigenvectors of the two covariances lie to each other."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from projnorm_theory.errors import InputError
from projnorm_theory.linear_pair import LinearPair, as_pair
from projnorm_theory.norms import spectral
from projnorm_theory.results import Result
from projnorm_theory.row_space import default_rcond, triangular_factor
from projnorm_theory.validation import FloatArray, as_count, as_fraction, as_matrix, as_rcond, as_vector, precision_of


@dataclass(frozen=True, slots=True, eq=False)
class Spectrum(Result):
    r"""Nonzero eigenvalues of :math:`X^\top X`.

    Attributes:
        eigenvalues: Descending, not divided by the number of examples, shape ``(rank,)``.
        n_examples: Number of rows of `X`.
        rcond: Singular values up to ``rcond * s_max`` were counted as zero.
    """

    eigenvalues: FloatArray
    n_examples: int
    rcond: float

    @property
    def rank(self) -> int:
        """Numerical rank of `X`."""
        return self.eigenvalues.size

    @property
    def condition(self) -> float:
        """Condition number of `X` on its row space; nan for a zero matrix."""
        return math.sqrt(self.eigenvalues[0] / self.eigenvalues[-1]) if self.rank else math.nan


@dataclass(frozen=True, slots=True, eq=False)
class PowerLawFit(Result):
    """``eigenvalue_i ~ prefactor * i**(-exponent)``, a line in log-log coordinates.

    Attributes:
        exponent: The decay.
        low: Lower end of its confidence interval.
        high: Upper end.
        prefactor: The fitted eigenvalue at index 1.
        r_squared: Share of the variance of the log eigenvalues explained; nan where they do not vary.
        first: Index of the first eigenvalue used, from 1.
        last: Index of the last one.
        confidence: Level of the interval.
    """

    exponent: float
    low: float
    high: float
    prefactor: float
    r_squared: float
    first: int
    last: int
    confidence: float


@dataclass(frozen=True, slots=True, eq=False)
class Alignment(Result):
    r"""How the leading eigenvectors of the two covariances lie to each other.

    Attributes:
        matrix: :math:`H_{ji} = |\langle v_j, u_i\rangle|`, row for the shifted eigenvector, shape ``(k, k)``.
        overlap: Share of the top-j training span that the top-j shifted span holds, for j = 1..k:
            :math:`\|V_j^\top U_j\|_F^2 / j`. 1 where the spans coincide, 0 where they are orthogonal.
        bessel: Largest squared row or column sum of the whole alignment matrix; 1 at most, but for rounding.
    """

    matrix: FloatArray
    overlap: FloatArray
    bessel: float


def spectrum(X: ArrayLike, *, rcond: float | None = None) -> Spectrum:
    r"""Eigenvalues of :math:`X^\top X`, from the singular values of `X`.

    Args:
        X: One example per row, shape ``(n, d)``.
        rcond: Singular values up to ``rcond * s_max`` count as zero. Default ``max(n, d) * eps``.

    Raises:
        InputError: If `X` is not a finite, non-empty matrix.

    >>> spectrum([[0.0, 2.0], [1.0, 0.0]]).eigenvalues.tolist()
    [4.0, 1.0]
    """
    precision = precision_of(X)
    X = as_matrix(X, "X")
    rcond = as_rcond(rcond, default_rcond(X.shape, precision))
    s = np.linalg.svd(triangular_factor(X.T if X.shape[0] <= X.shape[1] else X), compute_uv=False)
    return Spectrum(s[s > rcond * s[0]] ** 2, X.shape[0], rcond)


def fit_power_law(
    eigenvalues: ArrayLike, *, first: int = 1, last: int | None = None, confidence: float = 0.95
) -> PowerLawFit:
    """Fit a power law to a descending spectrum by least squares in log-log coordinates.

    Neighbouring eigenvalues err together, so the classical standard error is too small. The interval uses the larger
    of it and the Newey-West one, with Student's t.

    Args:
        eigenvalues: Positive and descending.
        first: Index of the first eigenvalue to use, from 1; the leading few often lie off the line.
        last: Index of the last. Default: all.
        confidence: Level of the interval for the exponent.

    Raises:
        InputError: If fewer than three eigenvalues are in range, or one is not positive, or they do not descend.

    >>> fit = fit_power_law([i**-1.5 for i in range(1, 100)])
    >>> round(fit.exponent, 6), round(fit.prefactor, 6)
    (1.5, 1.0)
    """
    values = as_vector(eigenvalues, "eigenvalues")
    confidence = as_fraction(confidence, "confidence")
    first = as_count(first, "first", low=1)
    last = values.size if last is None else as_count(last, "last", low=1, high=values.size, because=" eigenvalues")
    used = values[first - 1 : last]
    if used.size < 3:
        raise InputError(
            f"`eigenvalues` must have at least 3 between `first` = {first} and `last` = {last}; got {used.size}."
        )
    if used[-1] <= 0.0:
        raise InputError("`eigenvalues` must be positive in the range fitted; pass `last` to leave the zeros out.")
    if np.any(np.diff(used) > 0.0):
        raise InputError("`eigenvalues` must be in descending order.")

    log_index, log_value = np.log(np.arange(first, last + 1)), np.log(used)
    centred = log_index - log_index.mean()
    slope = float(centred @ log_value / (centred @ centred))
    residuals = log_value - log_value.mean() - slope * centred
    variance = float(np.sum((log_value - log_value.mean()) ** 2))
    margin = float(stdtrit(used.size - 2, 0.5 + confidence / 2)) * _slope_error(centred, residuals)
    return PowerLawFit(
        exponent=-slope,
        low=-slope - margin,
        high=-slope + margin,
        prefactor=math.exp(float(log_value.mean() - slope * log_index.mean())),
        r_squared=1.0 - float(residuals @ residuals) / variance if variance else math.nan,
        first=first,
        last=last,
        confidence=confidence,
    )


def alignment(X: ArrayLike | LinearPair, X_ood: ArrayLike | None = None, k: int | None = None) -> Alignment:
    r"""Alignment of the top-k eigenvectors of the two covariances.

    Args:
        X: Training inputs, shape ``(n, d)``; or a `LinearPair`, and then no `X_ood`.
        X_ood: Shifted inputs, shape ``(m, d)``.
        k: How many eigenvectors of each. Default: the smaller rank.

    Raises:
        InputError: If a shape is wrong, an entry is not finite, or `k` is out of range.

    >>> result = alignment([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [[3.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    >>> result.matrix.round(6).tolist(), result.overlap.round(6).tolist()  # the first eigenvector is shared
    ([[1.0, 0.0], [0.0, 0.0]], [1.0, 0.5])
    """
    pair = as_pair(X, X_ood)
    k = _as_top(k, pair)
    squares = pair.cosines**2
    # The corner sums of the squares for every j at once.
    corners = np.cumsum(np.cumsum(squares[:k, :k], axis=0), axis=1).diagonal()
    bessel = max(squares.sum(axis=0).max(initial=0.0), squares.sum(axis=1).max(initial=0.0))
    assert pair.noise > 0.0 or bessel <= 1.0 + 1e-10
    return Alignment(np.abs(pair.cosines[:k, :k]), corners / np.arange(1, k + 1), float(bessel))


def principal_angles(X: ArrayLike | LinearPair, X_ood: ArrayLike | None = None, k: int | None = None) -> FloatArray:
    """Principal angles between the spans of the top-k eigenvectors, ascending, in radians, shape ``(k,)``.

    Small angles come from their sines and large ones from their cosines, so both keep full accuracy.

    Args:
        X: Training inputs, shape ``(n, d)``; or a `LinearPair`, and then no `X_ood`.
        X_ood: Shifted inputs, shape ``(m, d)``.
        k: Dimension of the spans. Default: the smaller rank.

    Raises:
        InputError: If a shape is wrong, an entry is not finite, or `k` is out of range.

    >>> principal_angles([[2.0, 0.0]], [[1.0, 1.0]], 1).round(12).tolist()
    [0.785398163397]
    """
    pair = as_pair(X, X_ood)
    k = _as_top(k, pair)
    if k == 0:
        return np.zeros(0)
    cosines = np.linalg.svd(pair.cosines[:k, :k], compute_uv=False)
    sines = np.linalg.svd(top_span_sines(pair, k), compute_uv=False)[::-1]
    return np.arctan2(sines, cosines)


def span_gap(pair: LinearPair, k: int) -> float:
    """Sine of the largest principal angle between the two top-k spans; 0 at ``k = 0``."""
    return spectral(top_span_sines(pair, k))


def top_span_sines(pair: LinearPair, k: int) -> FloatArray:
    """Coordinates of what the top-k shifted span misses of the top-k training eigenvectors; `k` columns."""
    return np.vstack([pair.cosines[k:, :k], pair.train_sines[:, :k]])


def _as_top(k: int | None, pair: LinearPair) -> int:
    smaller = min(pair.train_rank, pair.ood_rank)
    return smaller if k is None else as_count(k, "k", low=0, high=smaller, because=", the smaller rank")


def _slope_error(centred: FloatArray, residuals: FloatArray) -> float:
    """The larger of the classical and the Newey-West standard error of a slope."""
    n = residuals.size
    spread = float(centred @ centred)
    classical = float(residuals @ residuals) / (n - 2) / spread
    score = centred * residuals
    lags = math.floor(4 * (n / 100) ** (2 / 9))
    long_run = float(score @ score)
    for lag in range(1, min(lags, n - 1) + 1):
        long_run += 2 * (1 - lag / (lags + 1)) * float(score[lag:] @ score[:-lag])
    return math.sqrt(max(classical, long_run * n / (n - 2) / spread**2))
