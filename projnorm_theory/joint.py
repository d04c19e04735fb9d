"""The joint interval: bounds on the test loss from how much longer the ground truth is when both sets see it.

Section 5 of docs/theory.md. In place of the two projected norms that `rho` compares it takes one number,
``eta = ||P_Z theta*|| / ||P theta*||``, where `Z` holds the rows of both sets.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from scipy.linalg import blas, lapack
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from projnorm_theory.bounds import LossInterval, fit_with_ratio, interval_fields, loss_ends, shown_range
from projnorm_theory.errors import InputError
from projnorm_theory.gram_space import LEAST_ROUNDINGS
from projnorm_theory.linear_pair import LinearPair, as_pair
from projnorm_theory.norms import frobenius
from projnorm_theory.training_fit import TrainingFit
from projnorm_theory.validation import EPS, FloatArray, as_cross_gram, as_gram, as_range, as_rows, precision_of

# A ratio that was measured may fall short of one by rounding.
_ROUNDING_BELOW_ONE = 1e-9
_ETA_ROUNDING = 4 * EPS
# The extreme eigenvalues of a Schur complement of more rows are found by the Lanczos method, to this relative error.
_DENSE_UP_TO = 64
_LANCZOS_TOLERANCE = 1e-4
_KRYLOV = 20  # vectors that the method keeps between restarts
# The Cholesky route needs this reciprocal condition number of the training kernel; below it, eigenvalues are cut.
_LEAST_RECIPROCAL_CONDITION = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class JointInterval(LossInterval):
    r"""A `LossInterval` from the length of the ground truth in the rows of both sets against that in the training rows.

    Attributes:
        eta: The values of :math:`\|P_Z\theta_\star\| / \|P\theta_\star\|` it allows, (low, high).
        smallest: Smallest nonzero eigenvalue :math:`l_{\min}` of the Schur complement
            :math:`\tilde K - C K^{+} C^\top`; 0 where rounding hides whether there is a smaller one.
        largest: Its largest eigenvalue :math:`l_{\max}`; 0 if the training rows determine every shifted direction.
    """

    eta: tuple[float, float]
    smallest: float
    largest: float

    def _given(self) -> str:
        return shown_range("eta", self.eta)


def joint_interval(
    X: ArrayLike | LinearPair, Y: ArrayLike, X_ood: ArrayLike | None = None, *, eta: float | tuple[float, float]
) -> JointInterval:
    r"""The range of test losses possible for a ground truth that both sets see `eta` times as long as the first does.

    With `Z` the stacked rows and :math:`l_j` the nonzero eigenvalues of the Schur complement
    :math:`\tilde K - C K^{+} C^\top`,

    .. math:: (\eta^2 - 1)\,\|\hat\theta\|^2\,\frac{l_{\min}}{m} \le \mathrm{TestLoss}
              \le (\eta^2 - 1)\,\|\hat\theta\|^2\,\frac{l_{\max}}{m}, \qquad
              \eta = \frac{\|P_Z\theta_\star\|}{\|P\theta_\star\|} .

    Both ends are attained, for any number of outputs, nothing is assumed of the spectra, and the ends are continuous in
    the angles between the row spaces, which those of `sharp_interval` are not.

    Args:
        X: Training inputs, shape ``(n, d)``; or a `LinearPair`, and then no `X_ood`.
        Y: Training responses, shape ``(n,)`` or ``(n, c)``.
        X_ood: Shifted inputs, shape ``(m, d)``.
        eta: The ratio, at least 1, or a range (low, high) of it. `joint_ratio` measures it where labels are known.

    Raises:
        InputError: If a shape is wrong, an entry is not finite, `Y` is zero, `eta` is below 1, or it is above 1 and the
            rows of `X_ood` lie in the row space of `X`.

    >>> interval = joint_interval([[1.0, 0.0]], [2.0], [[0.0, 3.0]], eta=2**0.5)
    >>> round(interval.lower, 9), round(interval.upper, 9)  # theta* = (2, 2): the loss is (3 * 2)^2
    (36.0, 36.0)
    """
    pair = as_pair(X, X_ood)
    fit = fit_with_ratio(pair, Y, "eta")
    projnorm = pair.distance_to_ood(fit.coordinates)
    directions = pair.ood_directions()
    free, uncertain = directions.free.shape[1], directions.uncertain.shape[1]
    roots, axes_T = _schur(pair)
    errors = pair.schur_errors(axes_T.T)
    # Rounding moves a root itself from features, and its square from Gram matrices.
    low = np.sqrt(np.maximum(roots**2 - errors**2, 0.0)) if pair.noise else np.maximum(roots - errors, 0.0)
    high = np.hypot(roots, errors) if pair.noise else roots + errors
    certain = free > 0 and uncertain == 0 and not pair.undecided[1]
    return _joint_interval(
        fit,
        pair.n_ood,
        projnorm,
        smallest_projnorm=pair.sine_error * fit.norm,
        eta=as_eta(eta, any_free=free + uncertain > 0),
        assumptions=directions.assumption(),
        roots=(float(low[free - 1]) if certain else 0.0, float(high.max(initial=0.0)) if free + uncertain else 0.0),
    )


def joint_interval_from_gram(
    k_train: ArrayLike, Y: ArrayLike, k_ood_train: ArrayLike, k_ood: ArrayLike, *, eta: float | tuple[float, float]
) -> JointInterval:
    r"""The joint interval from kernels, by two Cholesky factorisations where they are well conditioned.

    .. math:: \begin{pmatrix} K & C^\top \\ C & \tilde K \end{pmatrix}
              = \begin{pmatrix} L & 0 \\ M & N \end{pmatrix}\begin{pmatrix} L & 0 \\ M & N \end{pmatrix}^{\!\top},
              \qquad \|\hat\theta\| = \|L^{-1}Y\|, \quad N N^\top = \tilde K - C K^{-1} C^\top .

    The extreme eigenvalues of the Schur complement come from the Lanczos method, the smallest through its inverse, and
    the ends are moved outwards by its tolerance, 1e-4. ProjNormLinear, which would need another factorisation, is nan
    here: `projnorm_linear_from_gram` has it. That the eigenvalues found are the extreme ones is certain only up to the
    choice of the starting vector. Gram matrices cannot tell whether a direction is free or shared, so `eta` above 1 is
    accepted where features would refuse it. An ill-conditioned training kernel goes through the eigenvalue
    decompositions of `LinearPair.from_gram`.

    Args:
        k_train: :math:`K = XX^\top`, shape ``(n, n)``.
        Y: Training responses, shape ``(n,)`` or ``(n, c)``.
        k_ood_train: :math:`C = \tilde XX^\top`, shape ``(m, n)``.
        k_ood: :math:`\tilde K = \tilde X\tilde X^\top`, shape ``(m, m)``.
        eta: As for `joint_interval`.

    Raises:
        InputError: As `joint_interval` does, or if a block is not what its name says.

    >>> interval = joint_interval_from_gram([[1.0]], [2.0], [[0.0]], [[9.0]], eta=2**0.5)
    >>> round(interval.lower, 1), round(interval.upper, 1)  # as in `joint_interval`, wider by what rounding may hide
    (36.0, 36.0)
    """
    precision = max(precision_of(block) for block in (k_train, k_ood_train, k_ood))
    K, K_ood = as_gram(k_train, "k_train"), as_gram(k_ood, "k_ood")
    n, m = len(K), len(K_ood)
    C = as_cross_gram(k_ood_train, n, m)
    responses = as_rows(Y, "Y", rows=n, rows_like="`k_train`").reshape(n, -1)
    factors = _factor_blocks(K, C, K_ood)
    if factors is None:
        return joint_interval(LinearPair.from_gram(K, C, K_ood, noise=max(n, m) * precision), responses, eta=eta)
    fit, roots = factors.measure(responses, noise=max(n, m, LEAST_ROUNDINGS) * precision)
    if fit.norm == 0.0:
        raise InputError("`Y` must not be fitted by zero weights: `eta` is a ratio to their length.")
    return _joint_interval(fit, m, math.nan, eta=as_eta(eta, any_free=True), roots=roots)


def joint_ratio(
    X: ArrayLike | LinearPair, Y: ArrayLike, X_ood: ArrayLike | None = None, Y_ood: ArrayLike | None = None
) -> float:
    r"""How much longer the ground truth is when seen by both sets than when seen by the first, from labels.

    .. math:: \eta^2 = \frac{F^\top G^{+} F}{Y^\top K^{+} Y}, \qquad F = \begin{pmatrix} Y \\ \tilde Y \end{pmatrix},
              \quad G = Z Z^\top,

    computed as :math:`1 + \|\delta\|^2/\|\hat\theta\|^2` with the shortest :math:`\delta` outside the training row
    space that explains the residuals :math:`\tilde Y - \tilde X\hat\theta`.

    Args:
        X: Training inputs, shape ``(n, d)``; or a `LinearPair`, and then no `X_ood`.
        Y: Training responses, shape ``(n,)`` or ``(n, c)``.
        X_ood: Shifted inputs, shape ``(m, d)``.
        Y_ood: Their true responses, shape ``(m,)`` or ``(m, c)``; required.

    Raises:
        InputError: If a shape is wrong, an entry is not finite, or `Y` is zero.

    >>> round(joint_ratio([[1.0, 0.0]], [2.0], [[0.0, 3.0]], [6.0]) ** 2, 9)  # theta* = (2, 2)
    2.0
    """
    pair = as_pair(X, X_ood)
    if Y_ood is None:
        raise InputError("`Y_ood` is required: eta is measured on the true shifted responses.")
    fit = fit_with_ratio(pair, Y, "eta")
    labels = pair.as_ood_responses(Y_ood, outputs=fit.coordinates.shape[1])
    missing = (pair.ood_left.T @ (labels - pair.ood_predictions(fit.coordinates))) / fit.norm
    roots, axes_T = _schur(pair)
    free = pair.ood_directions().free.shape[1]
    return math.hypot(1.0, frobenius((axes_T[:free] @ missing) / roots[:free, None]))


def as_eta(eta: float | tuple[float, float], *, any_free: bool) -> tuple[float, float]:
    """The range of `eta`, at least 1, and 1 where no direction is left for the ground truth to be longer in."""
    low, high = as_range(eta, "eta")
    if low < 1.0 - _ROUNDING_BELOW_ONE:
        raise InputError(
            f"`eta` must be at least 1: both sets together see no less of theta* than the training rows; got {eta!r}."
        )
    low, high = max(low, 1.0), max(high, 1.0)
    if not any_free and low > 1.0 + _ROUNDING_BELOW_ONE:
        raise InputError(
            f"`eta` must be 1: the rows of `X_ood` lie in the row space of `X`, so both sets see the same of theta*; "
            f"got {eta!r}."
        )
    return low, high


def _joint_interval(
    fit: TrainingFit,
    n_ood: int,
    projnorm: float,
    *,
    eta: tuple[float, float],
    roots: tuple[float, float],
    smallest_projnorm: float = 0.0,
    assumptions: tuple[str, ...] = (),
) -> JointInterval:
    """The interval from the roots of the extreme eigenvalues, as far out as rounding may have moved them.

    The rounding of `eta` itself counts: near one, its last digit decides the length outside the training row space.
    """
    ends = max(eta[0] * (1.0 - _ETA_ROUNDING), 1.0), eta[1] * (1.0 + _ETA_ROUNDING)
    ratio = f"||P_Z theta*|| / ||P theta*|| in [{eta[0]:.6g}, {eta[1]:.6g}]"
    shortest, longest = (math.sqrt(end - 1.0) * math.sqrt(end + 1.0) for end in ends)
    lower, upper = loss_ends(
        fit,
        roots[0] * shortest * max(fit.norm - fit.norm_error, 0.0),
        roots[1] * longest * (fit.norm + fit.norm_error),
        n_ood,
    )
    return JointInterval(
        **interval_fields(fit, (lower, upper), projnorm, smallest_projnorm, (*assumptions, ratio)),
        eta=eta,
        smallest=roots[0] * roots[0],
        largest=roots[1] * roots[1],
    )


def _schur(pair: LinearPair) -> tuple[FloatArray, FloatArray]:
    """Roots of the eigenvalues of the Schur complement, and its eigenvectors in the shifted left vectors as rows."""
    rows, columns = pair.ood_sines.shape
    root = pair.ood_sines * pair.ood_singular_values
    if rows < columns:
        root = np.vstack([root, np.zeros((columns - rows, columns))])
    _, values, axes_T = np.linalg.svd(root, full_matrices=False)
    return values, axes_T


@dataclass(frozen=True, slots=True, eq=False)
class _BlockFactors:
    """Upper Cholesky factors of the training kernel and of the Schur complement, and what belongs to them."""

    train: FloatArray
    half: FloatArray  # L^{-1} C^T, so that half^T half = C K^{-1} C^T
    schur: FloatArray
    schur_factor: FloatArray | None
    scales: tuple[float, float]  # roots of bounds on the largest eigenvalues of K and K~

    def measure(self, Y: FloatArray, *, noise: float) -> tuple[TrainingFit, tuple[float, float]]:
        """The fit, and the roots of the extreme eigenvalues moved outwards by rounding."""
        white = linalg.solve_triangular(self.train, Y, trans="T", check_finite=False)
        norm = frobenius(white)
        dual = linalg.solve_triangular(self.train, white, check_finite=False)
        error = noise * (self.scales[0] * frobenius(dual)) ** 2 / norm if norm else 0.0
        # The fit errs in the norm alone here: the predictions do not enter the joint interval.
        fit = TrainingFit(white, norm, 0.0, interpolates=True, norm_error=error, prediction_error=math.nan)
        smallest, largest = self._extremes()
        low, high = (self._root(value, axis, noise, sign) for (value, axis), sign in ((smallest, -1), (largest, 1)))
        return fit, (low, high)

    def _extremes(self) -> tuple[tuple[float, FloatArray], tuple[float, FloatArray]]:
        m = len(self.schur)
        if m <= _DENSE_UP_TO:
            values, vectors = linalg.eigh(self.schur, lower=False, check_finite=False)
            return (float(values[0]), vectors[:, 0]), (float(values[-1]), vectors[:, -1])
        largest = _largest(lambda v: blas.dsymv(1.0, self.schur, v), m)
        if self.schur_factor is None or largest is None:
            values, vectors = linalg.eigh(self.schur, lower=False, check_finite=False)
            return (float(values[0]), vectors[:, 0]), (float(values[-1]), vectors[:, -1])
        factor = self.schur_factor
        inverse = _largest(lambda v: lapack.dpotrs(factor, v)[0].ravel(), m)
        if inverse is None:
            return (0.0, np.eye(1, m).ravel()), largest
        return (1.0 / inverse[0], inverse[1]), largest

    def _root(self, value: float, axis: FloatArray, noise: float, sign: int) -> float:
        """Root of an eigenvalue of the Schur complement, moved by what rounding of the three blocks may do to it."""
        through = linalg.solve_triangular(self.train, self.half @ axis, check_finite=False)
        error = noise * (self.scales[1] + self.scales[0] * frobenius(through)) ** 2
        return math.sqrt(max(value * (1.0 + sign * _LANCZOS_TOLERANCE) + sign * error, 0.0))


def _factor_blocks(K: FloatArray, C: FloatArray, K_ood: FloatArray) -> _BlockFactors | None:
    """The Cholesky factors, or None where the training kernel is too ill conditioned for them."""
    # LAPACK wants columns contiguous; the transpose of a symmetric matrix of contiguous rows is that, without a copy.
    K, K_ood = (block.T if block.flags.c_contiguous else block for block in (K, K_ood))
    train, failed = lapack.dpotrf(K, lower=0, clean=0)
    norm = float(np.abs(K).sum(axis=0).max())
    if failed or lapack.dpocon(train, norm, uplo="U")[0] < _LEAST_RECIPROCAL_CONDITION:
        return None
    half = linalg.solve_triangular(train, C.T, trans="T", check_finite=False)
    schur = blas.dsyrk(-1.0, half, beta=1.0, c=K_ood, trans=1, overwrite_c=0)
    factor, failed_schur = lapack.dpotrf(schur, lower=0, clean=0)
    scales = math.sqrt(norm), math.sqrt(float(np.abs(K_ood).sum(axis=0).max()))
    return _BlockFactors(train, half, schur, None if failed_schur else factor, scales)


def _largest(apply: Callable[[FloatArray], FloatArray], size: int) -> tuple[float, FloatArray] | None:
    """Largest eigenvalue of a symmetric operator and its eigenvector by the Lanczos method; None if it does not end."""
    operator = LinearOperator((size, size), matvec=apply, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(size)  # any vector will do, the same one always
    try:
        values, vectors = eigsh(operator, k=1, which="LA", tol=_LANCZOS_TOLERANCE, v0=start, ncv=min(size - 1, _KRYLOV))
    except ArpackNoConvergence:
        return None
    return float(values[0]), vectors[:, 0]
