"""Training and shifted inputs with a ground truth, on which the theory's assumptions hold or fail by a dial."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from projnorm.core.errors import InputError
from projnorm_theory import RowSpace

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """Inputs of both sets and the ground truth that labels them.

    Attributes:
        X: Training inputs, shape ``(n, d)``.
        X_ood: Shifted inputs, shape ``(m, d)``.
        theta_star: Ground truth, shape ``(d, c)``.
        k: Dimension of the span meant to be shared by the top eigenvectors.
    """

    X: FloatArray
    X_ood: FloatArray
    theta_star: FloatArray
    k: int

    @property
    def Y(self) -> FloatArray:
        """Training responses, shape ``(n, c)``."""
        return self.X @ self.theta_star

    @property
    def Y_ood(self) -> FloatArray:
        """Shifted responses, shape ``(m, c)``."""
        return self.X_ood @ self.theta_star


def spectral_design(
    rng: np.random.Generator,
    *,
    train_singular_values: ArrayLike,
    ood_singular_values: ArrayLike,
    dim: int,
    k: int,
    n_train: int | None = None,
    n_ood: int | None = None,
    n_outputs: int = 1,
    tail_angle: float = math.pi / 2,
    span_tilt: float = 0.0,
    rho: float = 1.0,
) -> Design:
    """A design with given spectra whose three departures from the paper's assumptions are dials.

    With the defaults every assumption holds exactly: the top-k spans coincide, the tails are orthogonal, and the
    ground truth has equal projected norms.

    Args:
        rng: Source of randomness.
        train_singular_values: Singular values of `X`, descending; as many as its rank.
        ood_singular_values: Singular values of `X_ood`, descending; as many as its rank.
        dim: Number of features; at least both ranks minus `k`, and `k` more with a tilt.
        k: Dimension of the shared span.
        n_train: Rows of `X`. Default: its rank; more make it rank deficient.
        n_ood: Rows of `X_ood`, likewise.
        n_outputs: Columns of the ground truth.
        tail_angle: Angle between paired tail eigenvectors, in radians; ``pi / 2`` is orthogonal.
        span_tilt: Angle by which each shifted top eigenvector leaves the shared span, in radians.
        rho: ``||P~ theta*|| / ||P theta*||``.

    Raises:
        InputError: If `dim` or `k` does not fit, or no ground truth has such a `rho`.

    >>> rng = np.random.default_rng(0)
    >>> values = [3.0, 2.0, 1.0]
    >>> design = spectral_design(rng, train_singular_values=values, ood_singular_values=values, dim=8, k=1)
    >>> design.X.shape, np.linalg.svd(design.X_ood, compute_uv=False).round(6).tolist()
    ((3, 8), [3.0, 2.0, 1.0])
    """
    s = _as_spectrum(train_singular_values, "train_singular_values")
    t = _as_spectrum(ood_singular_values, "ood_singular_values")
    n, m = s.size, t.size
    if not 0 <= k <= min(n, m):
        raise InputError(f"`k` must be between 0 and {min(n, m)}; got {k}.")
    needed = n + m - k + (k if span_tilt else 0)
    if dim < needed:
        raise InputError(f"`dim` must be at least {needed} for these sizes; got {dim}.")

    frame = haar(rng, dim, needed)
    U, fresh, spare = frame[:, :n], frame[:, n : n + m - k], frame[:, n + m - k :]
    V_top = U[:, :k] @ haar(rng, k, k)
    if span_tilt:
        V_top = math.cos(span_tilt) * V_top + math.sin(span_tilt) * spare
    paired = min(n, m) - k
    V_tail = fresh.copy()
    V_tail[:, :paired] = math.cos(tail_angle) * U[:, k : k + paired] + math.sin(tail_angle) * fresh[:, :paired]

    X = (haar(rng, n_train or n, n) * s) @ U.T
    X_ood = (haar(rng, n_ood or m, m) * t) @ np.hstack([V_top, V_tail]).T
    theta = U @ rng.standard_normal((n, n_outputs))
    return Design(X, X_ood, draw_truth(rng, X, theta, X_ood, rho=rho), k)


def flat_tail_design(
    rng: np.random.Generator, *, tail: int, k: int, phi: float, root: Literal["tan", "cot"], dim: int | None = None
) -> Design:
    """The counterexample in many dimensions: flat tails at an angle and a ground truth of equal projected norms.

    Both tail spectra are constant, so the paper's interval is a single point, and the ratio of the loss to it is
    ``tan(phi / 2)**2`` or ``cot(phi / 2)**2``.

    Args:
        rng: Source of randomness.
        tail: Dimension of each tail.
        k: Dimension of the shared span.
        phi: Angle between paired tail eigenvectors, strictly between 0 and pi.
        root: Which of the two ground truths.
        dim: Number of features. Default: ``k + 2 * tail``.

    Raises:
        InputError: If `dim` is too small.

    >>> design = flat_tail_design(np.random.default_rng(0), tail=2, k=1, phi=1.0, root="cot")
    >>> design.X.shape, design.k
    ((3, 5), 1)
    """
    needed = k + 2 * tail
    dim = needed if dim is None else dim
    if dim < needed:
        raise InputError(f"`dim` must be at least {needed} for these sizes; got {dim}.")
    frame = haar(rng, dim, needed)
    shared, U_tail, fresh = frame[:, :k], frame[:, k : k + tail], frame[:, k + tail :]
    spectrum = np.concatenate([10 * np.sort(1 + rng.random(k))[::-1], np.ones(tail)])
    X = (haar(rng, k + tail, k + tail) * spectrum) @ np.hstack([shared, U_tail]).T
    V_tail = math.cos(phi) * U_tail + math.sin(phi) * fresh
    X_ood = (haar(rng, k + tail, k + tail) * spectrum) @ np.hstack([shared, V_tail]).T
    beyond = math.tan(phi / 2) if root == "tan" else -1 / math.tan(phi / 2)
    coefficients = rng.standard_normal((tail, 1))
    theta_star = shared @ rng.standard_normal((k, 1)) + (U_tail + beyond * fresh) @ coefficients
    return Design(X, X_ood, theta_star, k)


def draw_truth(
    rng: np.random.Generator, X: FloatArray, theta: FloatArray, X_ood: FloatArray, *, rho: float
) -> FloatArray:
    """A ground truth that the training data cannot tell from `theta`, with a given ratio of projected norms.

    A direction is drawn in what the shifted rows add to the training row space, and followed from `theta` to one of
    the two points where ``||P~ theta*|| = rho ||theta||``.

    Args:
        rng: Source of randomness.
        X: Training inputs.
        theta: Weights in their row space, shape ``(d, c)``.
        X_ood: Shifted inputs.
        rho: The ratio wanted.

    Raises:
        InputError: If the line drawn has no such point; there always is one for ``rho >= ||P~ theta|| / ||theta||``.

    >>> rng = np.random.default_rng(0)
    >>> X, X_ood = rng.standard_normal((3, 9)), rng.standard_normal((3, 9))
    >>> theta = X.T @ rng.standard_normal((3, 1))
    >>> truth = draw_truth(rng, X, theta, X_ood, rho=1.0)
    >>> bool(np.allclose(X @ truth, X @ theta))
    True
    """
    ood = RowSpace.from_matrix(X_ood)
    direction = RowSpace.from_matrix(X).residual(ood.basis @ rng.standard_normal((ood.rank, theta.shape[1])))
    start, step = ood.coordinates(theta), ood.coordinates(direction)
    # ||start + z step||^2 = target^2, a quadratic in z.
    target = rho * float(np.linalg.norm(theta))
    a, b, c = float(np.sum(step**2)), float(np.sum(start * step)), float(np.sum(start**2)) - target**2
    discriminant = b * b - a * c
    if a == 0.0 or discriminant < 0.0:
        raise InputError(f"`rho` = {rho:.6g} cannot be reached from this theta along the direction drawn.")
    sign = 1.0 if rng.random() < 0.5 else -1.0
    z = (-b + sign * math.sqrt(discriminant)) / a
    return theta + z * direction


def haar(rng: np.random.Generator, rows: int, columns: int) -> FloatArray:
    """Orthonormal columns drawn uniformly, shape ``(rows, columns)``.

    >>> basis = haar(np.random.default_rng(0), 5, 2)
    >>> np.abs(basis.T @ basis).round(6).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    Q, R = np.linalg.qr(rng.standard_normal((rows, columns)))
    return Q * np.where(np.diagonal(R) < 0.0, -1.0, 1.0)


def _as_spectrum(values: ArrayLike, name: str) -> FloatArray:
    spectrum = np.asarray(values, dtype=np.float64)
    if spectrum.ndim != 1 or spectrum.size == 0 or np.any(spectrum <= 0.0) or np.any(np.diff(spectrum) > 0.0):
        raise InputError(f"`{name}` must be positive and descending, shape (rows,).")
    return spectrum
