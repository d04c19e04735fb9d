"""Training and shifted inputs seen together: both spectra and the angles between the row spaces, computed once.

With ``X = A diag(s) U^T`` and ``X_ood = B diag(t) V^T`` every quantity of the linear theory is a function of `A`, `s`,
`B`, `t` and the position of `U` against `V`. That position is kept as a cosine and a sine: ``V^T U``, and triangular
factors of ``(I - P~) U`` and ``(I - P) V``. The sine is not computed from the cosine where the features are at hand,
so a direction that the two row spaces share is seen to within rounding, not to within its square root.

Rounding leaves some things uncertain: whether a direction is shared, how long the fit is. `OodDirections` and the
errors of `TrainingFit` say how much, and every interval is widened by it (section 10 of docs/theory.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from projnorm_theory.errors import InputError
from projnorm_theory.gram_space import GramSpace
from projnorm_theory.norms import frobenius, sum_of_squares
from projnorm_theory.ood_directions import OodDirections
from projnorm_theory.row_space import RowSpace, remove_span, triangular_factor
from projnorm_theory.training_fit import TrainingFit
from projnorm_theory.validation import FloatArray, as_cross_gram, as_finite_result, as_rows, precision_of

# Rounding units in the sine of a direction that both sets carry at full strength, when it is computed from features;
# the most seen in 10,000 small designs was 19.
_SINE_ROUNDINGS = 40
# Where rounding reaches further than this, a sine that it could explain is not taken for zero.
SHARED_SINE = 1e-10
# What a ratio that was measured may be off.
RATIO_SLACK = 1e-8
# Y counts as interpolated when no more than this fraction of it lies outside the column space of X.
_INTERPOLATION_TOLERANCE = 1e-10


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
        sine_unit: How far rounding may move the sine of a direction that both sets carry at full strength.
        noise: Relative error of the Gram matrices the pair was made from; 0 when it was made from features.
        undecided: Number of eigenvalues of each Gram matrix, (train, ood), that were counted as zero but that rounding
            may hide.

    Every function of the theory takes a pair in place of ``X, X_ood``, so that both are factored once:

    >>> pair = LinearPair.from_features([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [[3.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    >>> pair.ood_eigenvalues.round(6).tolist(), abs(pair.cosines).round(6).tolist()
    ([9.0, 1.0], [[1.0, 0.0], [0.0, 0.0]])
    >>> round(pair.fit([2.0, 1.0]).norm ** 2, 6)
    2.0
    """

    train_left: FloatArray
    train_singular_values: FloatArray
    ood_left: FloatArray
    ood_singular_values: FloatArray
    cosines: FloatArray
    train_sines: FloatArray
    ood_sines: FloatArray
    sine_unit: float
    noise: float
    undecided: tuple[int, int] = (0, 0)

    @classmethod
    def from_features(cls, X: ArrayLike, X_ood: ArrayLike, *, rcond: float | None = None) -> LinearPair:
        """The pair of two matrices of features.

        Args:
            X: Training inputs, shape ``(n, d)``.
            X_ood: Shifted inputs, shape ``(m, d)``.
            rcond: Singular values up to ``rcond * s_max`` count as zero, in each matrix. Default
                ``max(rows, columns) * eps``, with the eps of the type of the matrix.

        Raises:
            InputError: If a shape is wrong or an entry is not finite.
        """
        train = RowSpace.from_matrix(X, rcond=rcond)
        return cls.from_row_spaces(train, RowSpace.from_matrix(X_ood, name="X_ood", columns=train.dim, rcond=rcond))

    @classmethod
    def from_row_spaces(cls, train: RowSpace, ood: RowSpace) -> LinearPair:
        """The pair of two matrices of features that are factored already.

        Args:
            train: Factors of the training inputs.
            ood: Factors of the shifted inputs.
        """
        return cls(
            train.left,
            train.singular_values,
            ood.left,
            ood.singular_values,
            cosines=ood.basis.T @ train.basis,
            train_sines=triangular_factor(remove_span(ood.basis, train.basis)),
            ood_sines=triangular_factor(remove_span(train.basis, ood.basis)),
            sine_unit=_SINE_ROUNDINGS * max(train.precision, ood.precision),
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
        r"""The pair of the Gram blocks :math:`XX^\top`, :math:`\tilde X X^\top`, :math:`\tilde X\tilde X^\top`.

        Args:
            k_train: Shape ``(n, n)``.
            k_ood_train: Shape ``(m, n)``, one row per shifted example.
            k_ood: Shape ``(m, m)``.
            rcond: On singular values of the features; squared on the Gram matrices. Default ``sqrt(rows * eps)``.
            noise: What is known of the error of the blocks against the largest eigenvalue, where it is more than
                their type says.

        Raises:
            InputError: If a block is not what its name says, or the three cannot come from the same features.

        >>> import numpy as np
        >>> X, X_ood = np.array([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), np.array([[3.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
        >>> pair = LinearPair.from_gram(X @ X.T, X_ood @ X.T, X_ood @ X_ood.T)
        >>> pair.train_eigenvalues.round(6).tolist()
        [4.0, 1.0]
        """
        train = GramSpace.from_gram(k_train, name="k_train", rcond=rcond, noise=noise)
        ood = GramSpace.from_gram(k_ood, name="k_ood", rcond=rcond, noise=noise)
        return cls.from_gram_spaces(train, ood, k_ood_train)

    @classmethod
    def from_gram_spaces(cls, train: GramSpace, ood: GramSpace, k_ood_train: ArrayLike) -> LinearPair:
        """The pair of two Gram matrices that are factored already.

        Args:
            train: Factors of the training Gram matrix.
            ood: Factors of the shifted Gram matrix.
            k_ood_train: The block between them, shape ``(m, n)``.
        """
        n, m = train.left.shape[0], ood.left.shape[0]
        cross_precision = precision_of(k_ood_train)
        k_ood_train = as_cross_gram(k_ood_train, n, m)
        cosines = (ood.left.T @ k_ood_train @ train.left) / np.outer(ood.singular_values, train.singular_values)
        noise = max(train.noise, ood.noise, max(n, m) * cross_precision)
        pair = cls(
            train.left,
            train.singular_values,
            ood.left,
            ood.singular_values,
            cosines=cosines,
            train_sines=_complement(cosines.T @ cosines),
            ood_sines=_complement(cosines @ cosines.T),
            sine_unit=math.sqrt(noise),
            noise=noise,
            undecided=(train.undecided, ood.undecided),
        )
        _require_consistent_blocks(cosines, pair.sine_error)
        return pair

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
    def sine_error(self) -> float:
        """How far rounding may move a sine, for the worst direction of either row space."""
        return self.sine_unit * max(_condition(self.train_singular_values), _condition(self.ood_singular_values))

    @property
    def _column_space_error(self) -> float:
        """How far the left singular vectors kept may be turned out of the column space by rounding."""
        return self.sine_error if self.noise == 0.0 else self.sine_error**2

    def fit(self, Y: ArrayLike) -> TrainingFit:
        """The minimum-norm solution for the responses `Y`, shape ``(n,)`` or ``(n, c)``."""
        Y = self.as_responses(Y)
        scores = self.train_left.T @ Y
        with np.errstate(over="ignore"):
            coordinates = scores / self.train_singular_values[:, None]
        residual, size = frobenius(Y - self.train_left @ scores), frobenius(Y)
        norm = as_finite_result(frobenius(coordinates), "the minimum-norm solution")
        norm_error, prediction_error = self._fit_errors(coordinates, norm)
        undecided = self.undecided[0] > 0 and residual > self.noise * size
        return TrainingFit(
            coordinates,
            norm,
            residual,
            residual <= max(_INTERPOLATION_TOLERANCE, self._column_space_error) * size,
            math.inf if undecided else norm_error,
            math.inf if undecided else prediction_error,
        )

    def _fit_errors(self, coordinates: FloatArray, norm: float) -> tuple[float, float]:
        """First-order effect of rounding in the data on the norm of the fit and on its shifted predictions.

        From ``d(X^+ Y) = -X^+ dX theta + ...`` for features, and from ``d(K^-1) = -K^-1 dK K^-1`` for Gram blocks.
        """
        if norm == 0.0 or self.ood_rank == 0:
            return 0.0, 0.0
        s, t = self.train_singular_values, self.ood_singular_values
        # ||K^+ Y|| in units of norm / s_max, and ||X~ X^+|| in units of t_max / s_max: how much both amplify rounding.
        dual = frobenius(coordinates / norm / (s / s[0])[:, None])
        transfer = frobenius((t / t[0])[:, None] * self.cosines / (s / s[0]))
        if not self.noise:
            return self.sine_unit * dual * norm, self.sine_unit * (dual + transfer) * float(t[0]) * norm
        # The singular values of a Gram matrix err too, and with them the coordinates of the predictions.
        in_spectrum = frobenius(self.cosines @ (coordinates / norm) / (t / t[0])[:, None])
        in_predictions = dual * (1.0 + transfer) + in_spectrum
        return self.noise * dual * dual * norm, self.noise * in_predictions * float(t[0]) * norm

    def ood_coordinates(self, Y_ood: ArrayLike) -> FloatArray:
        r"""The coordinates :math:`V^\top\theta_\star` of the ground truth, shape ``(ood_rank, c)``.

        Args:
            Y_ood: True responses of the shifted examples, shape ``(m,)`` or ``(m, c)``.
        """
        return (self.ood_left.T @ self.as_ood_responses(Y_ood)) / self.ood_singular_values[:, None]

    def test_loss(self, fit: TrainingFit, Y_ood: ArrayLike) -> float:
        r"""The test loss, from the predictions :math:`B\,\mathrm{diag}(t)\,V^\top\hat\theta`.

        Args:
            fit: The training fit, from `fit`.
            Y_ood: True responses of the shifted examples, shape ``(m,)`` or ``(m, c)``.
        """
        Y_ood = self.as_ood_responses(Y_ood, outputs=fit.coordinates.shape[1])
        return as_finite_result(
            sum_of_squares(self.ood_predictions(fit.coordinates) - Y_ood) / self.n_ood, "the test loss"
        )

    def ood_predictions(self, coordinates: FloatArray) -> FloatArray:
        r"""The predictions :math:`\tilde X U a` of weights in the training row space, shape ``(m, c)``.

        Args:
            coordinates: The coordinates :math:`a` of the weights, shape ``(train_rank, c)``.
        """
        return self.ood_left @ (self.ood_singular_values[:, None] * (self.cosines @ coordinates))

    def ridge_coordinates(self, fit: TrainingFit, ridge: float) -> FloatArray:
        r"""The coordinates :math:`U^\top X^\top (K + aI)^{-1} Y` of the fit with a ridge, shape ``(train_rank, c)``.

        Args:
            fit: The fit without a ridge, from `fit`.
            ridge: The ridge :math:`a`, added to the Gram matrix.
        """
        mu = self.train_eigenvalues[:, None]
        return fit.coordinates * (mu / (mu + ridge))

    def as_responses(self, Y: ArrayLike) -> FloatArray:
        """The training responses `Y`, of shape ``(n,)`` or ``(n, c)``, as a matrix of shape ``(n, c)``."""
        return as_rows(Y, "Y", rows=self.n_train, rows_like="`X`").reshape(self.n_train, -1)

    def as_ood_responses(self, Y_ood: ArrayLike, name: str = "Y_ood", *, outputs: int | None = None) -> FloatArray:
        """The shifted responses as a matrix of shape ``(m, c)``, checked.

        Args:
            Y_ood: Responses of the shifted examples, shape ``(m,)`` or ``(m, c)``.
            name: Name of the argument in messages.
            outputs: Number `c` of outputs of the training responses, which `Y_ood` must have; None if not known.
        """
        Y_ood = as_rows(Y_ood, name, rows=self.n_ood, rows_like="`X_ood`").reshape(self.n_ood, -1)
        if outputs is not None and Y_ood.shape[1] != outputs:
            raise InputError(f"`{name}` must have {outputs} outputs like `Y`; got {Y_ood.shape[1]}.")
        return Y_ood

    def distance_to_ood(self, coordinates: FloatArray) -> float:
        r"""Distance :math:`\|(I - \tilde P) U a\|` of weights in the training row space to the shifted one.

        Args:
            coordinates: The coordinates :math:`a` of the weights, shape ``(train_rank, c)``.
        """
        if self.noise == 0.0:
            return frobenius(self.train_sines @ coordinates)
        # The sines of a Gram pair lost their negative squares; the difference itself errs less, and by a known amount.
        whole, seen = frobenius(coordinates), frobenius(self.cosines @ coordinates)
        return math.sqrt(max(whole - seen, 0.0)) * math.sqrt(whole + seen)

    def ood_directions(self) -> OodDirections:
        """The principal directions of the shifted row space, sorted into free, uncertain and shared ones."""
        _, sines, directions_T = np.linalg.svd(self.ood_sines)
        directions, sines = directions_T.T, np.append(sines, np.zeros(self.ood_rank))[: self.ood_rank]
        tolerances = self.sine_tolerances(directions)
        free = sines > tolerances
        # Rows that span the whole space determine every direction: the sines are then exactly zero.
        shared = ~free & ((tolerances <= SHARED_SINE) | ((sines == 0.0) & (self.noise == 0.0)))
        uncertain = ~free & ~shared
        return OodDirections(
            directions[:, free],
            directions[:, uncertain],
            max(SHARED_SINE, float(tolerances[~free].max(initial=0.0))),
        )

    def sine_tolerances(self, directions: FloatArray) -> FloatArray:
        r"""How far rounding may move the sine of each of the `directions`, unit columns in the coordinates of `V`.

        A direction is known as well as the singular vectors that it is made of:
        :math:`\|t_1 T^{-1} w\| + \|s_1 S^{-1} U^\top V w\|` rounding units.
        """
        s, t = self.train_singular_values, self.ood_singular_values
        if not self.ood_rank:
            return np.zeros(0)
        own = np.linalg.norm(directions / (t / t[0])[:, None], axis=0)
        if not self.train_rank:
            return self.sine_unit * own
        return self.sine_unit * (own + np.linalg.norm((self.cosines.T @ directions) / (s / s[0])[:, None], axis=0))

    def schur_errors(self, axes: FloatArray) -> FloatArray:
        r"""How far rounding may move :math:`\|(I - P)\tilde X^\top B w\|` for unit columns :math:`w` of `axes`."""
        return self.sine_tolerances(self.ood_singular_values[:, None] * axes)

    def schur_singular_values(self) -> FloatArray:
        r"""The roots of the eigenvalues of the Schur complement :math:`\tilde K - C K^{+} C^\top`, descending.

        They are the singular values of :math:`\tilde X (I - P)`: what the shifted inputs see of the directions that the
        training rows leave undetermined. Shape ``(ood_rank,)``; shared directions give zeros to within rounding.
        """
        return np.asarray(np.linalg.svd(self.ood_sines * self.ood_singular_values, compute_uv=False)[: self.ood_rank])


def as_pair(X: ArrayLike | LinearPair, X_ood: ArrayLike | None) -> LinearPair:
    """The pair itself where one was passed for ``X, X_ood``, else the pair of the two matrices."""
    if isinstance(X, LinearPair):
        if X_ood is not None:
            raise InputError("`X_ood` must be left out when `X` is a LinearPair, which holds both.")
        return X
    if X_ood is None:
        raise InputError("`X_ood` is required unless `X` is a LinearPair.")
    return LinearPair.from_features(X, X_ood)


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
