"""Training and shifted inputs seen together: both spectra and the angles between the row spaces, computed once.

With ``X = A diag(s) U^T`` and ``X_ood = B diag(t) V^T`` every quantity of the linear theory is a function of `A`, `s`,
`B`, `t` and the position of `U` against `V`. That position is kept as a cosine and a sine: ``V^T U``, and triangular
factors of ``(I - P~) U`` and ``(I - P) V``. The sine is not computed from the cosine where the features are at hand,
so a direction that the two row spaces share is seen to within rounding, not to within its square root.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from projnorm_theory.gram_space import GramSpace
from projnorm_theory.norms import frobenius, sum_of_squares
from projnorm_theory.row_space import RowSpace, remove_span, triangular_factor
from projnorm_theory.validation import EPS, FloatArray, InputError, as_finite_result, as_matrix, as_rows, precision_of

# A sine at or below this counts as a shared direction even where rounding would allow a finer judgement.
_SHARED_SINE = 1e-8
# Y counts as interpolated when no more than this fraction of it lies outside the column space of X.
_INTERPOLATION_TOLERANCE = 1e-10


@dataclass(frozen=True, slots=True, eq=False)
class TrainingFit:
    r"""The minimum-norm solution in the coordinates of a `LinearPair`.

    Attributes:
        coordinates: :math:`U^\top\hat\theta`, shape ``(train_rank, c)``.
        norm: :math:`\|\hat\theta\|_F`.
        residual: :math:`\|X\hat\theta - Y\|_F`.
        interpolates: Whether the residual is rounding only.
    """

    coordinates: FloatArray
    norm: float
    residual: float
    interpolates: bool


@dataclass(frozen=True, slots=True, eq=False)
class LinearPair:
    r"""Spectra of `X` and `X_ood` and the angles between their row spaces.

    Attributes:
        train_left: Left singular vectors :math:`A` of `X`, shape ``(n, train_rank)``.
        train_singular_values: Singular values of `X`, descending.
        ood_left: Left singular vectors :math:`B` of `X_ood`, shape ``(m, ood_rank)``.
        ood_singular_values: Singular values of `X_ood`, descending.
        cosines: :math:`V^\top U`, shape ``(ood_rank, train_rank)``.
        train_sines: :math:`S` with :math:`S^\top S = U^\top (I - \tilde P) U`; `train_rank` columns.
        ood_sines: The same for :math:`V^\top (I - P) V`; `ood_rank` columns.
        sine_error: How far a sine may be off through rounding of the data.
        noise: Relative error of the Gram matrices the pair was made from; 0 when it was made from features.
    """

    train_left: FloatArray
    train_singular_values: FloatArray
    ood_left: FloatArray
    ood_singular_values: FloatArray
    cosines: FloatArray
    train_sines: FloatArray
    ood_sines: FloatArray
    sine_error: float
    noise: float

    @classmethod
    def of(cls, X: ArrayLike, X_ood: ArrayLike, *, rcond: float | None = None) -> LinearPair:
        """From features.

        Args:
            X: Training inputs, shape ``(n, d)``.
            X_ood: Shifted inputs, shape ``(m, d)``.
            rcond: Singular values up to ``rcond * s_max`` count as zero, in each matrix. Default
                ``max(rows, columns) * eps``.

        Raises:
            InputError: If a shape is wrong or an entry is not finite.
        """
        X = as_matrix(X, "X")
        X_ood = as_matrix(X_ood, "X_ood", columns=X.shape[1])
        return cls.of_row_spaces(RowSpace.of(X, rcond=rcond), RowSpace.of(X_ood, rcond=rcond))

    @classmethod
    def of_row_spaces(cls, train: RowSpace, ood: RowSpace) -> LinearPair:
        """From two row spaces of the same feature space, already factored."""
        return cls(
            train.left,
            train.singular_values,
            ood.left,
            ood.singular_values,
            cosines=ood.basis.T @ train.basis,
            train_sines=triangular_factor(remove_span(ood.basis, train.basis)),
            ood_sines=triangular_factor(remove_span(train.basis, ood.basis)),
            sine_error=10 * EPS * max(_condition(train.singular_values), _condition(ood.singular_values)),
            noise=0.0,
        )

    @classmethod
    def from_gram(
        cls,
        k_train: ArrayLike,
        k_ood_train: ArrayLike,
        k_ood: ArrayLike,
        *,
        rcond: float | None = None,
        noise: float = 0.0,
    ) -> LinearPair:
        r"""From the three Gram blocks :math:`XX^\top`, :math:`\tilde X X^\top`, :math:`\tilde X\tilde X^\top`.

        Args:
            k_train: Shape ``(n, n)``.
            k_ood_train: Shape ``(m, n)``, one row per shifted example.
            k_ood: Shape ``(m, m)``.
            rcond: On singular values of the features; squared on the Gram matrices. Default ``sqrt(rows * eps)``.
            noise: What is known of the error of the blocks against the largest eigenvalue, where it is more than
                their type says.

        Raises:
            InputError: If a block is not what its name says, or the three cannot come from the same features.
        """
        train = GramSpace.of(k_train, name="k_train", rcond=rcond, noise=noise)
        ood = GramSpace.of(k_ood, name="k_ood", rcond=rcond, noise=noise)
        return cls.of_gram_spaces(train, ood, k_ood_train)

    @classmethod
    def of_gram_spaces(cls, train: GramSpace, ood: GramSpace, k_ood_train: ArrayLike) -> LinearPair:
        """From two Gram matrices already factored and the block between them, shape ``(m, n)``."""
        n, m = train.left.shape[0], ood.left.shape[0]
        cross_precision = precision_of(k_ood_train)
        k_ood_train = as_matrix(k_ood_train, "k_ood_train")
        if k_ood_train.shape != (m, n):
            raise InputError(
                f"`k_ood_train` must have shape {(m, n)}, one row per row of `k_ood` and one column per row of "
                f"`k_train`; got {k_ood_train.shape}."
            )
        cosines = (ood.left.T @ k_ood_train @ train.left) / np.outer(ood.singular_values, train.singular_values)
        noise = max(train.noise, ood.noise, max(n, m) * cross_precision)
        sine_error = float(np.sqrt(noise) * max(_condition(train.singular_values), _condition(ood.singular_values)))
        _require_consistent_blocks(cosines, sine_error)
        return cls(
            train.left,
            train.singular_values,
            ood.left,
            ood.singular_values,
            cosines=cosines,
            train_sines=_complement(cosines.T @ cosines),
            ood_sines=_complement(cosines @ cosines.T),
            sine_error=sine_error,
            noise=noise,
        )

    @property
    def n_train(self) -> int:
        """Number of training examples."""
        return self.train_left.shape[0]

    @property
    def n_ood(self) -> int:
        """Number of shifted examples."""
        return self.ood_left.shape[0]

    @property
    def train_rank(self) -> int:
        """Numerical rank of `X`."""
        return self.train_singular_values.size

    @property
    def ood_rank(self) -> int:
        """Numerical rank of `X_ood`."""
        return self.ood_singular_values.size

    @property
    def train_eigenvalues(self) -> FloatArray:
        r"""Nonzero eigenvalues :math:`\mu_i` of :math:`X^\top X`, descending."""
        return self.train_singular_values**2

    @property
    def ood_eigenvalues(self) -> FloatArray:
        r"""Nonzero eigenvalues :math:`\lambda_j` of :math:`\tilde X^\top\tilde X`, descending."""
        return self.ood_singular_values**2

    @property
    def _column_space_error(self) -> float:
        """How far the left singular vectors kept may be turned out of the column space by rounding."""
        return self.sine_error if self.noise == 0.0 else self.sine_error**2

    @property
    def sine_tolerance(self) -> float:
        """Sines up to this count as zero: the direction is shared by both row spaces."""
        return max(_SHARED_SINE, self.sine_error)

    def fit(self, Y: ArrayLike) -> TrainingFit:
        """The minimum-norm solution for the responses `Y`, shape ``(n,)`` or ``(n, c)``."""
        Y = self.as_responses(Y)
        scores = self.train_left.T @ Y
        coordinates = scores / self.train_singular_values[:, None]
        residual = frobenius(Y - self.train_left @ scores)
        return TrainingFit(
            coordinates,
            frobenius(coordinates),
            residual,
            residual <= max(_INTERPOLATION_TOLERANCE, self._column_space_error) * frobenius(Y),
        )

    def ood_coordinates(self, Y_ood: ArrayLike) -> FloatArray:
        r""":math:`V^\top\theta_\star` from the true shifted responses, shape ``(ood_rank, c)``."""
        return (self.ood_left.T @ self.as_ood_responses(Y_ood)) / self.ood_singular_values[:, None]

    def test_loss(self, fit: TrainingFit, Y_ood: ArrayLike) -> float:
        r"""TestLoss from the pair alone: the predictions are :math:`B\,\mathrm{diag}(t)\,V^\top\hat\theta`."""
        Y_ood = self.as_ood_responses(Y_ood, outputs=fit.coordinates.shape[1])
        return as_finite_result(
            sum_of_squares(self.ood_predictions(fit.coordinates) - Y_ood) / self.n_ood, "the test loss"
        )

    def ood_predictions(self, coordinates: FloatArray) -> FloatArray:
        r"""What weights in the training row space predict: :math:`\tilde X U a`, shape ``(m, c)``."""
        return self.ood_left @ (self.ood_singular_values[:, None] * (self.cosines @ coordinates))

    def ridge_coordinates(self, fit: TrainingFit, ridge: float) -> FloatArray:
        r"""The fit with a ridge on the Gram matrix: :math:`U^\top X^\top (K + aI)^{-1} Y`."""
        mu = self.train_eigenvalues[:, None]
        return fit.coordinates * (mu / (mu + ridge))

    def as_responses(self, Y: ArrayLike) -> FloatArray:
        """Training responses as a matrix of shape ``(n, c)``."""
        return as_rows(Y, "Y", rows=self.n_train, rows_like="`X`").reshape(self.n_train, -1)

    def as_ood_responses(self, Y_ood: ArrayLike, *, outputs: int | None = None) -> FloatArray:
        """Shifted responses as a matrix of shape ``(m, c)``, with as many outputs as `Y` where that is known."""
        Y_ood = as_rows(Y_ood, "Y_ood", rows=self.n_ood, rows_like="`X_ood`").reshape(self.n_ood, -1)
        if outputs is not None and Y_ood.shape[1] != outputs:
            raise InputError(f"`Y_ood` must have {outputs} outputs like `Y`; got {Y_ood.shape[1]}.")
        return Y_ood

    def distance_to_ood(self, coordinates: FloatArray) -> float:
        r"""Distance :math:`\|(I - \tilde P) U a\|` of weights in the training row space to the shifted one."""
        if self.noise == 0.0:
            return frobenius(self.train_sines @ coordinates)
        # The sines of a Gram pair lost their negative squares; the difference itself errs less, and by a known amount.
        square = sum_of_squares(coordinates) - sum_of_squares(self.cosines @ coordinates)
        return math.sqrt(max(square, 0.0))

    def free_ood_directions(self) -> FloatArray:
        """Orthonormal basis, in the coordinates of `V`, of what the training rows leave undetermined.

        The principal directions of the shifted row space whose sine exceeds `sine_tolerance`; shape
        ``(ood_rank, free)``.
        """
        _, sines, directions_T = np.linalg.svd(self.ood_sines)
        free = int(np.count_nonzero(sines > self.sine_tolerance))
        return directions_T[:free].T

    def schur_singular_values(self) -> FloatArray:
        r"""Roots of the eigenvalues of the Schur complement :math:`\tilde K - C K^{+} C^\top`, descending.

        They are the singular values of :math:`\tilde X (I - P)`: what the shifted inputs see of the directions that the
        training rows leave undetermined. Shape ``(ood_rank,)``; shared directions give zeros to within rounding.
        """
        return np.linalg.svd(self.ood_sines * self.ood_singular_values, compute_uv=False)[: self.ood_rank]


def as_pair(X: ArrayLike | LinearPair, X_ood: ArrayLike | None) -> LinearPair:
    """The pair itself where one was passed for ``X, X_ood``, else the pair of the two matrices."""
    if isinstance(X, LinearPair):
        if X_ood is not None:
            raise InputError("`X_ood` must be left out when `X` is a LinearPair, which holds both.")
        return X
    if X_ood is None:
        raise InputError("`X_ood` is required unless `X` is a LinearPair.")
    return LinearPair.of(X, X_ood)


def _condition(singular_values: FloatArray) -> float:
    return float(singular_values[0] / singular_values[-1]) if singular_values.size else 1.0


def _complement(gram: FloatArray) -> FloatArray:
    """A factor `S` with ``S^T S = I - gram``; what rounding makes negative is zero."""
    eigenvalues, vectors = np.linalg.eigh(np.eye(gram.shape[0]) - gram)
    return (vectors * np.sqrt(np.maximum(eigenvalues, 0.0))).T


def _require_consistent_blocks(cosines: FloatArray, sine_error: float) -> None:
    """Bessel: no direction of one row space has more than its own length in the other."""
    if not cosines.size:
        return
    squares = cosines**2
    excess = max(squares.sum(axis=0).max(), squares.sum(axis=1).max()) - 1.0
    if excess > 1e-2 + 10 * sine_error**2:
        raise InputError(
            "`k_ood_train` does not fit `k_train` and `k_ood`: a unit direction of one row space would have squared "
            f"length {1.0 + excess:.4g} in the other. All three blocks must come from the same features."
        )
